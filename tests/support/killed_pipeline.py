"""`ottla pipeline run FILE` in a process that kills itself where a named point is reached.

    python -m support.killed_pipeline FILE [--OPTION …] [POINT NTH [stop]]

The options are the command's. POINT is one of `ottla.spark.pipelines.crash_points`; at its NTH time the process is
killed -9, or stopped (SIGSTOP).
"""

from __future__ import annotations

import os
import signal
import sys

from ottla.spark.pipelines import crash_points


def main() -> None:
    """Run the command line; the points count down."""
    file, *words = sys.argv[1:]
    options, plan = [each for each in words if each.startswith("--")], [each for each in words if each[:2] != "--"]
    if plan:
        point, left = plan[0], int(plan[1])
        number = signal.SIGSTOP if plan[2:] == ["stop"] else signal.SIGKILL

        def reached(found: str) -> None:
            nonlocal left
            if found == point:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), number)

        crash_points.on_reached = reached
    sys.argv = ["ottla", "pipeline", "run", file, *options]
    from ottla.cli.entry import main as entry

    entry()


if __name__ == "__main__":
    main()
