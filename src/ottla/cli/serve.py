"""`ottla serve`: settings together, one broker up, signals to stop it.

Also `ottla container`: a broker in a container, with the variables of Apache Kafka's image as its settings.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla import __version__
from ottla.cli.command import EXIT_FAILED, EXIT_REFUSED, Command

if TYPE_CHECKING:
    from ottla.broker.server import Broker
    from ottla.config.broker import BrokerConfig

T = TypeVar("T")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092
DEFAULT_DATA = "ottla-data"
FLUSH_ON_ACK = "ottla.log.flush.on.ack"
ZOOKEEPER_PORT = "ottla.zookeeper.port"

#: How long a thread that computes (conversion, compaction) may keep the event loop from running, seconds. Python's own
#: 5 ms would be the loop's delay whenever one does.
THREAD_SWITCH_S = 0.0005

NOT_COMPILED = (
    "record checks: the code for single records is not compiled here, so batches are checked as a whole only, and "
    "compaction is slower; to compile it, install ottla from source again where a C compiler and Python's C headers "
    "are (docs/record-checks.md)"
)

COMMAND = Command("ottla serve")
CONTAINER = Command("ottla container")

#: What Testcontainers' modules for Kafka wait for in the log: Java and Go; Python with ZooKeeper; Python with KRaft.
#: Each stands in one line, since Java's module counts lines.
AWAITED: Final = (
    "Testcontainers waits for: Transitioning from RECOVERY to RUNNING, "
    "[KafkaServer id={broker_id}] started, Kafka Server started"
)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The command's options as given; None where an option was left out."""

    host: str | None = None
    port: int | None = None
    data: str | None = None
    broker_id: int | None = None
    settings: tuple[str, ...] = ()
    properties_file: str | None = None
    durable: bool = False
    zookeeper: str | None = None
    zookeeper_port: int | None = None


class UsageProblem(Exception):
    """The options contradict each other or cannot be read; the message says which and what to do."""


def run(options: ServeOptions) -> int:
    """Run the broker; returns the exit code."""
    started = process_start_s()
    prepare_process()
    try:
        config = read_config(options)
    except UsageProblem as problem:
        for line in str(problem).splitlines():
            COMMAND.report(line)
        return EXIT_FAILED
    for warning in config.warnings:
        COMMAND.report(f"warning: {warning}")
    return run_in_loop(serve_config(config, started, COMMAND))


def run_container() -> int:
    """Run the broker of `ottla container`; returns the exit code."""
    from ottla.config.broker import ConfigRefusal, parse_broker_config
    from ottla.config.container import ContainerRefusal, container_settings

    started_s = process_start_s()
    prepare_process()
    made = container_settings(os.environ)
    if isinstance(made, ContainerRefusal):
        CONTAINER.report(made.message)
        return EXIT_FAILED
    config = parse_broker_config(made.settings)
    if isinstance(config, ConfigRefusal):
        for problem in config.problems:
            CONTAINER.report(problem)
        return EXIT_FAILED
    for note in [*made.notes, *(f"warning: {warning}" for warning in config.warnings)]:
        CONTAINER.report(note)
    return run_in_loop(serve_config(config, started_s, CONTAINER, AWAITED))


