"""Dynamic broker settings (KIP-226): stored in the metadata, taking precedence over the broker's static ones.

The settings of a single broker precede those of all brokers, and these precede `server.properties`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.refusals import METADATA_ERRORS, metadata_refusal
from ottla.broker.control.znodes import read_broker_config, reconfiguration
from ottla.cluster.configs import oversized
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import warning_of
from ottla.config.dynamic import dynamic_problem
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import BrokerConfigZnode

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.zk.client import ZkClient

#: Warnings logged for one change.
MOST_WARNINGS = 10
#: Most characters of a warning.
LONGEST_WARNING = 300

log = logging.getLogger("ottla.broker")


class DynamicSettings:
    """Reads and changes the dynamic settings. `changed` is called once new ones are in force, inside the change."""

    def __init__(
        self, zk: ZkClient, config: BrokerConfig, broker_id: int, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._zk = zk
        self._config = config
        self._broker_id = broker_id
        self._clock = clock
        self._changed = changed
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Load the settings from the metadata; log and ignore invalid values. Raises ZnodeDataError."""
        default = await read_broker_config(self._zk, BrokerConfigZnode.DEFAULT)
        own = await read_broker_config(self._zk, str(self._broker_id))
        for problem in self._config.set_dynamic(default, own):
            log.error("a setting given while the broker ran is not used: %s", problem)

    async def reload(self) -> None:
        """Reload the settings after another process changed them. Raises `ZkError`, `ZnodeDataError`."""
        async with self._changing:
            before = self._config.dynamic_default, self._config.dynamic_own
            await self.load()
            if (self._config.dynamic_default, self._config.dynamic_own) != before:
                self._changed()

    async def change(
        self,
        change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal],
        *,
        per_broker: bool,
        validate_only: bool,
    ) -> TopicRefusal | None:
        """Apply `change` to the settings of this broker, or of all; return the refusal if that fails."""
        async with self._changing:
            config = self._config
            present = config.dynamic_own if per_broker else config.dynamic_default
            wanted = change(present)
            if isinstance(wanted, TopicRefusal):
                return wanted
            problem = dynamic_problem(wanted, config, per_broker=per_broker)
            if problem is not None:
                return TopicRefusal(ErrorCode.INVALID_REQUEST, problem)
            name = str(self._broker_id) if per_broker else BrokerConfigZnode.DEFAULT
            path, data = BrokerConfigZnode.path(name), BrokerConfigZnode.encode(wanted)
            refusal = oversized(wanted, len(data))
            if refusal is not None:
                return refusal
            if validate_only or wanted == present:
                return None
            try:
                await self._zk.multi(
                    await reconfiguration(self._zk, path, f"brokers/{name}", data, self._clock.now_ms())
                )
            except METADATA_ERRORS as error:
                return metadata_refusal(error)
            default, own = (config.dynamic_default, wanted) if per_broker else (wanted, config.dynamic_own)
            config.set_dynamic(default, own)
            _warn(sorted(wanted.items() - present.items()))
            self._changed()
            return None


def _warn(changes: Sequence[tuple[str, str]]) -> None:
    """Warn about unknown settings, and about those without effect."""
    logged = 0
    for name, value in changes:
        warning = warning_of(name, value)
        if warning is None:
            continue
        logged += 1
        if logged > MOST_WARNINGS:
            log.warning("more settings were changed that are not known, or have no effect")
            return
        log.warning("of the settings changed while the broker runs, %s", repr(warning)[1:-1][:LONGEST_WARNING])
