"""Dynamic broker settings (KIP-226): stored in the metadata, taking precedence over the broker's static ones.

The settings of a single broker precede those of all brokers, and these precede `server.properties`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.control.encoded_passwords import EncodedPasswords
from ottla.broker.control.znodes import find_broker_config, reconfiguration, reconfigured
from ottla.cluster.configs import oversized
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import warning_of
from ottla.config.dynamic import dynamic_problem
from ottla.env.randomness import Randomness
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
    """Reads and changes the dynamic settings. `changed` is called once new ones are in force, inside the change.

    `problem` says why a part of the broker cannot use settings that would be in force.
    """

    def __init__(
        self,
        zk: ZkClient,
        config: BrokerConfig,
        broker_id: int,
        changed: Callable[[], None],
        problem: Callable[[BrokerConfig], str | None] = lambda config: None,
        randomness: Randomness | None = None,
    ) -> None:
        self._zk = zk
        self._config = config
        self._broker_id = broker_id
        self._changed = changed
        self._problem = problem
        self._passwords = EncodedPasswords(config, (randomness or Randomness()).secret_bytes)
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Load the settings from the metadata; log and ignore invalid values. Raises ZnodeDataError."""
        refusal = await reconfigured(self._encode_again)
        if refusal is not None:
            log.error("passwords are not encoded again: %s", refusal.message)
        self._take_over(*await self._found())

    async def _found(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The settings of all brokers and those of this one, as the metadata has them."""
        default = await find_broker_config(self._zk, BrokerConfigZnode.DEFAULT)
        own = await find_broker_config(self._zk, str(self._broker_id))
        return default.configs, self._passwords.decoded(own.configs)

    async def _encode_again(self) -> TopicRefusal | None:
        """Encode passwords with the new secret. Raises `ZkError`, `ZnodeDataError`."""
        name = str(self._broker_id)
        present, version = await find_broker_config(self._zk, name)
        changed = self._passwords.encoded_again(present)
        if changed is not None:
            path, data = BrokerConfigZnode.path(name), BrokerConfigZnode.encode(changed)
            await self._zk.multi(await reconfiguration(self._zk, path, f"brokers/{name}", data, version))
        return None

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
            if self._take_over(*await self._found()):
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
        found, version = await find_broker_config(self._zk, name)
        present = self._passwords.decoded(found) if per_broker else found
        wanted = change(present)
        if isinstance(wanted, TopicRefusal):
            return wanted
        default, own = (config.dynamic_default, wanted) if per_broker else (wanted, config.dynamic_own)
        problem = dynamic_problem(wanted, config, per_broker=per_broker)
        if problem is None:
            trial = config.copy()
            trial.set_dynamic(default, own)
            problem = self._problem(trial)
        if problem is not None:
            return TopicRefusal(ErrorCode.INVALID_REQUEST, problem)
        kept = wanted if validate_only else self._passwords.encoded(wanted, per_broker=per_broker)
        if isinstance(kept, str):
            resource = f"ConfigResource(type=BROKER, name='{name}')"
            return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {resource}: {kept}")
        path, data = BrokerConfigZnode.path(name), BrokerConfigZnode.encode(kept)
        refusal = oversized(kept, len(data))
        if refusal is not None or validate_only:
            return refusal
        if wanted != present:
            await self._zk.multi(await reconfiguration(self._zk, path, f"brokers/{name}", data, version))
            _warn(sorted(wanted.items() - present.items()))
        if self._take_over(default, own) or any(".ssl." in each for each in wanted):  # a store may have other content
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
