"""Shared parts of commands: exit codes, messages, working with a cluster, and confirming a dangerous change.

Exit codes:

0    done
1    the answer is no: damage was found, no such group, members are at work; a change was shown and not confirmed, so
     that nothing was changed; a server or job failed
2    it could not be done as asked: options contradict each other, a file or the cluster cannot be reached
130  ended by Ctrl-C

Results go to standard output. Messages go to standard error, one line each, and begin with the command's name. If the
reader of a pipe closes it early, the work is done to its end, and the exit code is that of the whole; commands that
follow something, or show the records of logs, end at once with 0.
"""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from ottla.cli.terminal import printable
from ottla.records.extras import missing_extra

if TYPE_CHECKING:
    from ottla.cli.options import ClusterOptions
    from ottla.peer.cluster import Cluster
    from ottla.peer.settings import ConnectionSettings

EXIT_REFUSED = 1
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130

NOT_CONFIRMED = "nothing was changed: --yes does it"


class CommandError(Exception):
    """The command cannot be carried out; the message names the cause and the cure. It ends with EXIT_FAILED."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or several of one group, under the name that begins its messages (`ottla group`)."""

    name: str

    def run(
        self, work: Callable[[], int], expected: tuple[type[Exception], ...] = (), *, until_closed: bool = False
    ) -> NoReturn:
        """Do `work` and end the process with the exit code that it returns.

        CommandError and the `expected` errors end it with EXIT_FAILED and their message; any other error is a bug and
        shows its traceback. With `until_closed` the work ends when the reader of its output is gone.
        """
        failures: tuple[type[Exception], ...] = (CommandError, *expected)
        if sys.stdout is None:
            self.fail("standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
            if not until_closed and is_pipe(sys.stdout):
                sys.stdout = _OutputPipe.under(sys.stdout)
        try:
            code = work()
            sys.stdout.flush()
        except failures as problem:
            _flush()
            self.fail(str(problem).replace(":\n- ", ": ").replace("\n- ", " "))  # several problems are a list
        except BrokenPipeError:
            # The reader of the pipe has seen enough.
            _discard_output()
            code = 0
        except OSError as error:
            # Errors of files that are read are among `expected`; this one is of the output. An incomplete report must
            # not be taken for a complete one.
            _discard_output()
            self.fail(f"cannot write the output: {error.strerror}")
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        sys.exit(code)

    def run_with_cluster(
        self,
        options: ClusterOptions,
        work: Callable[[Cluster], Awaitable[int]],
        expected: tuple[type[Exception], ...] = (),
        *,
        until_closed: bool = False,
    ) -> NoReturn:
        """Connect, do `work`, disconnect, and end the process as `run` does; ClientError is expected, too."""
        from ottla.client.errors import ClientError
        from ottla.peer.cluster import Cluster
        from ottla.peer.settings import ConnectionSettings

        async def whole() -> int:
            timeout_ms = round(options.timeout_s * 1000)
            settings = ConnectionSettings(
                options.servers,
                client_id=self.name.replace(" ", "-"),
                request_timeout_ms=timeout_ms,
                default_api_timeout_ms=timeout_ms,
                # The rest is for finding out what else listens on the port of a server that does not answer.
                socket_connection_setup_timeout_ms=timeout_ms * 2 // 3,
                unknown_topic_timeout_ms=0,
            )
            if options.settings:
                settings = _with_named(settings, options.settings)
            cluster = Cluster(settings)
            try:
                return await work(cluster)
            finally:
                await cluster.close()

        self.run(lambda: asyncio.run(whole()), (ClientError, *expected), until_closed=until_closed)

    def fail(self, message: str) -> NoReturn:
        """End the process with EXIT_FAILED and a message."""
        self.report(message)
        sys.exit(EXIT_FAILED)

    def require(self, what: str, modules: Sequence[str], extra: str) -> None:
        """End the process as `fail` does, naming the extra, unless these modules are installed.

        They are not imported; call it before anything that imports them, `expected` errors of `run` included.
        """
        from importlib.util import find_spec

        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            self.fail(missing_extra(what, extra, *missing))

    def report(self, message: str) -> int:
        """Write a message to standard error, in one line; returns EXIT_REFUSED."""
        print(f"{self.name}: {printable(message)}", file=sys.stderr, flush=True)
        return EXIT_REFUSED


def _with_named(settings: ConnectionSettings, named: Mapping[str, str]) -> ConnectionSettings:
    """With the settings of a named cluster that are of connections."""
    from ottla.client.configs.admin import parse_admin_config

    parsed = parse_admin_config(named, {}).client_settings
    own = {field.name for field in fields(settings)} & {each.replace(".", "_") for each in named}
    return replace(settings, tls=parsed.tls, sasl=parsed.sasl, **{each: getattr(parsed, each) for each in own})


def confirmed(question: str, *, yes: bool, as_json: bool = False) -> bool:
    """Whether to make a change that has been shown: `yes` (--yes), else the answer of the user at a terminal.

    False with --json, and where standard input or output is not a terminal: a script must say --yes.
    """
    if yes:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def write_file(path: str | os.PathLike[str], text: str, option: str = "") -> None:
    """Write a file that an option names. Raises CommandError."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"{option}{path} cannot be written: {error.strerror}") from error


class _OutputPipe(io.FileIO):
    """A pipe whose reader may end early: what is written after that is discarded."""

    @classmethod
    def under(cls, stream: io.TextIOWrapper) -> io.TextIOWrapper:
        """A text stream like this one, to the same pipe."""
        stream.flush()
        return io.TextIOWrapper(
            io.BufferedWriter(cls(stream.fileno(), "w", closefd=False)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, data: Any, /) -> int:
        """Write to the pipe, or from its end on to the null device."""
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return super().write(data)


def is_pipe(stream: TextIO | int) -> bool:
    """Whether it is a pipe, or a socket as Node gives: its end means that the other side is gone."""
    try:
        mode = os.fstat(stream if isinstance(stream, int) else stream.fileno()).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    """Redirect standard output to the null device, so that flushing the rest at exit does not fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
