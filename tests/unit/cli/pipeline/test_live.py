"""The live line: in place on a terminal, a line a batch elsewhere, and without secrets."""

from __future__ import annotations

import io

from ottla.cli.pipeline.running import LiveOutput
from ottla.spark.listening.progress import BatchProgress
from ottla.spark.listening.queries import Query


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def _query(rows: int = 3) -> Query:
    batch = BatchProgress("id", "run", "totals", 1, "", 1.0, rows, 0.0, 0.0, ())
    return Query("id", "run", "totals", last=batch)


def test_a_pipe_gets_a_line_for_each_batch_with_rows() -> None:
    stream = io.StringIO()
    output = LiveOutput(stream, ("totals",), lambda: 1.0)
    output.show(_query())
    output.show(_query(rows=0))
    output.show(Query("id", "run", "totals"))
    output.say("done")
    assert stream.getvalue() == "***: batch 1, 3 rows in 1.00 s, 3 rows/s, lag not known\ndone\n"
    assert (output.history.batches, output.history.rows) == (2, 3)


def test_a_terminal_s_line_is_rewritten() -> None:
    stream = Screen()
    output = LiveOutput(stream, (), lambda: 1.0)
    output.show(_query())
    output.show(_query(rows=0))
    output.say("done")
    output.say("really")
    assert stream.getvalue().count("\n") == 3
    assert stream.getvalue().count("\r\x1b[K") == 2
    assert stream.getvalue().endswith("lag not known\ndone\nreally\n")
