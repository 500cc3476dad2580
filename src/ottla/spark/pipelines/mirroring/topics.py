"""The target's topics made and kept like the source's: MirrorSourceConnector's part that is not about records.

A topic is made with the source's partitions and settings, and the target's default number of replicas. Later partitions
and changed settings are followed. A setting that is the default at the source is removed at the target. As with
MirrorMaker 2, settings from the source brokers' own files are not followed, nor are those of `NOT_FOLLOWED`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, TypeVar

from ottla.client.admin.model import ConfigEntry, ConfigOperation, ConfigResource, NewTopic
from ottla.client.errors import PartlyFailedError, TopicExistsError
from ottla.client.model import TopicMetadata
from ottla.peer.errors import BrokerError
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.sync import Admin
    from ottla.spark.pipelines.mirroring.naming import MirrorNames

K = TypeVar("K")
V = TypeVar("V")

NOT_FOLLOWED = frozenset(
    (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    )
)
"""Settings that MirrorMaker 2's DefaultConfigPropertyFilter excludes."""

OF_TOPIC = "DYNAMIC_TOPIC_CONFIG"
OF_BROKER_FILE = "STATIC_BROKER_CONFIG"
COMPACTED = {"cleanup.policy": "compact"}

log = logging.getLogger(__name__)

Entries = Mapping[str, ConfigEntry]


def settings_to_create(source: Entries) -> dict[str, str]:
    """The settings that a new topic at the target gets."""
    return {
        name: entry.value
        for name, entry in source.items()
        if _is_followed(entry) and not entry.is_default and entry.value is not None
    }


def settings_to_change(source: Entries, target: Entries) -> list[ConfigOperation]:
    """Return the changes that give the target's topic the source's settings."""
    changes = []
    for name, entry in source.items():
        if not _is_followed(entry):
            continue
        there = target.get(name)
        is_own = there is not None and there.source == OF_TOPIC
        if entry.is_default:
            if is_own:
                changes.append(ConfigOperation("delete", name))
        elif entry.value is not None and not (is_own and there is not None and there.value == entry.value):
            changes.append(ConfigOperation("set", name, entry.value))
    return changes


def _is_followed(entry: ConfigEntry) -> bool:
    return not (
        entry.is_read_only or entry.is_sensitive or entry.source == OF_BROKER_FILE or entry.name in NOT_FOLLOWED
    )


class TopicFollower:
    """Makes and changes the target's topics."""

    def __init__(self, source: Admin, target: Admin, names: MirrorNames) -> None:
        self._source = source
        self._target = target
        self._names = names

    def follow_all(self) -> None:
        """Follow all topics that are mirrored. What one topic's cluster refuses is logged, and tried again next time.

        Raises ClientError where a cluster does not answer.
        """
        topics = [topic for topic in self._source.list_topics() if self._names.is_mirrored(topic)]
        self.follow(topics)

    def follow(self, topics: Collection[str]) -> None:
        """Follow these topics of the source. Raises ClientError where a cluster does not answer."""
        if not topics:
            return
        source, settings = self._described(self._source, topics)
        there = set(self._target.list_topics(list_internal=True))
        old = {topic: remote for topic in source if (remote := self._names.remote_topic(topic)) in there}
        for topic in source.keys() - old.keys():
            create_topic(
                self._target,
                self._names.remote_topic(topic),
                len(source[topic].partitions),
                settings_to_create(settings[topic]),
            )
        target, target_settings = self._described(self._target, old.values())
        for topic, remote in old.items():
            if remote not in target:
                continue
            if len(target[remote].partitions) < len(source[topic].partitions):
                self._grow(remote, len(source[topic].partitions))
            changes = settings_to_change(settings[topic], target_settings[remote])
            if changes:
                self._change(remote, changes)

    def _described(self, admin: Admin, topics: Collection[str]) -> tuple[dict[str, TopicMetadata], dict[str, Entries]]:
        """Topics and their settings, of those that exist (still)."""
        described = _without_refused(lambda: admin.describe_topics(topics)) if topics else {}
        resources = [ConfigResource.topic(name) for name in described]
        settings = _without_refused(lambda: admin.describe_configs(resources)) if resources else {}
        by_name: dict[str, Entries] = {resource.name: entries for resource, entries in settings.items()}
        return {name: described[name] for name in by_name}, by_name

    def _grow(self, topic: str, partitions: int) -> None:
        try:
            self._target.create_partitions({topic: partitions})
            log.info("topic %s of the target has %d partitions now", topic, partitions)
        except BrokerError as error:
            if error.code != ErrorCode.INVALID_PARTITIONS:  # it has them already
                log.warning("topic %s of the target does not get its %d partitions: %s", topic, partitions, error)

    def _change(self, topic: str, changes: list[ConfigOperation]) -> None:
        try:
            self._target.incremental_alter_configs({ConfigResource.topic(topic): changes})
            log.info("topic %s of the target has changed settings: %s", topic, ", ".join(each.name for each in changes))
        except BrokerError as error:
            log.warning("topic %s of the target keeps its settings: %s", topic, error)


def create_topic(admin: Admin, name: str, partitions: int, settings: Mapping[str, str]) -> None:
    """Make a topic, unless it exists. A refusal of the cluster is logged. Raises ClientError without an answer."""
    try:
        admin.create_topics([NewTopic(name, partitions, configs=settings)])
    except TopicExistsError:
        return
    except BrokerError as error:
        log.warning("topic %s is not made: %s", name, error)
    else:
        log.info("topic %s was made with %d partitions", name, partitions)


def _without_refused(ask: Callable[[], dict[K, V]]) -> dict[K, V]:
    """The answers about all that the cluster does not refuse, such as topics that are gone."""
    try:
        return ask()
    except PartlyFailedError as error:
        log.warning("not all topics are followed now: %s", error)
        return error.values
    except BrokerError as error:
        log.warning("topics are not followed now: %s", error)
        return {}
