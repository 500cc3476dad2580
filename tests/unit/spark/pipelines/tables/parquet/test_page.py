"""The program that docs/pipelines-tables.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines.tables.opening import open_table
from support.staged_batches import settings, stage

PAGE = Path(__file__).parents[6] / "docs" / "pipelines-tables.md"


@pytest.mark.spec("D3")
@pytest.mark.slow
def test_the_reader_of_whole_batches(tmp_path: Path) -> None:
    table = open_table(settings(str(tmp_path)), "archive")
    table.recover()
    assert table.commit(stage(table, 0, {"2013-01-01": [0, 1], "2013-01-02": [2]}))
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [program] = [each for each in shown if "committed_files" in each]
    names: dict[str, Any] = {}
    exec(compile(program, str(PAGE), "exec"), names)
    assert sorted(names["read"](str(tmp_path))["offset"].to_pylist()) == [0, 1, 2]
