"""Run by test_simulated_windows.py: what Windows lacks is taken away, and then a broker is used by two libraries.

The rest of the standard library still believes that it is on Linux.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import warnings
from typing import Any, NoReturn

MODULES = ("fcntl", "resource", "grp", "pwd", "termios", "uvloop")
OF_OS = (
    "O_CLOEXEC", "O_NONBLOCK", "RWF_NOWAIT", "fork", "getuid", "pread", "preadv", "pwrite", "pwritev",
    "register_at_fork", "sendfile", "statvfs", "sysconf", "writev",
)  # fmt: skip
OF_SOCKET = ("MSG_MORE", "SO_REUSEPORT")


class Absent:
    """An attribute of a class that cannot be deleted, since its class is written in C."""

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        raise AttributeError("taken away")


def take_away() -> None:
    """Before anything else is imported that would notice what is there."""
    for name in MODULES:
        assert name not in sys.modules or not name.startswith("ottla"), name
        sys.modules[name] = None  # type: ignore[assignment]
    for holder, names in ((os, OF_OS), (socket, OF_SOCKET), (signal, ("SIGHUP",))):
        for name in names:
            if hasattr(holder, name):
                delattr(holder, name)
    for name in ("sendmsg", "recvmsg", "sendfile"):
        setattr(socket.socket, name, Absent())


take_away()
import asyncio  # noqa: E402


class ProactorLike(asyncio.SelectorEventLoop):
    """The default loop, which cannot watch sockets."""

    def add_reader(self, *args: Any) -> NoReturn:
        raise NotImplementedError

    add_writer = add_signal_handler = add_reader  # type: ignore[assignment]


class Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return ProactorLike()


def use(broker: Any) -> None:
    import kafka

    from ottla.client import Consumer as AsyncConsumer
    from ottla.client import Producer as AsyncProducer
    from ottla.client.sync import Consumer, Producer

    bootstrap = broker.bootstrap_servers
    values = [b"kafka-python", b"x" * 300_000, b"ottla", b"y" * 300_000, b"coroutine"]
    with kafka.KafkaProducer(bootstrap_servers=bootstrap) as sender:
        for value in values[:2]:
            sender.send("t", value).get(30)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values[2:4]:
            producer.send("t", value=value).result(120)

    async def produce() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await (await producer.send("t", value=values[4]))

    asyncio.run(produce())
    assert [record.value for record in broker.records("t")] == values

    reader = kafka.KafkaConsumer("t", bootstrap_servers=bootstrap, group_id="a", auto_offset_reset="earliest")
    assert [next(reader).value for _ in values] == values
    reader.close()
    with Consumer(bootstrap_servers=bootstrap, group_id="b", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        records = iter(consumer)
        assert [next(records).value for _ in values] == values
        consumer.commit()
    assert broker.group("b").committed == {("t", 0): len(values)}

    async def consume() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap, group_id="c", auto_offset_reset="earliest") as consumer:
            await consumer.subscribe(["t"])
            found: list[bytes | None] = []
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(1000)]
            assert found == values

    asyncio.run(consume())


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.set_event_loop_policy(Policy())
    from ottla.testing import Broker, TestBrokerError

    with Broker({"t": 1}) as broker:
        use(broker)
        broker.advance(days=8)
        assert broker.records("t") == []
    try:
        Broker(data="somewhere").start()
    except TestBrokerError as error:
        print(error)
    else:
        raise AssertionError("a directory was taken without a disk")


main()
