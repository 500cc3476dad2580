"""Whatever lies in a folder: every command comes to its end and has an answer, never an exception."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path

import pytest

from ottla.cli.log.output import finding_lines, finding_row, remedy_line, write_table
from ottla.cli.terminal import Terminal, json_line
from ottla.env.disk import RealDisk
from ottla.inspection.batch_rows import RecordWish
from ottla.inspection.dump import DumpWish, dump
from ottla.inspection.findings import Tally
from ottla.inspection.repair import carry_out
from ottla.inspection.verify import VerifyWish, verify
from support.inspected_logs import fill

pytestmark = pytest.mark.spec("L9")

#: Files that the folder does not have, and which come with the damage.
STRANGERS = [f"{0:020}.txnindex", f"{44:020}.log.deleted", f"{3:020}.snapshot", f"{77:020}.index"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("made"))


def damaged(chance: random.Random, old: bytes) -> bytes:
    """Other bytes in place of a file's."""
    kind = chance.randrange(5)
    if kind == 0:
        return chance.randbytes(chance.randrange(3000))
    if kind == 1:
        return b""
    if kind == 2:
        return old + chance.randbytes(chance.randrange(100))
    if kind == 3:
        start, end = chance.randrange(len(old) + 1), chance.randrange(len(old) + 1)
        return old[:start] + old[end:]
    data = bytearray(old)
    for _ in range(chance.randrange(1, 30) if data else 0):
        data[chance.randrange(len(data))] = chance.choice((0, 2, 127, 128, 255, chance.randrange(256)))
    return bytes(data)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 300))])
def test_any_bytes_in_any_file(made: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    root = Path(shutil.copytree(made.parent, tmp_path / "data"))
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in chance.sample([*files, *(root / made.name / name for name in STRANGERS)], 6):
        path.write_bytes(damaged(chance, path.read_bytes() if path.exists() else b""))
    written: list[str] = []
    wish = DumpWish(records=RecordWish(records=True), everything=True)
    write_table(dump(RealDisk(), str(root), wish), Terminal(io.StringIO(), width=None, colours=False))
    written += map(json_line, dump(RealDisk(), str(root), wish))
    for finding in verify(RealDisk(), str(root), VerifyWish(), Tally()):
        written += [finding_lines(finding), remedy_line(finding), str(finding_row(finding))]
    assert written
    assert carry_out(RealDisk(), str(root), VerifyWish()).to_repair == []
