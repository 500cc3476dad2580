"""How topics are created, altered and deleted: shown, confirmed, then changed one by one."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.cli.command import NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.config.checks import mistyped, own_names, risk_of_change, why_not_unset
from ottla.cli.terminal import Cell, Column, Style, Terminal, count, numbers, printable, write_json
from ottla.cli.topic import COMMAND
from ottla.cli.topic.views import DELETION
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import (
    BROKER_DEFAULT,
    ConfigOperation,
    ConfigResource,
    CreatedTopic,
    NewPartitions,
    NewTopic,
)
from ottla.client.admin.outcomes import topic_error
from ottla.client.admin.topics import TopicAdmin
from ottla.client.errors import BrokerError
from ottla.ops.cluster_status import TopicStatus, read_cluster_status
from ottla.ops.new_topics import PlacedPartition, placement_of
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

_NO_SUCH_NUMBER = "give --partitions a larger number than there are (`ottla topic describe`)"
_TOO_FEW_BROKERS = "start more brokers, or give a smaller --replication-factor"

#: What helps, where the broker's message only says what is wrong: by error code and words of that message, Kafka's own,
#: since a code has several causes. Without such words no cure is given.
CURES: Sequence[tuple[ErrorCode, str, str]] = (
    (ErrorCode.INVALID_PARTITIONS, "must be larger than 0", "give --partitions at least 1"),
    (ErrorCode.INVALID_PARTITIONS, "Topic already has", _NO_SUCH_NUMBER),
    (ErrorCode.INVALID_PARTITIONS, "higher than the requested", _NO_SUCH_NUMBER),
    (ErrorCode.INVALID_PARTITIONS, "would not be an increase", _NO_SUCH_NUMBER),
    (ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0", "give --replication-factor at least 1"),
    (ErrorCode.INVALID_REPLICATION_FACTOR, "larger than available brokers", _TOO_FEW_BROKERS),
    (ErrorCode.INVALID_REPLICATION_FACTOR, "cannot be reached because only", _TOO_FEW_BROKERS),
    (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "rack information",
        "set broker.rack for all brokers or for none and restart those, or name the brokers with --replica-assignment",
    ),
    (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Unknown broker",
        "name brokers that run, as `ottla cluster status` shows them",
    ),
    (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "assignments provided",
        "--replica-assignment names the brokers of all --partitions, those that exist included",
    ),
    (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "replication factor",
        "name as many brokers for each partition as the topic has replicas (`ottla topic describe`)",
    ),
    (ErrorCode.INVALID_CONFIG, "", "docs/settings.md has the settings of topics and what they may be"),
    (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid",
        "use at most 249 of the letters a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..' alone",
    ),
    (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "collides with",
        "choose another name: '.' and '_' are one letter in the names of metrics",
    ),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, "queued for deletion", "wait until it is deleted, then create it again"),
    (ErrorCode.TOPIC_ALREADY_EXISTS, "marked for deletion", "wait until it is deleted, and try again"),
    (ErrorCode.TOPIC_ALREADY_EXISTS, "already exists", "choose another name, or give --if-not-exists"),
    (ErrorCode.TOPIC_DELETION_DISABLED, "", "set delete.topic.enable=true for the brokers"),
)


class TopicChange(NamedTuple):
    """A change of a topic; `new` is None where a setting gets its default again."""

    topic: str
    what: str
    now: str | None
    new: str | None


_CHANGES: tuple[Column[TopicChange], ...] = (
    Column("TOPIC", lambda each: Cell(each.topic, Style.NAME), may_shrink=True),
    Column("WHAT", lambda each: each.what),
    Column("NOW", lambda each: each.now or None, may_shrink=True),
    Column("NEW", lambda each: Cell("(default)" if each.new is None else each.new, Style.BUSY)),
)


@dataclass(frozen=True, slots=True)
class Creation:
    """Topics to create, as given on the command line."""

    names: tuple[str, ...]
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: str | None = None
    configs: tuple[str, ...] = ()
    if_not_exists: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of topics, as given on the command line."""

    names: tuple[str, ...]
    partitions: int | None = None
    assignment: str | None = None
    configs: tuple[str, ...] = ()
    deleted_configs: tuple[str, ...] = ()
    if_exists: bool = False


def parse_assignment(text: str) -> dict[int, list[int]]:
    """Brokers by partition, of Kafka's `1:2,2:3`. Raises CommandError in Kafka's words."""
    assignment: dict[int, list[int]] = {}
    for partition, brokers in enumerate(text.split(",")):
        texts = [each.strip() for each in brokers.split(":")]
        if not all(each.isascii() and each.isdigit() for each in texts):
            raise CommandError(
                f"--replica-assignment {text}: expected ids of brokers, partitions by commas and brokers by colons, as "
                "in 1:2,2:3"
            )
        assignment[partition] = ids = [int(each) for each in texts]
        if len(set(ids)) < len(ids):
            twice = ",".join(str(each) for each in dict.fromkeys(ids) if ids.count(each) > 1)
            raise CommandError(
                f"--replica-assignment {text}: Partition replica lists may not contain duplicate entries: {twice}; "
                "name each broker once for a partition"
            )
        if len(ids) != len(assignment[0]):
            raise CommandError(
                f"--replica-assignment {text}: Partition {partition} has different replication factor: {ids}; name as "
                "many brokers for each partition"
            )
    return assignment


