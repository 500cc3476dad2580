"""Work of the demo in a thread of its own."""

from __future__ import annotations

import threading


class Background:
    """A thread that does `work`; what it raises is its `failure`, which the main thread raises."""

    def __init__(self, name: str) -> None:
        self.failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin the work."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether the work continues."""
        return self._thread.is_alive()

    def work(self) -> None:
        """Do it, until `_stopping` is set."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self.work()
        except Exception as problem:
            self.failure = problem
