"""A log manager on any disk, with a clock moved by hand."""

from __future__ import annotations

from typing import Any

from ottla.env.clock import VirtualClock
from ottla.env.disk import Disk
from ottla.env.executor import InlineExecutor
from ottla.storage.manager import LogManager
from ottla.storage.upkeep import StorageSettings
from support.storage_logs import NOW_MS, log_config


def was_clean(manager: LogManager) -> bool:
    """Whether all log directories were closed cleanly the last time, or are new."""
    return all(folder.clean or not folder.recovery for folder in manager.directories.all)


class ManagerSetup:
    """A manager, its disk and its clock."""

    def __init__(self, disk: Disk, *folders: str, **settings: object) -> None:
        self.disk = disk
        self.folders = folders
        self.clock = VirtualClock(NOW_MS)
        self.config = log_config(**settings)

    def manager(self, **background: Any) -> LogManager:
        return LogManager(
            self.disk, self.clock, InlineExecutor(), self.folders, lambda _: self.config, StorageSettings(**background)
        )

    def opened(self, **background: Any) -> LogManager:
        manager = self.manager(**background)
        refusal = manager.open()
        assert refusal is None, refusal
        return manager

    def later(self, manager: LogManager, by_ms: int) -> None:
        self.clock.advance(by_ms)
        list(manager.upkeep.maintain(self.clock.now_ms()))

    def read(self, path: str) -> bytes:
        return self.disk.read_bytes(f"{self.folders[0]}/{path}")
