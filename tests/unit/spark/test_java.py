"""Finding Java, and starting Spark on one that lacks a module."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import py4j
import pytest

from ottla.spark import java
from ottla.spark.java import JavaNotFound, find_java, home_without_archives, inspect_java, spark_launcher

RELEASE = 'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="java.base {module}"\n'


def _install(home: Path, version: str, *, vector: bool = True, script: str = '#!/bin/sh\necho "$@"\n') -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    module = "jdk.incubator.vector" if vector else "java.xml"
    (home / "release").write_text(RELEASE.format(version=version, module=module))
    return home


@pytest.mark.parametrize(("version", "feature"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("11.0.2", 11)])
def test_an_installation_says_what_it_is(tmp_path: Path, version: str, feature: int) -> None:
    found = inspect_java(_install(tmp_path / "java", version))
    assert found is not None
    assert (found.version, found.has_vector_module) == (feature, True)


def test_an_installation_without_release_file_is_asked(tmp_path: Path) -> None:
    script = """#!/bin/sh
case "$1" in
    -version) echo 'openjdk version "21.0.1" 2023-10-17' >&2 ;;
    --list-modules) echo 'java.base@21.0.1' ;;
esac
"""
    home = _install(tmp_path / "java", "0", script=script)
    (home / "release").unlink()
    found = inspect_java(home)
    assert found is not None
    assert (found.version, found.has_vector_module) == (21, False)


def test_no_java_is_none(tmp_path: Path) -> None:
    assert inspect_java(tmp_path) is None
    broken = _install(tmp_path / "broken", "x", script="#!/bin/sh\nexit 1\n")
    assert inspect_java(broken) is None


def test_the_named_one_must_do(tmp_path: Path) -> None:
    good = _install(tmp_path / "good", "17.0.1")
    assert find_java(str(good)).home == good
    old = _install(tmp_path / "old", "11.0.1")
    with pytest.raises(JavaNotFound, match=r"holds Java 11; Spark needs Java 17 or newer"):
        find_java(str(old))
    with pytest.raises(JavaNotFound, match="holds no Java"):
        find_java(str(tmp_path / "nowhere"))


def test_the_system_s_comes_before_the_package_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, packaged = _install(tmp_path / "s", "17"), _install(tmp_path / "p", "25")
    monkeypatch.setattr(java, "_system_home", lambda: system)
    monkeypatch.setattr(java, "_packaged_home", lambda: packaged)
    assert find_java().home == system
    (system / "release").write_text(RELEASE.format(version="11.0.2", module=""))
    assert find_java().home == packaged
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    with pytest.raises(JavaNotFound, match=r"found Java 11 .*pip install 'ottla\[spark"):
        find_java()
    monkeypatch.setattr(java, "_system_home", lambda: None)
    with pytest.raises(JavaNotFound, match="Spark needs Java 17 or newer; install one"):
        find_java()


def test_the_system_s_java_is_found_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _install(tmp_path / "jvm", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().home == home


@pytest.mark.parametrize("vector", [True, False])
def test_the_launcher_drops_the_flag_only_where_the_module_is_missing(tmp_path: Path, vector: bool) -> None:
    home = _install(tmp_path / "a java", "25", vector=vector)
    spark = tmp_path / "spark home"
    (spark / "bin").mkdir(parents=True)
    submit = spark / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\nexec "$JAVA_HOME/bin/java" --add-modules=jdk.incubator.vector "$@"\n')
    submit.chmod(0o755)
    found = inspect_java(home)
    assert found is not None
    program = spark_launcher(found, spark, tmp_path / "cache")
    told = subprocess.run([str(program), "-x", "a b"], capture_output=True, text=True, check=True).stdout
    assert told == ("--add-modules=jdk.incubator.vector -x a b\n" if vector else "-x a b\n")


def test_a_driver_that_others_reach_has_spark_s_own_home_and_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    spark = _spark_home(tmp_path / "spark")
    (spark / "bin").mkdir()
    submit = spark / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\necho "$SPARK_HOME" "$JAVA_HOME" "${SPARK_LOCAL_IP-none}"\n')
    submit.chmod(0o755)
    found = inspect_java(_install(tmp_path / "java", "17.0.1"))
    assert found is not None
    program = spark_launcher(found, spark, tmp_path / "cache", local=False)
    home, java, address = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert (Path(home), address) == (spark, "none")
    assert Path(java, "bin", "java").is_file()


def _spark_home(spark: Path) -> Path:
    """A home with archives of PySpark and py4j."""
    lib = spark / "python" / "lib"
    lib.mkdir(parents=True)
    (spark / "__init__.py").write_text("")
    (spark / "python" / "other").write_text("")
    for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip"):
        with zipfile.ZipFile(lib / name, "w") as archive:
            archive.writestr(f"{name[:4]}/__init__.py", "")
    return spark


def test_python_processes_find_packages_in_folders_in_the_place_of_archives(tmp_path: Path) -> None:
    spark = _spark_home(tmp_path / "site-packages" / "pyspark")
    lib = spark / "python" / "lib"
    (spark / "bin").mkdir()
    submit = spark / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\necho "$SPARK_HOME"\n')
    submit.chmod(0o755)
    found = inspect_java(_install(tmp_path / "java", "17.0.1"))
    assert found is not None
    for _ in range(2):  # A folder can be used again.
        program = spark_launcher(found, spark, tmp_path / "cache")
        home = Path(subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip())
    assert home != spark
    assert (home / "python" / "other").is_file()
    path = [str(home / "python" / "lib" / each.name) for each in lib.iterdir()]
    command = [sys.executable, "-c", "import pyspark, py4j; print(pyspark.__file__, py4j.__file__, sep='\\n')"]
    environment = {"PYTHONPATH": ":".join(path)}
    imported = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    files = [Path(each).resolve() for each in imported.splitlines()]
    assert files == [spark / "__init__.py", Path(py4j.__file__).resolve()]


def test_a_home_that_is_named_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark = _spark_home(tmp_path / "pyspark")
    monkeypatch.chdir(tmp_path)
    home = home_without_archives(Path("pyspark"), tmp_path / "cache" / "home")
    monkeypatch.chdir("/")
    assert (home / "__init__.py").resolve() == spark / "__init__.py"
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "__init__.py").is_file()


def test_another_session_makes_the_same_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, home = _spark_home(tmp_path / "pyspark"), tmp_path / "home"
    home_without_archives(spark, home)
    # As a session sees it that looked for links before they were there.
    monkeypatch.setattr(Path, "is_symlink", lambda path: False)
    assert home_without_archives(spark, home) == home
    assert sorted(each.name for each in home.iterdir()) == sorted(each.name for each in spark.iterdir())
    assert (home / "__init__.py").resolve() == spark / "__init__.py"


def test_a_home_whose_archives_are_not_known_is_left_alone(tmp_path: Path) -> None:
    spark = tmp_path / "spark"
    (spark / "python" / "lib").mkdir(parents=True)
    (spark / "python" / "lib" / "pyspark.zip").write_bytes(b"")
    found = inspect_java(_install(tmp_path / "java", "17.0.1"))
    assert found is not None
    assert f"SPARK_HOME={spark} " in spark_launcher(found, spark, tmp_path / "cache").read_text()
