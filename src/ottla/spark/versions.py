"""Versions that must agree: PySpark's with the data source, and ottla's on the driver with that of the executors."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import ottla
from ottla.spark.errors import VersionMismatchError, one_sentence

OLDEST_PYSPARK = (4, 2)
"""The first version whose Python data sources can limit a micro-batch (SPARK-55304)."""


def pyspark_problem(version: str | None = None) -> str | None:
    """Why this version of PySpark (the installed one by default) cannot run the source; None where it can."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) >= OLDEST_PYSPARK:
        return None
    wanted = ".".join(map(str, OLDEST_PYSPARK))
    return f"ottla needs PySpark {wanted} or newer, and this is {version}: pip install 'pyspark>={wanted}'"


class Versioned:
    """An object that travels to other processes in a pickle that names the version of ottla it was made by.

    The version is compared before anything else of the pickle is read, whose meaning may differ between versions. The
    pickler has to be Spark's, which pickles functions too.
    """

    def __reduce__(self) -> tuple[Callable[[str, bytes], object], tuple[str, bytes]]:
        from pyspark import cloudpickle

        dumps: Callable[[object], bytes] = cloudpickle.dumps
        return _restore_where_ottla_is(), (ottla.__version__, dumps((type(self), self._travelling_state())))

    def _travelling_state(self) -> dict[str, Any]:
        return dict(vars(self))


def _restore_where_ottla_is() -> Callable[[str, bytes], object]:
    """`restore`, or a sentence in a Python that has no ottla.

    By its name such a Python could not find it. A function made within another one is pickled with its code.
    """

    def restore_here(version: str, pickled: bytes) -> object:
        try:
            from ottla.spark.versions import restore
        except ModuleNotFoundError as missing:
            if missing.name is None or missing.name.partition(".")[0] != "ottla":
                raise
            import os
            import sys

            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise RuntimeError(
                f"the driver has ottla {version} and this executor has none: install 'ottla[spark-source]' of the same "
                f"version for its Python, {sys.executable}"
            ) from None
        return restore(version, pickled)

    return restore_here


@one_sentence
def restore(version: str, pickled: bytes) -> object:
    """Unpickle an object pickled by ottla `version`. Raises VersionMismatchError where this is another version."""
    if version != ottla.__version__:
        raise VersionMismatchError(
            f"the driver has ottla {version} and this executor has ottla {ottla.__version__}: "
            "install the same version on both"
        )
    kind, state = pickle.loads(pickled)
    made: object = object.__new__(kind)
    vars(made).update(state)
    return made
