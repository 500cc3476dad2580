"""The commands of `ottla pipeline`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.command import CommandError
from ottla.cli.named_clusters import SERVERS
from ottla.cli.options import DEFAULT_TIMEOUT_S, Json, Timeout, make_app, or_named_cluster
from ottla.cli.pipeline import COMMAND, load, refusals

app = make_app("pipeline", "Run data pipelines on Spark, each by one TOML file.")

DEFAULT_WAIT_S = 600.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's file, TOML: docs/pipelines.md.")]
Brokers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="Brokers, host:port, of sources and topics for which the file names none.",
        envvar="OTTLA_BOOTSTRAP_SERVER",
    ),
]


class DeployMode(StrEnum):
    """The driver's place under spark-submit."""

    client = "client"
    cluster = "cluster"


def _require() -> None:
    COMMAND.require("the pipeline", ("pyspark", "pyarrow"), "pipelines")


@app.command()
@or_named_cluster
def run(
    file: File,
    servers: Brokers = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with plots at the end.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve metrics for Prometheus; 0 takes any free port."),
    ] = None,
    metrics_host: Annotated[str, typer.Option("--metrics-host", help="Address to serve them at.")] = "127.0.0.1",
    spark_log: Annotated[
        Path | None, typer.Option("--spark-log", metavar="FILE", help="Keep the log of the Spark that is started here.")
    ] = None,
    continue_from_table: Annotated[
        bool,
        typer.Option(
            "--continue-from-table",
            help="With a new checkpoint, continue from the offsets in the table's last commit.",
        ),
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Run even if another runner is there; one of the two will end.")
    ] = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Run a pipeline until it is stopped, or has ended by itself (available_now = true).

    Ctrl-C, SIGTERM and `ottla pipeline stop` end it after the batch in work; the second Ctrl-C at once.

    Ends with 0, with 1 where the query failed, with 2 where it could not be started, with 130 after Ctrl-C.
    """
    _require()

    def work() -> int:
        from ottla.cli.pipeline.running import RunOptions, run_command

        options = RunOptions(report, metrics_port, metrics_host, spark_log, continue_from_table, take_over)
        return run_command(load(file, servers, of_cluster), options)

    COMMAND.run(work)


@app.command()
@or_named_cluster
def check(
    file: File,
    servers: Brokers = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Look at all that a pipeline needs, without Spark: file, packages, clusters, topics, schema, SQL, sink.

    Ends with 0, with 1 where something is not well, with 2 where the file cannot be read.
    """
    _require()

    def work() -> int:
        from ottla.cli.pipeline.views import check_row, show_checks
        from ottla.cli.terminal import Terminal, write_json
        from ottla.spark.pipelines.running.checks import CheckResult, check_pipeline

        settings = load(file, servers, of_cluster)
        results = [CheckResult("file", True, f"{file}: {settings.name}, kind {settings.kind}")]
        with refusals(settings):
            results.extend(check_pipeline(settings, round(timeout_s * 1000), round(time.time() * 1000)))
        if as_json:
            write_json(*(check_row(each, settings.secrets) for each in results))
        else:
            show_checks(Terminal.standard_output(), results, settings.secrets)
        return 1 if any(each.passed is False for each in results) else 0

    COMMAND.run(work)


@app.command()
@or_named_cluster
def status(
    file: File,
    servers: Brokers = None,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
    as_json: Json = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Show how far a pipeline is, by its checkpoint and its group; it need not run.

    Ends with 0, with 2 where checkpoint or cluster cannot be reached.
    """
    _require()

    def work() -> int:
        from ottla.cli.command import EXIT_FAILED
        from ottla.cli.pipeline.views import show_status, status_row
        from ottla.cli.terminal import Terminal, write_json
        from ottla.spark.pipelines.running.status import read_status
        from ottla.spark.pipelines.settings.references import redacted

        settings = load(file, servers, of_cluster)
        with refusals(settings):
            found = read_status(settings, round(timeout_s * 1000))
        if as_json:
            write_json(status_row(found, settings.secrets))
        else:
            show_status(Terminal.standard_output(), found, settings.secrets, round(time.time() * 1000))
        for problem in found.problems:
            COMMAND.report(redacted(problem, settings.secrets))
        return EXIT_FAILED if found.problems else 0

    COMMAND.run(work)


@app.command()
@or_named_cluster
def stop(
    file: File,
    servers: Brokers = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return once it has ended.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for that at most.", min=0.1)
    ] = DEFAULT_WAIT_S,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """End a pipeline that runs, here or elsewhere, after the batch in work.

    Ends with 0, with 1 where none runs or it has not ended in time, with 2 where the checkpoint cannot be reached.
    """
    _require()

    def work() -> int:
        from ottla.cli.pipeline.stopping import stop_command

        settings = load(file, servers, of_cluster)
        with refusals(settings):
            return stop_command(settings, timeout_s if wait else None)

    COMMAND.run(work)


@app.command()
@or_named_cluster
def submit(
    file: File,
    servers: Brokers = None,
    deploy_mode: Annotated[
        DeployMode, typer.Option("--deploy-mode", help="Where the driver runs: here, or in the cluster.")
    ] = DeployMode.client,
    pack: Annotated[
        Path | None,
        typer.Option("--pack", metavar="FILE.tar.gz", help="Pack this Python environment, and send it along."),
    ] = None,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="FILE|URL", help="Send along one that was packed before.")
    ] = None,
    program: Annotated[str, typer.Option("--spark-submit", metavar="PROGRAM", help="The program.")] = "spark-submit",
    execute: Annotated[bool, typer.Option("--run", help="Run the line, too.")] = False,
    *,
    of_cluster: Mapping[str, str],
) -> None:
    """Write the spark-submit line of a pipeline; --run runs it.

    The line has no secrets: the driver reads them, from its own environment and files.

    Ends with 0, with 2 where the file cannot be submitted; with --run as spark-submit ends.
    """
    _require()

    def work() -> int:
        from ottla.cli.pipeline.submitting import SubmitCommand, submit_command

        settings = load(file, servers, of_cluster)
        if of_cluster.keys() > {SERVERS}:
            raise CommandError(
                "the named cluster has settings beside its address, which the line would show; put them into the "
                "file, as [source.options], with passwords by ${env:NAME} or ${file:PATH}"
            )
        options = SubmitCommand(file, servers, deploy_mode.value, pack, archive, program, execute)
        with refusals(settings):
            return submit_command(settings, options)

    COMMAND.run(work)
