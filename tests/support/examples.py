"""The examples of examples/: programs with tests that use the test broker, in Python and in other languages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.java import PROJECT

EXAMPLES = PROJECT / "examples"

#: How the tests of an example in another language are run where it is built, without a look at the network.
TEST_COMMANDS: dict[str, list[str]] = {
    "java": ["mvn", "--batch-mode", "--offline", "test"],
    "go": ["go", "test", "-count=1", "-v", "./..."],
    "node": ["node", "--test"],
    "rust": ["env", "CFLAGS=-O0", "cargo", "test", "--offline"],  # as it was built
}

#: Examples in Python with tests of their own.
PYTHON_EXAMPLES = ("python", "fastapi", "dead_letters")


def built_example(language: str) -> Path:
    """The directory where `./run test` builds an example (in `OTTLA_EXAMPLES`, else `.cache/examples`)."""
    return Path(os.environ.get("OTTLA_EXAMPLES") or PROJECT / ".cache" / "examples") / language


def built_examples() -> bool:
    """Whether all of them are there."""
    return all((built_example(language) / ".made-of").exists() for language in TEST_COMMANDS)


def environment_with_ottla(directory: Path) -> dict[str, str]:
    """The environment of a program that starts `ottla` by its name; that command is made in `directory`."""
    programs = directory / "programs"
    programs.mkdir(exist_ok=True)
    command = programs / "ottla"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    command.chmod(0o755)
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
