"""`ottla test-broker`: the test broker as a process, for the tests of programs in other languages.

It prints its address as its first line, and ends with the process that started it: when its standard input, a pipe,
is closed, or when its parent has ended. With a command it runs that beside the broker and ends with its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla import __version__
from ottla.cli.command import EXIT_FAILED, EXIT_REFUSED, Command, is_pipe
from ottla.cli.serve import prepare_process

if TYPE_CHECKING:
    from types import FrameType

    from ottla.testing.embedded import EmbeddedBroker

COMMAND = Command("ottla test-broker")

BOOTSTRAP_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVER"
#: A named cluster, which commands refuse beside an address.
CLUSTER_VARIABLE: Final = "OTTLA_CLUSTER"
#: How often it looks whether its parent has ended, in seconds.
PARENT_CHECK_S: Final = 0.5
#: Bytes of standard input that are read, and dropped, at a time.
INPUT_BYTES: Final = 4096
#: A command that cannot be found, and the status of one that a signal ended, as shells have them.
EXIT_NOT_FOUND: Final = 127
EXIT_BY_SIGNAL: Final = 128


@dataclass(frozen=True, slots=True)
class TestBrokerOptions:
    """The command's options, and the command to run beside the broker."""

    __test__ = False  # no class of tests, though its name begins so

    host: str = "127.0.0.1"
    port: int = 0
    topics: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    data: str | None = None
    json: bool = False
    command: tuple[str, ...] = ()


def run(options: TestBrokerOptions) -> int:
    """Run the broker; returns the exit code."""
    from ottla.testing.embedded import EmbeddedBroker
    from ottla.testing.errors import TestBrokerError

    prepare_process()
    parent = os.getppid()
    ended = threading.Event()
    if not options.command:
        _set_on_signals(ended)
    try:
        topics, settings = parse_topics(options.topics), parse_settings(options.settings)
        broker = EmbeddedBroker(topics, settings=settings, data=options.data, host=options.host, port=options.port)
        broker.start()
    except TestBrokerError as problem:
        for line in str(problem).splitlines():
            COMMAND.report(line)
        return EXIT_FAILED
    try:
        if options.command:
            return _run_beside(broker, options.command)
        print(_ready_line(broker, options), flush=True)
        if is_pipe(sys.stdin):
            threading.Thread(target=_set_at_end_of_input, args=(sys.stdin.fileno(), ended), daemon=True).start()
        while not ended.wait(PARENT_CHECK_S) and not parent_has_ended(parent):
            pass
        return 0
    finally:
        broker.stop()


def parse_topics(arguments: Sequence[str]) -> dict[str, int]:
    """Topics with their numbers of partitions, of NAME and NAME:PARTITIONS. Raises `TestBrokerError`."""
    from ottla.testing.errors import TestBrokerError

    topics: dict[str, int] = {}
    for each in arguments:
        name, colon, partitions = each.partition(":")
        if colon and not (partitions.isascii() and partitions.isdigit() and int(partitions) > 0):
            raise TestBrokerError(f"--topic {each}: expected NAME or NAME:PARTITIONS, as in --topic orders:3")
        topics[name] = int(partitions) if colon else 1
    return topics


def parse_settings(arguments: Sequence[str]) -> dict[str, str]:
    """Settings of KEY=VALUE. Raises `TestBrokerError`."""
    from ottla.testing.declarations import LOG_DIRS
    from ottla.testing.errors import TestBrokerError

    settings: dict[str, str] = {}
    for each in arguments:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise TestBrokerError(f"-c {each}: expected key=value, as in -c message.max.bytes=1000000")
        if name.strip() in LOG_DIRS:
            raise TestBrokerError(f"-c {each}: give the directory as --data {value.strip() or 'DIRECTORY'}")
        settings[name.strip()] = value.strip()
    return settings


def parent_has_ended(parent: int) -> bool:
    """Whether the process that started this one, `parent`, has ended; never for one whose parent is init.

    On Windows the parent's id stays, so there only the end of standard input counts.
    """
    return parent > 1 and os.getppid() != parent


def _ready_line(broker: EmbeddedBroker, options: TestBrokerOptions) -> str:
    if not options.json:
        return broker.bootstrap_servers
    shown: Mapping[str, object] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "port": broker.port,
        "pid": os.getpid(),
        "topics": broker.topics(),
        "version": __version__,
    }
    return json.dumps(shown)


def _set_on_signals(ended: threading.Event) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        ended.set()

    for name in ("SIGTERM", "SIGINT", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)


def _set_at_end_of_input(descriptor: int, ended: threading.Event) -> None:
    try:
        while os.read(descriptor, INPUT_BYTES):
            pass
    except OSError:
        pass
    ended.set()


def _run_beside(broker: EmbeddedBroker, command: Sequence[str]) -> int:
    """Run a command with the broker's address in its environment; returns its exit code.

    SIGTERM is passed on to it. Ctrl-C reaches it from the terminal; the broker outlives it.
    """
    environment = {**os.environ, BOOTSTRAP_VARIABLE: broker.bootstrap_servers}
    environment.pop(CLUSTER_VARIABLE, None)
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        COMMAND.report(f"cannot run {command[0]}: {error.strerror}")
        return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_REFUSED
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    signal.signal(signal.SIGINT, lambda number, frame: None)
    code = process.wait()
    return code if code >= 0 else EXIT_BY_SIGNAL - code
