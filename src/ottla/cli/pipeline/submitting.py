"""`ottla pipeline submit`: the environment packed, the line written, and run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import CommandError
from ottla.spark.pipelines.running.submitting import SubmitOptions, pack_environment, shown, submit_line

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


def submit_command(settings: PipelineSettings, command: SubmitCommand) -> int:
    """Pack, write, run; the exit code. Raises PipelineError, CommandError."""
    if command.pack is not None and command.archive is not None:
        raise CommandError("--pack and --archive contradict each other; give one of them")
    archive = command.archive if command.pack is None else str(command.pack.absolute())
    options = SubmitOptions(
        program=command.program,
        script=Path(__file__).with_name("submitted.py"),
        file=command.file,
        deploy_mode=command.deploy_mode,
        archive=archive,
        driver_python=sys.executable,
        arguments=() if command.servers is None else ("--bootstrap-server", command.servers),
    )
    line = submit_line(settings, options)
    if command.pack is not None:
        packed_bytes = pack_environment(command.pack)
        print(f"packed {sys.prefix} into {command.pack}: {packed_bytes / 1e6:,.0f} MB", file=sys.stderr, flush=True)
    print(shown(line), flush=True)
    if not command.execute:
        return 0
    try:
        return subprocess.run(line, check=False).returncode
    except OSError as problem:
        raise CommandError(f"cannot run {command.program}: {problem.strerror}; name it by --spark-submit") from None