def prepare_process() -> None:
    """Prepare a process to serve: many open files, threads that give way, a log on standard error."""
    from ottla.env.platforms import raise_open_files_limit

    raise_open_files_limit()
    sys.setswitchinterval(THREAD_SWITCH_S)
    logging.basicConfig(
        level=os.environ.get("OTTLA_LOG_LEVEL", "WARNING").upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if "OTTLA_LOG_LEVEL" not in os.environ:
        logging.getLogger("ottla.authorizer").setLevel(logging.INFO)  # denials


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Have `stop` called when the process is asked to end: SIGTERM, Ctrl-C, SIGHUP.

    As in the JVM, SIGHUP is left alone where it is ignored already, which is what `nohup` does.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        loop.add_signal_handler(hangup, stop)


def run_in_loop(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of a server's work, run in the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def read_config(options: ServeOptions) -> BrokerConfig:
    """The settings of file, `-c` and flags together, later ones winning. Raises `UsageProblem`."""
    from ottla.config.broker import ConfigRefusal, parse_broker_config
    from ottla.config.properties import PropertiesError, parse_properties

    from_file: dict[str, str] = {}
    if options.properties_file is not None:
        try:
            with open(options.properties_file, "rb") as file:
                from_file = parse_properties(_text(file.read(), options.properties_file))
        except OSError as error:
            raise UsageProblem(f"cannot read {options.properties_file}: {error.strerror}") from error
        except PropertiesError as error:
            raise UsageProblem(f"cannot read {options.properties_file}: {error}") from error
    settings = _settings(options)
    parsed = parse_broker_config(
        {**_defaults(from_file | settings), **from_file, **settings}, strict=frozenset(settings)
    )
    if isinstance(parsed, ConfigRefusal):
        raise UsageProblem("\n".join(parsed.problems))
    return parsed


def _text(data: bytes, path: str) -> str:
    """A properties file as UTF-8; where it is not, as Latin-1, in which Java reads them. Raises `UsageProblem`."""
    if b"\0" in data:
        raise UsageProblem(f"cannot read {path}: it is not a text file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _settings(options: ServeOptions) -> dict[str, str]:
    """Return the command line's settings, in Kafka's names."""
    settings: dict[str, str] = {}
    for setting in options.settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(
                f"-c {setting}: expected key=value, as in -c num.partitions=4; a file of them goes with --properties"
            )
        settings[name.strip()] = value.strip()
    if options.host is not None or options.port is not None:
        if "listeners" in settings:
            raise UsageProblem("--host/--port and -c listeners=… both say where to listen; give one of them")
        host = options.host if options.host is not None else DEFAULT_HOST
        port = options.port if options.port is not None else DEFAULT_PORT
        if not 0 <= port <= 65535:
            raise UsageProblem(f"--port {port}: a port is a number from 0 to 65535")
        settings["listeners"] = f"PLAINTEXT://{_bracketed(host)}:{port}"
    if options.data is not None:
        for name in ("log.dirs", "log.dir"):
            if name in settings:
                raise UsageProblem(f"--data and -c {name}=… both say where the data is; give one of them")
        settings["log.dirs"] = options.data
    if options.durable and settings.setdefault(FLUSH_ON_ACK, "true").lower() != "true":
        raise UsageProblem(f"--durable and -c {FLUSH_ON_ACK}={settings[FLUSH_ON_ACK]} contradict each other")
    if options.zookeeper is not None:
        if settings.get("zookeeper.connect", options.zookeeper) != options.zookeeper:
            raise UsageProblem("--zookeeper and -c zookeeper.connect=… both say where ZooKeeper is; give one of them")
        settings["zookeeper.connect"] = options.zookeeper
    if options.zookeeper_port is not None:
        port_text = str(options.zookeeper_port)
        if settings.setdefault(ZOOKEEPER_PORT, port_text) != port_text:
            raise UsageProblem(f"--zookeeper-port {port_text} and -c {ZOOKEEPER_PORT}=… contradict each other")
    if options.broker_id is not None:
        if settings.get("broker.id", str(options.broker_id)) != str(options.broker_id):
            raise UsageProblem(
                f"--id {options.broker_id} and -c broker.id={settings['broker.id']} contradict each other"
            )
        settings["broker.id"] = str(options.broker_id)
    return settings


def _defaults(settings: dict[str, str]) -> dict[str, str]:
    """Return defaults that are local and in sight; Apache Kafka listens on every interface and keeps data in /tmp."""
    defaults: dict[str, str] = {}
    if "listeners" not in settings:
        defaults["listeners"] = f"PLAINTEXT://{DEFAULT_HOST}:{DEFAULT_PORT}"
    if "log.dirs" not in settings and "log.dir" not in settings:
        defaults["log.dirs"] = DEFAULT_DATA
    return defaults


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def process_start_s() -> float:
    """When this process began, on the monotonic clock, so that "ready in" counts the interpreter and the imports."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return ticks / os.sysconf("SC_CLK_TCK") - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic()


def durability(config: BrokerConfig) -> str:
    """Describe for the user what an acknowledgement means with these settings."""
    from ottla.config.rules import flush_ms
    from ottla.config.topic import LONGEST

    if config.get_boolean(FLUSH_ON_ACK):
        return "acknowledged records are on the disk (fsync) and survive a loss of power; acks=0 waits for nothing"
    seconds = config.get_long("ottla.flush.interval.ms") / 1000
    text = f"acknowledged records survive the end of the process; they are forced to disk every {seconds:g} s"
    messages = config.get_long("log.flush.interval.messages")
    if messages == 1:
        return "acknowledged records are on the disk (fsync), because log.flush.interval.messages=1"
    if messages < LONGEST:
        text += f" and with every {messages} records"
    interval_ms = flush_ms(config)
    if interval_ms < LONGEST:
        text += f" and {interval_ms / 1000:g} s after they came"
    return text + ". A loss of power may take what came since (--durable waits for the disk)"


def _coordination(broker: Broker) -> str:
    address = broker.config.get_string_or_none("zookeeper.connect")
    if address:
        return f", coordination metadata in ZooKeeper at {address}"
    if broker.zookeeper_port is not None:
        return f", ZooKeeper clients on {_bracketed(broker.listening[0].host)}:{broker.zookeeper_port}"
    return ""


def records_are_checked() -> bool:
    """Whether the records of uncompressed batches are checked when they are appended."""
    from ottla.records import walk

    return walk.COMPILED


def _first_lines(broker: Broker, started_s: float, also_shown: str) -> Iterator[str]:
    """Yield the lines of a ready broker."""
    where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in broker.listening)
    yield (
        f"ottla {__version__} ready in {time.monotonic() - started_s:.2f} s: broker {broker.id} listening on {where}, "
        f"data in {', '.join(broker.log_dirs)}{_coordination(broker)}"
    )
    yield f"durability: {durability(broker.config)}"
    if not records_are_checked():
        yield NOT_COMPILED
    if also_shown:
        yield also_shown.format(broker_id=broker.id)


class Stopped(Exception):
    """A process was asked to stop before its work was done."""


async def until_stop(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """The work's result, or what it raises; Stopped if `stop` is set first, which ends the work."""
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        raise Stopped
    return task.result()


async def _start(broker: Broker, stop: asyncio.Event) -> str | None:
    """Start the broker; returns why it cannot, or that it was stopped before it had started."""
    try:
        refusal = await until_stop(broker.start(), stop)
    except Stopped:
        return "stopped before it was ready"
    return refusal.message if refusal is not None else None


async def serve_config(config: BrokerConfig, started_s: float, command: Command, also_shown: str = "") -> int:
    """Run a broker until a signal stops it; returns the exit code.

    Args:
        config: its settings.
        started_s: when the process began, on the monotonic clock.
        command: the command that reports errors.
        also_shown: a line to print when it is ready, with `{broker_id}` in it.
    """
    from ottla.broker.server import Broker
    from ottla.env.collector import tune_collector

    stop = asyncio.Event()
    on_stop_signal(stop.set)
    broker = Broker(config)
    fatal: list[str] = []

    def failed(message: str) -> None:
        fatal.append(message)
        stop.set()

    broker.on_fatal = failed
    refusal = await _start(broker, stop)
    if refusal is not None:
        return command.report(refusal)
    # In one write: who waits for the first line has the others, too.
    # One write with its line end: unbuffered, print() would write that apart, and another's output could come between.
    print("".join(f"{line}\n" for line in _first_lines(broker, started_s, also_shown)), end="", flush=True)
    tune_collector()
    await stop.wait()
    await broker.stop(lambda size: print(f"stopping: forcing {size / 1e6:.1f} MB to disk", flush=True))
    for message in fatal:
        command.report(message)
    print("stopped", flush=True)
    return EXIT_REFUSED if fatal else 0
