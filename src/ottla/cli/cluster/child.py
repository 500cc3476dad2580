"""A process of `ottla cluster`: a command of ottla's that ends with the process that started it.

`python -m ottla.cli.cluster.child SECONDS serve …`: its standard input is a pipe that only the parent holds open. When
the parent has ended, however it did, the pipe ends, and SECONDS later the command is stopped as by SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Final

#: Bytes of standard input that are read, and dropped, at a time.
INPUT_BYTES: Final = 4096
#: A command that was asked to stop is ended after this time, in seconds.
STOP_TIMEOUT_S: Final = 60.0
EXIT_STUCK: Final = 1


def main() -> None:
    """Run the command line behind the first argument."""
    after_s = float(sys.argv[1])
    sys.argv[1:] = sys.argv[2:]
    threading.Thread(target=_stop_with_parent, args=(after_s,), daemon=True).start()
    from ottla.cli.entry import main as entry

    entry()


def _stop_with_parent(after_s: float) -> None:
    try:
        while os.read(sys.stdin.fileno(), INPUT_BYTES):
            pass
    except OSError:
        pass
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT_S)
    os._exit(EXIT_STUCK)


if __name__ == "__main__":
    main()
