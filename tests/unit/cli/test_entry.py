from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from ottla.cli.entry import FLAG, NUMBERS, SETTING, TEXTS, plain_serve_options, plain_zookeeper_options
from ottla.cli.main import app
from ottla.cli.serve import ServeOptions
from ottla.cli.zookeeper import ZooKeeperOptions

NOTHING = ServeOptions(None, None, None, None, (), None)


def whole_way(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> ServeOptions:
    """What the whole command line makes of the arguments."""
    seen: list[ServeOptions] = []

    def run(options: ServeOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr("ottla.cli.serve.run", run)
    with pytest.raises(SystemExit):
        app(arguments)
    (options,) = seen
    return options


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--host", "0.0.0.0", "--port", "9093", "--data", "some where", "--id", "7", "--properties", "a=b.properties"],
        ["--host=::1", "--port=0", "--data=", "--id=2147483647", "--properties=x"],
        ["-c", "a=b", "--config", "c=d", "--config=e=f", "-c", "-c"],
        ["--port", "1", "--port", "2", "--data", "--port"],
        ["--data", "ä", "-c", "x=ü"],
        ["--port", "007"],
        ["--durable", "--port", "7"],
        ["--zookeeper", "a:1,b:2/kafka", "--id", "7"],
        ["--zookeeper-port", "0"],
    ],
)
def test_plain_options_are_read_as_the_whole_command_line_reads_them(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = plain_serve_options(["serve", *arguments])
    assert options is not None
    assert options == whole_way(["serve", *arguments], monkeypatch)


def test_every_option_is_known() -> None:
    command = typer.main.get_command(app)
    serve = command.commands["serve"]  # type: ignore[attr-defined]
    declared = {name for parameter in serve.params for name in parameter.opts}
    assert declared == ({*TEXTS, *NUMBERS, FLAG} | SETTING) | (declared & {"--help"})


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["demo"],
        ["--version"],
        ["serve", "--help"],
        ["serve", "--port"],
        ["serve", "--port", "x"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "9" * 11],
        ["serve", "--port", "٣"],
        ["serve", "--prot", "1"],
        ["serve", "-ca=b"],
        ["serve", "extra"],
        ["serve", "--durable="],
        ["serve", "--durable=yes"],
        ["zookeeper", "--help"],
        ["zookeeper", "extra"],
        ["zookeeper", "--durable"],
        ["zookeeper", "--port"],
        ["zookeeper", "--port", "65536"],
        ["zookeeper", "--port=-1"],
        ["zookeeper", "--tick-time-ms", "0"],
        ["zookeeper", "--id", "1"],
        ["--help", "serve"],
    ],
)
def test_anything_else_goes_the_whole_way(arguments: list[str]) -> None:
    assert plain_serve_options(arguments) is None
    assert plain_zookeeper_options(arguments) is None


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--host", "0.0.0.0", "--port", "65535", "--data", "some where", "--tick-time-ms", "1"],
        ["--host=::1", "--port=0", "--data=", "--tick-time-ms=9999999999"],
        ["--port", "1", "--port", "2", "--data", "--port"],
    ],
)
def test_so_are_those_of_zookeeper(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ZooKeeperOptions] = []
    monkeypatch.setattr("ottla.cli.zookeeper.run", lambda options: seen.append(options) or 0)
    with pytest.raises(SystemExit):
        app(["zookeeper", *arguments])
    assert plain_zookeeper_options(["zookeeper", *arguments]) == seen[0]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "zookeeper"])
def test_servers_do_without_the_library_of_the_command_line(tmp_path: Path, command: str) -> None:
    program = (
        f"import sys, ottla.cli.{command} as serve\n"
        "serve._serve = lambda *options: None\n"
        "serve.asyncio.run = lambda work: print(sorted(m for m in sys.modules if m in ('typer', 'pydantic'))) or 0\n"
        "sys.modules['uvloop'] = None\n"
        "from ottla.cli.entry import FLAG, main\n"
        "main()\n"
    )
    arguments = [sys.executable, "-c", program, command, "--data", str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_given_leaves_everything_to_the_settings() -> None:
    assert plain_serve_options(["serve"]) == NOTHING
