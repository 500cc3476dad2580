"""Other people's programs that look at clusters, which `./run test` builds and installs for tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from support.java import PROJECT

PROGRAMS = ("kaf", "kaskade/bin/kaskade")


def _folder() -> Path:
    return Path(os.environ.get("OTTLA_PROGRAMS") or PROJECT / ".cache" / "programs")


def built_programs() -> bool:
    """Whether all of them are there (in `OTTLA_PROGRAMS`, else in `.cache/programs`)."""
    return all((_folder() / name).exists() for name in PROGRAMS)


def built_program(name: str) -> Path:
    """One of them."""
    return _folder() / name


def promtool_executable() -> str | None:
    """Prometheus's promtool: on the path, or where `./run test --all` puts it."""
    return _of_debian("prometheus", "promtool")


def prometheus_executable() -> str | None:
    """Prometheus itself, from the same places."""
    return _of_debian("prometheus", "prometheus")


def burrow_executable() -> str | None:
    """Burrow, from the same places."""
    return _of_debian("burrow", "Burrow")


def _of_debian(package: str, name: str) -> str | None:
    folder = str(PROJECT / ".cache" / package)
    return shutil.which(name, path=os.pathsep.join((os.environ["PATH"], folder)))


def site_python() -> Path | None:
    """The Python that has Sphinx: in `OTTLA_SITE`, else in `.cache/site`."""
    python = Path(os.environ.get("OTTLA_SITE") or PROJECT / ".cache" / "site") / "bin" / "python"
    return python if python.exists() else None
