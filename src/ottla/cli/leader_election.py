"""`ottla leader-election`: preferred or unclean leaders are elected, as Kafka's kafka-leader-election does it."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli.command import NOT_CONFIRMED, Command, CommandError, confirmed
from ottla.cli.options import ClusterOptions, Yes
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, numbers, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.client.model import TopicPartition
    from ottla.peer.cluster import Cluster

COMMAND = Command("ottla leader-election")
ELECTED, NOT_NEEDED = "elected", "not needed"
_STYLES = {ELECTED: Style.GOOD, NOT_NEEDED: Style.FAINT}
_RESULTS: tuple[Column[tuple[TopicPartition, str]], ...] = (
    Column("TOPIC", lambda each: each[0].topic, may_shrink=True),
    numbers("PARTITION", lambda each: each[0].partition),
    Column("RESULT", lambda each: Cell(each[1], _STYLES.get(each[1], Style.BAD))),
)
NOTHING_PREFERRED = "all preferred replicas lead, or there is nothing to elect"
NOTHING_UNCLEAN = "all partitions have a leader: there is nothing to elect"


class ElectionType(StrEnum):
    """Which replicas may lead."""

    preferred = "preferred"
    unclean = "unclean"


def leader_election(
    shared: ClusterOptions,
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-PARTITION]...", help="Partitions, as in orders-0.")
    ] = None,
    election_type: Annotated[
        ElectionType,
        typer.Option(help="preferred: the first replica, where it is in sync; unclean: any, where there is no leader."),
    ] = ElectionType.preferred,
    topic: Annotated[str | None, typer.Option(help="A topic, with --partition.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="A partition of --topic.")] = None,
    path: Annotated[
        str | None, typer.Option("--path-to-json-file", metavar="FILE", help="JSON of kafka-leader-election.")
    ] = None,
    all_partitions: Annotated[bool, typer.Option("--all-topic-partitions", "--all", help="All partitions.")] = False,
    yes: Yes = False,
) -> None:
    """Elect leaders: give partitions back to their preferred replicas, or elect replicas that are not in sync.

    An unclean election loses the records that the new leader lacks; it is held only where a partition has no leader,
    and asks for confirmation.

    Ends with 0, with 1 where a partition that needs another leader did not get one.
    """
    from ottla.cli.reassign.changes import read_file
    from ottla.ops.moves.files import parse_partitions

    async def work(cluster: Cluster) -> int:
        named = [_partition(each) for each in partitions or ()]
        if (topic is None) != (partition is None):
            raise CommandError("give --topic and --partition together, or the partition as TOPIC-PARTITION")
        if topic is not None and partition is not None:
            named.append(_named(topic, partition))
        if path is not None:
            named.extend(read_file(path, parse_partitions))
        if named and all_partitions:
            raise CommandError("name partitions or give --all-topic-partitions, not both")
        if not named and not all_partitions:
            raise CommandError("name partitions, in a file with --path-to-json-file, or give --all-topic-partitions")
        what = "all partitions without a leader" if all_partitions else count(len(named), "partition")
        question = f"Elect leaders for {what} that may lack records, which are lost then?"
        if election_type is ElectionType.unclean and not confirmed(question, yes=yes, as_json=shared.as_json):
            return COMMAND.report(NOT_CONFIRMED)
        return await _elect(cluster, election_type, None if all_partitions else named, as_json=shared.as_json)

    COMMAND.run_with_cluster(shared, work)


def _partition(name: str) -> TopicPartition:
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdecimal():
        raise CommandError(f"{name}: expected a topic and the number of a partition, as in orders-0")
    return _named(topic, int(number))


def _named(topic: str, partition: int) -> TopicPartition:
    from ottla.client.model import TopicPartition

    return TopicPartition(topic, partition)


async def _elect(
    cluster: Cluster, election_type: ElectionType, named: list[TopicPartition] | None, *, as_json: bool
) -> int:
    from ottla.client.admin.reassignments import ReassignmentAdmin
    from ottla.client.errors import BrokerError, ClientError, PartlyFailedError
    from ottla.wire.errors import ErrorCode

    elected: Mapping[TopicPartition, bool] = {}
    errors: Mapping[TopicPartition, ClientError] = {}
    try:
        elected = await ReassignmentAdmin(cluster).elect_leaders(election_type.value, named)
    except PartlyFailedError as error:
        elected, errors = error.values, error.errors
    except BrokerError as error:
        if error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise
        if named is None or len(named) != 1:
            return COMMAND.report(str(error))
        errors = {named[0]: error}
    nothing = NOTHING_PREFERRED if election_type is ElectionType.preferred else NOTHING_UNCLEAN
    _show(elected, errors, nothing, as_json=as_json)
    for _, problem in sorted(errors.items()):
        COMMAND.report(str(problem))
    return 1 if errors else 0


def _show(
    elected: Mapping[TopicPartition, bool], errors: Mapping[TopicPartition, object], nothing: str, *, as_json: bool
) -> None:
    results = {key: ELECTED if is_new else NOT_NEEDED for key, is_new in elected.items()}
    results.update(dict.fromkeys(errors, "failed"))
    if as_json:
        write_json(*({**key._asdict(), "result": result} for key, result in sorted(results.items())))
    elif results:
        Terminal.standard_output().table(_RESULTS, sorted(results.items()))
    else:
        sys.stdout.write(f"{nothing}\n")
