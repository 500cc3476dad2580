from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine, Mapping

import pytest

from ottla.broker.control.dynamic_settings import MOST_WARNINGS, DynamicSettings
from ottla.cluster.configs import LONGEST_TEXT
from ottla.cluster.refusal import TopicRefusal
from ottla.config.broker import BrokerConfig
from ottla.config.describe import describe_broker
from ottla.env.clock import VirtualClock
from ottla.testing.disk_faulty import FaultyDisk
from ottla.testing.disk_memory import MemoryDisk
from ottla.wire.errors import ErrorCode
from ottla.zk.client import LocalClient
from ottla.zk.layout import PERSISTENT_PATHS, BrokerConfigZnode, ConfigChangeZnode, ZnodeDataError
from ottla.zk.store import TreeStore

pytestmark = pytest.mark.spec("L4")

OWN, DEFAULT = "/config/brokers/7", "/config/brokers/<default>"


class Ground:
    """A broker's configuration over a tree on a disk that fails when told to."""

    def __init__(self, **static: str) -> None:
        self.clock = VirtualClock(1_700_000_000_000)
        self.disk = FaultyDisk(MemoryDisk())
        self.store = TreeStore.open(self.disk, "/t", self.clock)
        self.zk = LocalClient(self.store)
        self.config = BrokerConfig(dict(static), {}, {}).with_broker_id(7)
        self.changes = 0
        self.settings = DynamicSettings(self.zk, self.config, 7, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def ready(self) -> Ground:
        for path in PERSISTENT_PATHS:
            await self.zk.create(path, make_parents=True) if await self.zk.exists(path) is None else None
        return self

    async def change(self, new: Mapping[str, str], per_broker: bool = True, validate_only: bool = False) -> str | None:
        refusal = await self.settings.change(
            lambda present: {**present, **new}, per_broker=per_broker, validate_only=validate_only
        )
        return refusal.message if refusal is not None else None

    async def data(self, path: str) -> bytes | None:
        return (await self.zk.get(path))[0]

    async def told(self) -> list[str]:
        return await self.zk.children(ConfigChangeZnode.ROOT)


def run(scenario: Coroutine[object, object, None]) -> None:
    asyncio.run(scenario)


PASSWORD = "listener.name.x.ssl.keystore.password"


@pytest.mark.spec("S2", "S6")
@pytest.mark.parametrize("name", [PASSWORD, "listener.name.x.plain.sasl.jaas.config"])
def test_passwords_are_kept_encrypted_and_encoded_again_with_a_new_secret(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ground = await Ground(**{"password.encoder.secret": "first"}).ready()
        assert await ground.change({name: "hunter2", "log.retention.ms": "5"}) is None
        assert ground.config.value(name) == "hunter2"
        data = await ground.data(OWN) or b""
        assert b"hunter2" not in data
        assert b'"log.retention.ms":"5"' in data
        described = {entry.name: entry for entry in describe_broker(ground.config)}[name]
        assert (described.value, described.is_sensitive) == (None, True)
        assert await ground.change({"log.retention.ms": "6"}) is None, "the password stays"
        assert ground.config.value(name) == "hunter2"

        def another(**secrets: str) -> BrokerConfig:
            config = BrokerConfig({f"password.encoder.{name}": text for name, text in secrets.items()}, {}, {})
            return config.with_broker_id(7)

        both = another(secret="second", **{"old.secret": "first"})
        await DynamicSettings(ground.zk, both, 7, ground._changed).load()
        assert both.dynamic_own == {name: "hunter2", "log.retention.ms": "6"}
        new, old = another(secret="second"), another(secret="first")
        await DynamicSettings(ground.zk, new, 7, ground._changed).load()
        assert new.value(name) == "hunter2"
        assert not caplog.records
        await DynamicSettings(ground.zk, old, 7, ground._changed).load()
        assert old.dynamic_own == {"log.retention.ms": "6"}
        (line,) = [record.message for record in caplog.records]
        assert line == f"Dynamic password config {name} could not be decoded, ignoring."

    run(scenario())


@pytest.mark.spec("S2")
def test_without_a_secret_passwords_are_refused_as_kafka_does() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        assert await ground.change({PASSWORD: "hunter2"}, validate_only=True) is None
        assert await ground.change({PASSWORD: "hunter2"}) == (
            "Invalid config value for resource ConfigResource(type=BROKER, name='7'): "
            "Password encoder secret not configured"
        )
        assert ground.config.dynamic_own == {}
        assert await ground.settings._zk.exists(OWN) is None

    run(scenario())


@pytest.mark.spec("S2")
def test_passwords_of_all_brokers_are_refused_as_kafka_does() -> None:
    """Also those of names that are not known, which would be encoded once more with each change."""

    async def scenario() -> None:
        ground = await Ground(**{"password.encoder.secret": "first"}).ready()
        assert await ground.change({"its.ssl.key.password": "hunter2"}, per_broker=False) == (
            "Invalid config value for resource ConfigResource(type=BROKER, name='<default>'): "
            "Password config can be defined only at broker level: its.ssl.key.password"
        )
        assert await ground.settings._zk.exists(DEFAULT) is None

    run(scenario())


def test_a_change_holds_is_kept_and_reported() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        assert await ground.change({"log.retention.ms": "5"}) is None
        assert await ground.change({"log.retention.ms": "6"}, per_broker=False) is None
        assert ground.config.get_int("log.retention.ms") == 5
        assert await ground.data(OWN) == b'{"version":1,"config":{"log.retention.ms":"5"}}'
        assert await ground.data(DEFAULT) == b'{"version":1,"config":{"log.retention.ms":"6"}}'
        entities = [await ground.data(f"{ConfigChangeZnode.ROOT}/{name}") for name in await ground.told()]
        assert entities == [ConfigChangeZnode.encode(f"brokers/{name}") for name in ("7", BrokerConfigZnode.DEFAULT)]
        assert ground.changes == 2
        ground.config.set_dynamic({}, {})
        await ground.settings.load()
        assert ground.config.dynamic_own == {"log.retention.ms": "5"}
        assert ground.config.dynamic_default == {"log.retention.ms": "6"}

    run(scenario())


def test_what_changes_nothing_leaves_no_trace() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        assert await ground.change({"log.retention.ms": "5"}, validate_only=True) is None
        assert await ground.change({"log.retention.ms": "x"}) is not None
        refusal = TopicRefusal(ErrorCode.INVALID_REQUEST, "no")
        assert await ground.settings.change(lambda _: refusal, per_broker=True, validate_only=False) == refusal
        assert await ground.change({}) is None
        assert (await ground.told(), ground.changes) == ([], 0)
        assert await ground.zk.exists(OWN) is None

    run(scenario())


def test_a_disk_that_refuses_changes_nothing() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        ground.disk.fail("write", "*", errno.ENOSPC)
        assert await ground.change({"log.retention.ms": "5"}) is not None
        assert ground.config.get_int_or_none("log.retention.ms") is None
        ground.disk.heal()
        assert await ground.change({"log.retention.ms": "5"}) is None

    run(scenario())


def test_what_reported_old_changes_goes_with_newer_ones() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        for number in range(1, 4):
            assert await ground.change({"log.retention.ms": f"{number}"}) is None
        ground.clock.advance(ConfigChangeZnode.EXPIRATION_MS)
        assert await ground.change({"log.retention.ms": "4"}) is None
        assert len(await ground.told()) == 4
        ground.clock.advance(1)
        assert await ground.change({"log.retention.ms": "5"}) is None
        assert len(await ground.told()) == 5
        assert await ground.change({"log.retention.ms": "6"}) is None
        assert await ground.told() == [f"config_change_000000000{number}" for number in (3, 4, 5)]

    run(scenario())


def test_settings_are_bounded() -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        told = await ground.change({"mine": "x" * (LONGEST_TEXT + 1)})
        assert told == f"Name or value of mine is longer than {LONGEST_TEXT} bytes"
        told = await ground.change({"é" * LONGEST_TEXT: ""})
        assert told is not None
        assert "is longer than" in told
        many = {f"mine{number}": "x" * 30_000 for number in range(34)}
        assert await ground.change(many) is None
        told = await ground.change({"another": "x" * 30_000})
        assert told is not None
        assert "and 1048576 are the most" in told
        assert "another" not in ground.config.dynamic_own

    run(scenario())


def test_names_that_nobody_knows_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        with caplog.at_level(logging.WARNING):
            assert await ground.change({"log.retenton.ms": "5", "num.io.threads": "9", "a\nb": "x"}) is None
        told = [record.getMessage() for record in caplog.records]
        assert any("did you mean log.retention.ms?" in one for one in told)
        assert any("num.io.threads=9 has no effect here" in one for one in told)
        assert not any("\n" in one for one in told)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert await ground.change({f"mine{number}" * 100: "x" for number in range(99)}) is None
        assert len(caplog.records) == MOST_WARNINGS + 1
        assert max(len(record.getMessage()) for record in caplog.records) < 400

    run(scenario())


def test_settings_in_the_tree_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        await ground.zk.create(OWN, b'{"version":1,"config":{"log.retention.ms":"x","message.max.bytes":"7"}}')
        await ground.settings.load()
        assert ground.config.get_int("message.max.bytes") == 7
        assert "Invalid value x for configuration log.retention.ms" in caplog.text
        await ground.zk.set(OWN, b"nonsense")
        with pytest.raises(ZnodeDataError):
            await ground.settings.load()

    run(scenario())


class Beside(Ground):
    """Another broker, with a session of its own in the same tree; it has not heard of any change."""

    def __init__(self, first: Ground, broker_id: int) -> None:
        self.clock = first.clock
        self.zk = LocalClient(first.store, broker_id)
        self.config = BrokerConfig({}, {}, {}).with_broker_id(broker_id)
        self.changes = 0
        self.settings = DynamicSettings(self.zk, self.config, broker_id, self._changed)


def test_brokers_that_change_the_same_settings_do_not_undo_each_other() -> None:
    async def scenario() -> None:
        first = await Ground().ready()
        second = Beside(first, 8)
        assert await first.change({"log.retention.ms": "5"}, per_broker=False) is None
        # The second broker makes its change before it has read the notification of the first one's.
        assert await second.change({"message.max.bytes": "77"}, per_broker=False) is None
        both = {"log.retention.ms": "5", "message.max.bytes": "77"}
        assert second.config.dynamic_default == both
        await first.settings.reload()
        assert first.config.dynamic_default == both
        made = [
            each.change({f"mine{number}": "x"}, per_broker=False) for number in range(9) for each in (first, second)
        ]
        assert await asyncio.gather(*made) == [None] * 18
        await first.settings.reload()
        assert first.config.dynamic_default.keys() >= {*both, *(f"mine{number}" for number in range(9))}

    run(scenario())


def test_a_change_to_what_the_tree_has_already_is_taken_over() -> None:
    async def scenario() -> None:
        first = await Ground().ready()
        second = Beside(first, 8)
        assert await first.change({"log.retention.ms": "5"}, per_broker=False) is None
        told = await first.told()
        assert await second.change({"log.retention.ms": "5"}, per_broker=False) is None
        assert (await first.told(), second.changes) == (told, 1)
        assert second.config.get_long("log.retention.ms") == 5

    run(scenario())


def test_a_notification_that_another_broker_removes_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ground = await Ground().ready()
        assert await ground.change({"log.retention.ms": "5"}) is None
        ground.clock.advance(ConfigChangeZnode.EXPIRATION_MS + 1)
        assert await ground.change({"log.retention.ms": "5", "log.segment.bytes": "5000"}) is None
        multi, others = ground.zk.multi, [await ground.told()]

        async def beside(operations: object) -> object:
            for name in others.pop() if others else ():
                await ground.zk.delete(f"{ConfigChangeZnode.ROOT}/{name}")
            return await multi(operations)  # type: ignore[arg-type]

        monkeypatch.setattr(ground.zk, "multi", beside)
        assert await ground.change({"log.retention.ms": "6"}) is None
        assert ground.config.get_long("log.retention.ms") == 6

    run(scenario())
