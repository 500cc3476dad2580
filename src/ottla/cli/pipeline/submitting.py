"""`ottla pipeline submit`: the environment packed, the line written, and run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import CommandError
from ottla.cli.pipeline import submitted
from ottla.spark.pipelines.running.packing import pack_environment
from ottla.spark.pipelines.running.submitting import SubmitOptions, shown, submit_line

if TYPE_CHECKING:
    from ottla.spark.pipelines.settings.model import PipelineSettings


@dataclass(frozen=True, slots=True)
class SubmitCommand:
    """Options of the command."""

    file: Path
    servers: str | None
    deploy_mode: str
    pack: Path | None
    archive: str | None
    program: str
    execute: bool


def submit_command(settings: PipelineSettings, asked: SubmitCommand) -> int:
    """Pack, write, run; the exit code. Raises PipelineError, CommandError."""
    if asked.pack is not None and asked.archive is not None:
        raise CommandError("--pack and --archive contradict each other; give one of them")
    archive = asked.archive if asked.pack is None else str(asked.pack.absolute())
    options = SubmitOptions(
        program=asked.program,
        script=Path(submitted.__file__),
        file=asked.file,
        deploy_mode=asked.deploy_mode,
        archive=archive,
        driver_python=sys.executable,
        arguments=() if asked.servers is None else ("--bootstrap-server", asked.servers),
    )
    line = submit_line(settings, options)
    if asked.pack is not None:
        packed_bytes = pack_environment(asked.pack)
        print(f"packed {sys.prefix} into {asked.pack}: {packed_bytes / 1e6:,.0f} MB", file=sys.stderr, flush=True)
    print(shown(line), flush=True)
    if not asked.execute:
        return 0
    try:
        return subprocess.run(line, check=False).returncode
    except OSError as problem:
        raise CommandError(f"cannot run {asked.program}: {problem.strerror}; name it by --spark-submit") from None