def parse_configs(settings: Sequence[str], option: str = "--config") -> dict[str, str]:
    """Settings of KEY=VALUE. Raises CommandError."""
    configs: dict[str, str] = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise CommandError(f"{option} {each}: expected key=value, as in {option} retention.ms=86400000")
        configs[name.strip()] = value.strip()
    return configs


async def create_topics(cluster: Cluster, creation: Creation, *, as_json: bool) -> int:
    """Create those of the topics that can be created; returns the exit code."""
    assignment = None if creation.assignment is None else parse_assignment(creation.assignment)
    if assignment is not None and creation.replication_factor is not None:
        raise CommandError("--replica-assignment says how many replicas there are; leave --replication-factor out")
    if assignment is not None and creation.partitions is not None:
        raise CommandError("--replica-assignment says how many partitions there are; leave --partitions out")
    configs = parse_configs(creation.configs)
    code = 0
    for name in creation.names:
        topic = NewTopic(
            name,
            BROKER_DEFAULT if creation.partitions is None else creation.partitions,
            BROKER_DEFAULT if creation.replication_factor is None else creation.replication_factor,
            replica_assignments=assignment,
            configs=configs,
        )
        passed_over = ErrorCode.TOPIC_ALREADY_EXISTS if creation.if_not_exists else None
        answers: list[CreatedTopic] = []
        done = await _done(_create(cluster, topic, creation.validate_only, answers), passed_over, configs)
        code = code if done is not None else 1
        created = bool(done) and not creation.validate_only
        placed = placement_of(cluster.metadata.nodes, topic, answers[0]) if done and creation.validate_only else []
        if as_json:
            row = {"topic": name, "created": created, "valid": done is not None}
            write_json({**row, "placement": [each.row for each in placed]} if placed else row)
        elif done:
            sys.stdout.write(f"{'valid' if creation.validate_only else 'created'}: {printable(name)}\n")
            _show_placement(placed, is_chosen=assignment is not None)
        elif done is False:
            sys.stdout.write(f"exists: {printable(name)}\n")
    return code


async def _create(cluster: Cluster, topic: NewTopic, validate_only: bool, answers: list[CreatedTopic]) -> None:
    answers += (await TopicAdmin(cluster).create_topics([topic], validate_only=validate_only)).values()


_PLACEMENT: tuple[Column[PlacedPartition], ...] = (
    numbers("PARTITION", lambda each: str(each.partition)),
    numbers("LEADER", lambda each: str(each.replicas[0])),
    Column("REPLICAS", lambda each: ",".join(map(str, each.replicas))),
    Column("RACKS", lambda each: ",".join(each.racks) if all(each.racks) else None),  # type: ignore[arg-type]
)


def _show_placement(placed: Sequence[PlacedPartition], *, is_chosen: bool) -> None:
    if not placed:
        return
    Terminal.standard_output().table(_PLACEMENT, placed)
    if not is_chosen:
        sys.stdout.write(
            "as if start and shift were 0: the controller draws both at random, so other brokers may come first\n"
        )


async def alter_topics(cluster: Cluster, alteration: Alteration, *, yes: bool, as_json: bool) -> int:
    """Show the changes, confirm them, and make those that can be made; returns the exit code."""
    configs: dict[str, str | None] = dict(parse_configs(alteration.configs))
    for name in alteration.deleted_configs:
        if name in configs:
            raise CommandError(f"--config {name}=… and --delete-config {name} contradict each other")
        configs[name] = None
    if alteration.partitions is None and not configs:
        raise CommandError("say what to change: --partitions, --config or --delete-config")
    if alteration.assignment is not None and alteration.partitions is None:
        raise CommandError("--replica-assignment is about added partitions; give --partitions, too")
    assignment = None if alteration.assignment is None else parse_assignment(alteration.assignment)
    topics, code = await _existing(cluster, alteration.names, "is not changed", if_exists=alteration.if_exists)
    refusals = [_why_not_reset(topic, alteration.deleted_configs) for topic in topics]
    if any(refusals):
        return max(COMMAND.report(each) for each in refusals if each)
    # What brokers would refuse is not asked about.
    if not yes and not all(
        [await _alter(cluster, each, alteration.partitions, assignment, configs, validate_only=True) for each in topics]
    ):
        return 1
    changes = [change for topic in topics for change in _changes(topic, alteration.partitions, configs)]
    if as_json and not yes:
        _write_changes(changes, done=False)
    elif not as_json and changes:
        Terminal.standard_output().table(_CHANGES, changes)
    if changes and not confirmed(_question(topics, alteration, changes), yes=yes, as_json=as_json):
        return COMMAND.report(NOT_CONFIRMED)
    for topic in topics:
        made = await _alter(cluster, topic, alteration.partitions, assignment, configs)
        code = code if made else 1
        if as_json:
            _write_changes(_changes(topic, alteration.partitions, configs), done=made)
        elif made:
            sys.stdout.write(f"changed: {printable(topic.name)}\n")
    return code


