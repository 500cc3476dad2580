"""Dynamic broker settings (KIP-226): stored in the metadata, taking precedence over the broker's static ones.

The settings of a single broker precede those of all brokers, and these precede `server.properties`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.znodes import find_broker_config, reconfiguration, reconfigured
from ottla.cluster.configs import oversized
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import warning_of
from ottla.config.dynamic import dynamic_problem
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import BrokerConfigZnode

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.zk.client import ZkClient

#: Warnings logged for one change.
MOST_WARNINGS = 10
#: Most characters of a warning.
LONGEST_WARNING = 300

log = logging.getLogger("ottla.broker")


class DynamicSettings:
    """Reads and changes the dynamic settings. `changed` is called once new ones are in force, inside the change."""

    def __init__(self, zk: ZkClient, config: BrokerConfig, broker_id: int, changed: Callable[[], None]) -> None:
        self._zk = zk
        self._config = config
        self._broker_id = broker_id
        self._changed = changed
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Load the settings from the metadata; log and ignore invalid values. Raises ZnodeDataError."""
        default = await find_broker_config(self._zk, BrokerConfigZnode.DEFAULT)
        own = await find_broker_config(self._zk, str(self._broker_id))
        self._take_over(default.configs, own.configs)

    def _take_over(self, default: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Have these settings in force; False if they were already."""
        config = self._config
        before = config.dynamic_default, config.dynamic_own
        for problem in config.set_dynamic(default, own):
            log.error("a setting given while the broker ran is not used: %s", problem)
        return (config.dynamic_default, config.dynamic_own) != before

    async def reload(self) -> None:
        """Reload the settings after another process changed them. Raises `ZkError`, `ZnodeDataError`."""
        async with self._changing:
            default = await find_broker_config(self._zk, BrokerConfigZnode.DEFAULT)
            own = await find_broker_config(self._zk, str(self._broker_id))
            if self._take_over(default.configs, own.configs):
                self._changed()

    async def change(
        self,
        change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal],
        *,
        per_broker: bool,
        validate_only: bool,
    ) -> TopicRefusal | None:
        """Apply `change` to the settings of this broker, or of all; return the refusal if that fails.

        They are in force here when this returns. The settings of all brokers may be changed by several at once: each
        change is made to what the znode has.
        """
        async with self._changing:
            return await reconfigured(lambda: self._change(change, per_broker, validate_only))

    async def _change(
        self,
        change: Callable[[Mapping[str, str]], dict[str, str] | TopicRefusal],
        per_broker: bool,
        validate_only: bool,
    ) -> TopicRefusal | None:
        """As `change`, once. Raises `DiskError`, `ZkError`, `ZnodeDataError`."""
        config = self._config
        name = str(self._broker_id) if per_broker else BrokerConfigZnode.DEFAULT
        present, version = await find_broker_config(self._zk, name)
        wanted = change(present)
        if isinstance(wanted, TopicRefusal):
            return wanted
        problem = dynamic_problem(wanted, config, per_broker=per_broker)
        if problem is not None:
            return TopicRefusal(ErrorCode.INVALID_REQUEST, problem)
        path, data = BrokerConfigZnode.path(name), BrokerConfigZnode.encode(wanted)
        refusal = oversized(wanted, len(data))
        if refusal is not None or validate_only:
            return refusal
        if wanted != present:
            await self._zk.multi(await reconfiguration(self._zk, path, f"brokers/{name}", data, version))
            _warn(sorted(wanted.items() - present.items()))
        default, own = (config.dynamic_default, wanted) if per_broker else (wanted, config.dynamic_own)
        if self._take_over(default, own):
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
