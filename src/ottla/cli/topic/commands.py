"""The commands of `ottla topic`, which work with topics of any Kafka cluster over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.record_options import Partitions
from ottla.cli.record_reading import BEGINNING, ReadCommitted, StartAtBeginning
from ottla.cli.terminal import Terminal, write_json
from ottla.cli.topic import COMMAND

if TYPE_CHECKING:
    from ottla.ops.cluster_status import ClusterStatus
    from ottla.peer.cluster import Cluster

app = make_app("topic", "Show topics, create, change and delete them.")

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]
ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Without internal topics.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="Pass over topics that do not exist.")]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="1:2,2:3,…",
        help="Brokers of each partition, the preferred leader first: partitions by commas, brokers by colons.",
    ),
]


@cluster_command(app, "list")
def list_topics(
    shared: ClusterOptions,
    pattern: Annotated[str | None, typer.Argument(help="Only names that this regular expression matches.")] = None,
    exclude_internal: ExcludeInternal = False,
) -> None:
    """List topics: partitions, replicas, health."""
    import re

    from ottla.cli.topic.views import list_row, show_list
    from ottla.ops.cluster_status import read_cluster_status

    try:
        wanted = re.compile(pattern or ".*")
    except re.error as error:
        COMMAND.fail(f"the pattern {pattern} is not a regular expression: {error}")

    async def work(cluster: Cluster) -> int:
        state = await read_cluster_status(cluster, offsets=False)
        topics = [
            each for each in state.topics if wanted.fullmatch(each.name) and not (exclude_internal and each.is_internal)
        ]
        if shared.as_json:
            write_json(*map(list_row, topics))
        else:
            show_list(Terminal.standard_output(), topics)
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def describe(
    shared: ClusterOptions,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Names of topics [all].")] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions", "--under-replicated", help="Only partitions with a replica not in sync."
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            "--under-min-isr",
            help="Only partitions with fewer replicas in sync than min.insync.replicas.",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            "--at-min-isr",
            help="Only partitions with just as many in sync as min.insync.replicas.",
        ),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--unavailable-partitions", "--offline", help="Only partitions without a live leader.")
    ] = False,
    with_overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own.")
    ] = False,
    exclude_internal: ExcludeInternal = False,
) -> None:
    """Show topics: leaders, replicas, ISR, offsets, sizes, settings.

    Of several options that choose partitions one has to fit.

    Ends with 0, with 1 where a topic is not there, with 2 where the cluster could not be asked.
    """
    from ottla.cli.topic.views import Filters, description_row, show_description
    from ottla.ops.cluster_status import read_cluster_status

    filters = Filters(under_replicated, under_min_isr, at_min_isr, offline, with_overrides, exclude_internal)

    async def work(cluster: Cluster) -> int:
        names = list(dict.fromkeys(topics)) if topics else None
        state = await read_cluster_status(cluster, names, configs=None)
        terminal = Terminal.standard_output()
        shown = filters.apply(state.topics)
        for at, topic in enumerate(shown):
            if shared.as_json:
                write_json(description_row(topic))
            else:
                if at:
                    terminal.line()
                show_description(terminal, topic, with_partitions=not with_overrides)
        if not shown and not state.missing and not shared.as_json:
            terminal.line("no such partitions" if filters.only_partitions else "no topics")
        return await report_problems(cluster, state)

    COMMAND.run_with_cluster(shared, work)


async def report_problems(cluster: Cluster, state: ClusterStatus) -> int:
    """Report brokers that did not answer, and topics that could not be described; returns the exit code."""
    from ottla.client.admin.outcomes import topic_error

    for broker, silence in state.silent.items():
        COMMAND.report(f"broker {broker} did not say its offsets and sizes: {silence}")
    code = 0
    for name, problem in state.missing.items():
        code = COMMAND.report(str(await topic_error(cluster, problem.code, name, "cannot be described")))
    return code


@cluster_command(app)
def create(
    shared: ClusterOptions,
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Number of partitions [the broker's num.partitions].")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", help="Replicas of each [the broker's default.replication.factor]."),
    ] = None,
    assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be repeated."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Pass over topics that exist already.")
    ] = False,
    validate_only: Annotated[
        bool,
        typer.Option(
            "--validate-only", help="Have the cluster check the request, and show the placement; create nothing."
        ),
    ] = False,
) -> None:
    """Create topics, and return when they can be used.

    Ends with 0, with 1 where a topic was not created; the others are created all the same.
    """
    from ottla.cli.topic.changes import Creation, create_topics

    creation = Creation(
        names=tuple(dict.fromkeys(topics)),
        partitions=partitions,
        replication_factor=replication_factor,
        assignment=assignment,
        configs=tuple(config or ()),
        if_not_exists=if_not_exists,
        validate_only=validate_only,
    )
    COMMAND.run_with_cluster(shared, lambda cluster: create_topics(cluster, creation, as_json=shared.as_json))


@cluster_command(app)
def alter(
    shared: ClusterOptions,
    topics: Topics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new total number of partitions.", min=1)
    ] = None,
    assignment: Assignment = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting to set; may be repeated.")
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="A setting to reset to its default; may be repeated."),
    ] = None,
    if_exists: IfExists = False,
    yes: Yes = False,
) -> None:
    """Add partitions to topics, and change their settings.

    The changes are shown first.

    Partitions cannot be taken away again, and keys go to other partitions than before. Ends with 0, with 1 where
    something was not changed, with 2 where it could not be done as asked.
    """
    from ottla.cli.topic.changes import Alteration, alter_topics

    alteration = Alteration(
        names=tuple(dict.fromkeys(topics)),
        partitions=partitions,
        assignment=assignment,
        configs=tuple(config or ()),
        deleted_configs=tuple(delete_config or ()),
        if_exists=if_exists,
    )
    COMMAND.run_with_cluster(shared, lambda cluster: alter_topics(cluster, alteration, yes=yes, as_json=shared.as_json))


@cluster_command(app)
def delete(shared: ClusterOptions, topics: Topics, if_exists: IfExists = False, yes: Yes = False) -> None:
    """Delete topics with all their records.

    The topics are shown first.

    Ends with 0, with 1 where a topic was not deleted; the others are deleted all the same.
    """
    from ottla.cli.topic.changes import delete_topics

    names = tuple(dict.fromkeys(topics))
    COMMAND.run_with_cluster(
        shared, lambda cluster: delete_topics(cluster, names, if_exists=if_exists, yes=yes, as_json=shared.as_json)
    )


@cluster_command(app)
def offsets(
    shared: ClusterOptions,
    topics: Topics,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="Also the offset at a place: -10, 1h (ago), a date and time, @ and milliseconds."
        ),
    ] = None,
    partitions: Partitions = None,
) -> None:
    """Show where the logs of topics begin and end, and the offset at a time.

    OFFSETS is what lies between: as many records, where none were compacted away or belong to transactions.
    """
    from ottla.cli.topic.offsets import show_offsets

    COMMAND.run_with_cluster(
        shared, lambda cluster: show_offsets(cluster, topics, partitions, at, as_json=shared.as_json)
    )


@cluster_command(app)
def count(
    shared: ClusterOptions,
    topics: Topics,
    exact: Annotated[bool, typer.Option("--exact", help="Read the records and count them.")] = False,
    start: StartAtBeginning = BEGINNING,
    partitions: Partitions = None,
    read_committed: ReadCommitted = False,
) -> None:
    """Count the records of topics, up to the end that they have now.

    Without --exact it is the number of offsets, without reading: compaction, and transactions with their markers, leave
    fewer records.

    Examples: `ottla topic count orders --from 1h`, `ottla topic count orders --exact`.
    """
    from ottla.cli.topic.count import count_offsets, count_records
    from ottla.client.errors import ClientError

    if not exact:
        if read_committed:
            COMMAND.fail("--read-committed goes with --exact, which reads the records")
        COMMAND.run_with_cluster(
            shared, lambda cluster: count_offsets(cluster, topics, partitions, start, as_json=shared.as_json)
        )
    COMMAND.run(lambda: count_records(shared, topics, partitions, start, read_committed=read_committed), (ClientError,))


@cluster_command(app, "delete-records")
def delete_records_command(
    shared: ClusterOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    before: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="Delete what comes before: an offset, end, -10 (all but the last ten), 7d (ago), a date and time.",
        ),
    ],
    partitions: Partitions = None,
    yes: Yes = False,
) -> None:
    """Delete the older records of a topic.

    The new beginnings are shown first. Topics that are compacted only keep their records: Kafka refuses them.

    Ends with 0, with 1 where a partition was refused or nothing was confirmed.
    """
    from ottla.cli.topic.offsets import delete_records

    COMMAND.run_with_cluster(
        shared,
        lambda cluster: delete_records(cluster, topic, partitions, before, yes=yes, as_json=shared.as_json),
    )
