"""The build steps of a Dockerfile, carried out in directories that debootstrap fills, without Docker.

`FROM python:…` is Debian with its own Python, pip and a C compiler. RUN, COPY, USER, WORKDIR and CMD are carried out by
chroot as root; what needs more (a cache, ARG, ADD) is a ValueError.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from support.processes import run_tool

BASE_TIMEOUT_S: Final = 600.0
STEP_TIMEOUT_S: Final = 600.0
RELEASE: Final = "bookworm"
PACKAGES: Final = "python3,python3-pip,python3-dev,python3-venv,gcc,libc6-dev,ca-certificates"
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
BIND: Final = re.compile(r"--mount=type=bind,from=(?P<stage>\w+),source=(?P<source>\S+),target=(?P<target>\S+)\s+")
#: They describe the image, and change nothing in it.
DESCRIPTIONS: Final = frozenset({"VOLUME", "EXPOSE", "HEALTHCHECK"})


class Step(NamedTuple):
    """An instruction of a Dockerfile, and its arguments in one line."""

    instruction: str
    arguments: str


@dataclass
class Image:
    """The root of a stage, and how a container of it starts."""

    root: Path
    user: str = "root"
    directory: str = "/"
    command: list[str] = field(default_factory=list)

    @property
    def enter(self) -> list[str]:
        """The command that runs another one in a container of this image."""
        change = f'cd "{self.directory}" && exec "$@"'
        return ["chroot", f"--userspec={self.user}", str(self.root), "sh", "-c", change, "sh"]


def steps(dockerfile: Path) -> list[Step]:
    """The instructions, in order."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found = []
    for line in whole.splitlines():
        if line.strip():
            instruction, _, arguments = line.partition(" ")
            found.append(Step(instruction.upper(), arguments.strip()))
    return found


def make_base(root: Path) -> None:
    """Fill a directory with Debian, Python and a C compiler, as root."""
    run_tool(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root)], timeout_s=BASE_TIMEOUT_S
    )
    # As in Python's own image: `python`, and pip may install beside it.
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for marker in (root / "usr/lib").glob("python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    for name in ("etc/resolv.conf", CERTIFICATES):
        if Path("/", name).exists():
            shutil.copy(Path("/", name), root / name)


def build(dockerfile: Path, context: Path, files: Sequence[str], base: Path, directory: Path) -> Image:
    """Carry out all steps; returns the image of the last stage. `files` of `context` are what COPY can see."""
    stages: dict[str, Image] = {}
    image = Image(base)
    for number, (instruction, arguments) in enumerate(steps(dockerfile)):
        if instruction == "FROM":
            name = arguments.partition(" AS ")[2] or str(number)
            image = stages[name] = Image(directory / name)
            run_tool(["cp", "-a", str(base), str(image.root)], timeout_s=STEP_TIMEOUT_S)
        elif instruction == "RUN":
            _run(image, arguments, stages)
        elif instruction == "COPY":
            _copy(image, arguments, context, files)
        elif instruction == "USER":
            image.user = arguments
        elif instruction == "WORKDIR":
            image.directory = arguments
            (image.root / arguments.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif instruction == "CMD":
            image.command = json.loads(arguments)
        elif instruction not in DESCRIPTIONS:
            raise ValueError(f"{dockerfile.name}: {instruction} is not known here")
    return image


def _run(image: Image, arguments: str, stages: dict[str, Image]) -> None:
    bound = BIND.match(arguments)
    command = arguments if bound is None else arguments[bound.end() :]
    if command.startswith("--"):
        raise ValueError(f"RUN {command}: the option is not known here")
    if bound is not None:
        shutil.copytree(stages[bound["stage"]].root / bound["source"].lstrip("/"), _inside(image, bound["target"]))
    environment = {**os.environ, "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/"}
    environment |= {"PIP_CERT": f"/{CERTIFICATES}", "PIP_ROOT_USER_ACTION": "ignore"}
    run_tool([*image.enter, "sh", "-c", command], env=environment, timeout_s=STEP_TIMEOUT_S)
    if bound is not None:
        shutil.rmtree(_inside(image, bound["target"]))


def _copy(image: Image, arguments: str, context: Path, files: Sequence[str]) -> None:
    source, target = arguments.split()
    for name in files:
        inside = Path(name).relative_to(source) if Path(name).is_relative_to(source) else None
        if inside is not None:
            path = _inside(image, target) / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(context / name, path)


def _inside(image: Image, path: str) -> Path:
    return image.root / path.lstrip("/")