async def delete_topics(cluster: Cluster, names: Sequence[str], *, if_exists: bool, yes: bool, as_json: bool) -> int:
    """Show the topics, confirm, and delete those that can be deleted; returns the exit code."""
    topics, code = await _existing(cluster, names, "is not deleted", if_exists=if_exists, sizes=not yes)
    if topics and not yes:
        if as_json:
            write_json(*({"topic": topic.name, "deleted": False} for topic in topics))
        else:
            Terminal.standard_output().table(DELETION, topics)
        question = f"Delete {count(len(topics), 'topic')} with all records?"
        if not confirmed(question, yes=False, as_json=as_json):
            return COMMAND.report(NOT_CONFIRMED)
    for topic in topics:
        done = await _done(TopicAdmin(cluster).delete_topics([topic.name]))
        code = code if done else 1
        if as_json:
            write_json({"topic": topic.name, "deleted": bool(done)})
        elif done:
            sys.stdout.write(f"deleted: {printable(topic.name)}\n")
    return code


def with_cure(error: BrokerError, settings: Iterable[str] = ()) -> str:
    """The error's message, with what helps against its cause; `settings` are the names of those that were given."""
    message = str(error)
    cure = next((cure for code, phrase, cure in CURES if code == error.code and phrase in message), "")
    return f"{message}; {mistyped(message, settings)}{cure}" if cure and cure not in message else message


async def _done(
    change: Awaitable[object], passed_over: ErrorCode | None = None, settings: Iterable[str] = ()
) -> bool | None:
    """Make a change: True if made, False if the error is `passed_over`, None if it was refused, which is reported."""
    try:
        await change
    except BrokerError as error:
        if error.code == passed_over:
            return False
        COMMAND.report(with_cure(error, settings))
        return None
    return True


async def _existing(
    cluster: Cluster, names: Sequence[str], what: str, *, if_exists: bool, sizes: bool = False
) -> tuple[list[TopicStatus], int]:
    """The topics that exist, and the exit code so far: others are reported, but for missing ones with `if_exists`."""
    state = await read_cluster_status(cluster, names, configs=None, sizes=sizes)
    code = 0
    for name, problem in state.missing.items():
        if not (if_exists and problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            code = COMMAND.report(str(await topic_error(cluster, problem.code, name, what)))
    return list(state.topics), code


def _why_not_reset(topic: TopicStatus, names: Sequence[str]) -> str | None:
    """Why settings cannot be reset; None where they can, or where the settings may not be read."""
    resource = ConfigResource.topic(topic.name)
    return why_not_unset(resource, names, topic.configs, own_names(topic.configs, resource)) if topic.configs else None


def _changes(topic: TopicStatus, partitions: int | None, configs: Mapping[str, str | None]) -> list[TopicChange]:
    changes = []
    if partitions is not None:
        changes.append(TopicChange(topic.name, "partitions", str(len(topic.partitions)), str(partitions)))
    for name, value in configs.items():
        now = topic.configs.get(name)
        changes.append(TopicChange(topic.name, name, now and now.value, value))
    return changes


def _question(topics: Sequence[TopicStatus], alteration: Alteration, changes: Sequence[TopicChange]) -> str:
    reasons = dict.fromkeys(risk_of_change(each.what, each.now, each.new) for each in changes)
    warnings = [f" {reason[0].upper()}{reason[1:]}." for reason in reasons if reason]
    if alteration.partitions is not None:
        warnings.append(" Partitions cannot be taken away again, and keys go to other partitions.")
    return f"Change {count(len(topics), 'topic')}?{''.join(warnings)}"


def _write_changes(changes: Sequence[TopicChange], *, done: bool) -> None:
    write_json(*({**each._asdict(), "changed": done} for each in changes))


async def _alter(
    cluster: Cluster,
    topic: TopicStatus,
    partitions: int | None,
    assignment: Mapping[int, Sequence[int]] | None,
    configs: Mapping[str, str | None],
    *,
    validate_only: bool = False,
) -> bool:
    """Change the settings first, then add the partitions; False where either was refused."""
    if configs:
        operations = [
            ConfigOperation("delete" if value is None else "set", name, value) for name, value in configs.items()
        ]
        resource = ConfigResource.topic(topic.name)
        change = ConfigAdmin(cluster).incremental_alter_configs({resource: operations}, validate_only=validate_only)
        if not await _done(change, settings=configs):
            return False
    if partitions is not None:
        # As Kafka's tool has it, the assignment names the brokers of the partitions that exist, too.
        added = None if assignment is None else list(assignment.values())[len(topic.partitions) :]
        wanted = {topic.name: NewPartitions(partitions, added)}
        if not await _done(TopicAdmin(cluster).create_partitions(wanted, validate_only=validate_only)):
            return False
    return True
