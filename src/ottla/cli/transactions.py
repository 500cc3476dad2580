"""`ottla transaction`: transactional ids as their coordinators have them, and transactions that hang."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import NOT_CONFIRMED, Command, confirmed
from ottla.cli.group.offset_options import parse_duration_ms
from ottla.cli.log.output import instant
from ottla.cli.options import ClusterOptions, Yes, cluster_command, make_app
from ottla.cli.terminal import PARTITION, TOPIC, Cell, Column, Style, Terminal, duration, numbers, write_json

if TYPE_CHECKING:
    from ottla.client.admin.model import TransactionDescription, TransactionListing
    from ottla.client.model import TopicPartition
    from ottla.ops.open_transactions import OpenTransaction
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla transaction")
MAX_TIMEOUT_MINUTES = 15
"""The default of `transaction.max.timeout.ms`: a coordinator has ended each older transaction."""
_MINUTE_MS = 60_000
_FIRST_COORDINATOR_EPOCH = 0
"""In the place of the epoch of a coordinator that has not written a marker for the producer yet."""

app = make_app("transaction", "Show transactions, find those that hang in partitions, and abort them there.")


class State(StrEnum):
    """The states of a transactional id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@cluster_command(app, "list")
def list_transactions(
    shared: ClusterOptions,
    states: Annotated[
        list[State] | None,
        typer.Option("--state", help="Only ids in this state; may be repeated.", case_sensitive=False),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", min=0, help="Only of this producer id; may be repeated."),
    ] = None,
    open_for: Annotated[
        str | None,
        typer.Option(
            "--open-for", metavar="DURATION", help="Only with a transaction that began longer ago, as in PT10M."
        ),
    ] = None,
) -> None:
    """List transactional ids: coordinator, producer id, state."""

    async def work(cluster: Cluster) -> int:
        from ottla.client.admin.transactions import ANY_DURATION, TransactionAdmin

        longer_ms = ANY_DURATION if open_for is None else parse_duration_ms(open_for, "--open-for")
        found = await TransactionAdmin(cluster).list_transactions(
            states=[each.value for each in states or ()], producer_ids=producer_ids or (), duration_ms=longer_ms
        )
        if shared.as_json:
            write_json(*map(_listed_row, found))
        elif found:
            Terminal.standard_output().table(_LISTED, found, indent="")
        else:
            Terminal.standard_output().line("no transactions")
        return 0

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def describe(
    shared: ClusterOptions,
    names: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
) -> None:
    """Show transactional ids: producer, timeout, how long a transaction is open, and its partitions.

    Ends with 0, with 1 where an id is not there, with 2 where the cluster could not be asked.
    """

    async def work(cluster: Cluster) -> int:
        from ottla.ops.open_transactions import OpenTransactions

        described, errors = await OpenTransactions(cluster).describe(list(dict.fromkeys(names)))
        now_ms = cluster.clock.now_ms()
        if shared.as_json:
            write_json(*(_described_row(each, now_ms) for each in described.values()))
        elif described:
            Terminal.standard_output().table(_described_columns(now_ms), described.values(), indent="")
        return max([0, *(COMMAND.report(str(error)) for error in errors.values())])

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app, "find-hanging")
def find_hanging(
    shared: ClusterOptions,
    partitions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:PARTITION]]...", help="Topics, or single partitions of them [all]."),
    ] = None,
    max_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="Leave out producers that wrote since; the brokers' transaction.max.timeout.ms.",
        ),
    ] = MAX_TIMEOUT_MINUTES,
) -> None:
    """Find transactions that are open in a partition, and that no coordinator will end.

    Consumers of committed records do not read beyond them; `ottla transaction abort` ends one.

    Ends with 0 where there is none, with 1 where one is found or a partition could not be searched, with 2 where the
    cluster could not be asked.
    """

    async def work(cluster: Cluster) -> int:
        from ottla.ops.open_transactions import OpenTransactions

        wanted = await _partitions(cluster, partitions or ())
        search = await OpenTransactions(cluster).hanging(wanted, max_timeout * _MINUTE_MS)
        if shared.as_json:
            write_json(*map(_open_row, search.found))
        elif search.found:
            Terminal.standard_output().table(_OPEN, search.found, indent="")
        else:
            Terminal.standard_output().line("no transaction hangs")
        return max([bool(search.found), *(COMMAND.report(str(error)) for error in search.problems.values())])

    COMMAND.run_with_cluster(shared, work)


@cluster_command(app)
def abort(
    shared: ClusterOptions,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="The partition.")],
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="OFFSET", min=0, help="Where the transaction begins.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", min=0, help="In place of --start-offset: the producer.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="EPOCH", min=0, help="With --producer-id: its epoch.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(
            "--coordinator-epoch", metavar="EPOCH", min=0, help="With --producer-id: the epoch of its coordinator."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Abort a transaction that hangs, in one partition: its leader writes the marker, and no coordinator is asked.

    Ends with 0, with 1 where it was not confirmed or the transaction is not open there, with 2 where the cluster could
    not be asked.
    """
    named = (producer_id, producer_epoch, coordinator_epoch)
    if [each is None for each in named] != [start_offset is not None] * len(named):
        COMMAND.fail("give --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch")

    async def work(cluster: Cluster) -> int:
        from ottla.client.model import TopicPartition
        from ottla.ops.open_transactions import OpenTransactions

        where = TopicPartition(topic, partition)
        found = await OpenTransactions(cluster).find(where, start_offset=start_offset, producer_id=producer_id)
        if found is None:
            which = f"begins at {start_offset}" if producer_id is None else f"is of producer {producer_id}"
            return COMMAND.report(
                f"{where} has no open transaction that {which}; "
                f"`ottla broker producers {topic}:{partition}` shows those that are open"
            )
        if not shared.as_json:
            _show_abort(found)
        question = f"Abort the transaction of producer {found.producer.producer_id} in {where}?"
        is_wanted = confirmed(question, yes=yes, as_json=shared.as_json)
        if is_wanted:
            await _abort(cluster, found, producer_epoch, coordinator_epoch)
        if shared.as_json:
            write_json(_open_row(found) | {"aborted": is_wanted})
        elif is_wanted:
            sys.stdout.write(f"aborted: the transaction of producer {found.producer.producer_id} in {where}\n")
        return 0 if is_wanted else COMMAND.report(NOT_CONFIRMED)

    COMMAND.run_with_cluster(shared, work)


async def _abort(cluster: Cluster, found: OpenTransaction, epoch: int | None, coordinator_epoch: int | None) -> None:
    """Have the marker written, with the epochs that were found where none are named. Raises ClientError."""
    from ottla.client.admin.model import AbortTransactionSpec
    from ottla.client.admin.transactions import TransactionAdmin

    producer = found.producer
    if epoch is None:
        epoch = producer.producer_epoch
    if coordinator_epoch is None:
        coordinator_epoch = max(producer.coordinator_epoch, _FIRST_COORDINATOR_EPOCH)
    spec = AbortTransactionSpec(found.partition, producer.producer_id, epoch, coordinator_epoch)
    await TransactionAdmin(cluster).abort_transaction(spec)


def _show_abort(found: OpenTransaction) -> None:
    terminal = Terminal.standard_output()
    terminal.table(_OPEN, [found], indent="")
    if not found.hangs:
        terminal.line(
            f"Caution: it does not hang. Transactional id {found.transactional_id} is {found.state}, and its "
            "coordinator will end it. Aborted here, it may still commit elsewhere."
        )


async def _partitions(cluster: Cluster, names: Sequence[str]) -> list[TopicPartition]:
    """The partitions of TOPIC[:PARTITION], all of the cluster without. Raises CommandError, ClientError."""
    from ottla.cli.broker.views import parse_partitions
    from ottla.client.model import TopicPartition

    given = parse_partitions(names)
    single = [each for each in given if isinstance(each, TopicPartition)]
    if names:
        whole = [each for each in given if isinstance(each, str)]
        topics = await cluster.topics(whole) if whole else []
    else:
        topics = list((await cluster.refresh(None)).topics.values())
    found = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
    return sorted({*single, *found})


_LISTED: tuple[Column[TransactionListing], ...] = (
    Column("TRANSACTIONAL ID", lambda each: Cell(each.transactional_id, Style.NAME), may_shrink=True),
    numbers("COORDINATOR", lambda each: each.coordinator_id),
    numbers("PRODUCER", lambda each: each.producer_id),
    Column("STATE", lambda each: each.state),
)


def _listed_row(each: TransactionListing) -> Mapping[str, object]:
    return {
        "transactional_id": each.transactional_id,
        "coordinator": each.coordinator_id,
        "producer_id": each.producer_id,
        "state": each.state,
    }


def _described_columns(now_ms: int) -> tuple[Column[TransactionDescription], ...]:
    return (
        Column("TRANSACTIONAL ID", lambda each: Cell(each.transactional_id, Style.NAME), may_shrink=True),
        numbers("COORDINATOR", lambda each: each.coordinator_id),
        numbers("PRODUCER", lambda each: each.producer_id),
        numbers("EPOCH", lambda each: each.producer_epoch),
        Column("STATE", lambda each: each.state),
        numbers("TIMEOUT", lambda each: duration(each.transaction_timeout_ms)),
        numbers("OPEN FOR", lambda each: duration(_open_ms(each, now_ms))),
        Column("PARTITIONS", lambda each: " ".join(map(str, each.partitions)), may_shrink=True),
    )


def _open_ms(each: TransactionDescription, now_ms: int) -> int | None:
    """How long its transaction is open, None where none is."""
    from ottla.ops.open_transactions import OPEN_STATES

    started_ms = each.transaction_start_time_ms
    return None if started_ms is None or each.state not in OPEN_STATES else max(0, now_ms - started_ms)


def _described_row(each: TransactionDescription, now_ms: int) -> Mapping[str, object]:
    return {
        "transactional_id": each.transactional_id,
        "coordinator": each.coordinator_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "state": each.state,
        "timeout_ms": each.transaction_timeout_ms,
        "started_ms": each.transaction_start_time_ms,
        "open_ms": _open_ms(each, now_ms),
        "partitions": [partition._asdict() for partition in each.partitions],
    }


_OPEN: tuple[Column[OpenTransaction], ...] = (
    TOPIC,
    PARTITION,
    numbers("START OFFSET", lambda each: each.producer.transaction_start_offset),
    numbers("PRODUCER", lambda each: each.producer.producer_id),
    numbers("EPOCH", lambda each: each.producer.producer_epoch),
    numbers("COORDINATOR EPOCH", lambda each: _known(each.producer.coordinator_epoch)),
    Column("LAST BATCH", lambda each: instant(each.producer.last_timestamp)),
    numbers("AGE", lambda each: duration(each.age_ms)),
    numbers("LAST STABLE OFFSET", lambda each: each.last_stable_offset),
    numbers("HIGH WATERMARK", lambda each: each.high_watermark),
    Column("TRANSACTIONAL ID", lambda each: each.transactional_id, may_shrink=True),
    Column("STATE", lambda each: each.state),
)


def _open_row(each: OpenTransaction) -> dict[str, object]:
    return {
        **each.partition._asdict(),
        "start_offset": each.producer.transaction_start_offset,
        "producer_id": each.producer.producer_id,
        "producer_epoch": each.producer.producer_epoch,
        "coordinator_epoch": _known(each.producer.coordinator_epoch),
        "last_batch_ms": each.producer.last_timestamp,
        "age_ms": each.age_ms,
        "last_stable_offset": each.last_stable_offset,
        "high_watermark": each.high_watermark,
        "transactional_id": each.transactional_id,
        "state": each.state,
        "hangs": each.hangs,
    }


def _known(value: int) -> int | None:
    return None if value < 0 else value
