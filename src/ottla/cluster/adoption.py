"""Adoption: register topics of partition directories that the coordination metadata does not know.

The directories came from another cluster, or the metadata was lost. They hold records, topic ids and leader epochs;
settings only where they are kept beside the records. A topic with unknown settings keeps all its records: retention and
compaction with the broker's defaults would delete what its owner wanted to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.cluster.image import PartitionImage, TopicImage
from ottla.cluster.topics import MOST_PARTITIONS, internal_topic_spec, is_internal_topic, topic_name_problem
from ottla.config.broker import BrokerConfig

UNLIMITED_RETENTION: Mapping[str, str] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
"""Settings that disable retention and compaction of a topic."""

SettingsOf: TypeAlias = Callable[[str, UUID | None, Iterable[int]], Mapping[str, str] | None]
"""A topic's settings as stored in the directories of these partitions; None if none of them has any."""


class AdoptablePartition(NamedTuple):
    """A partition directory: topic, topic id (None: unknown), partition, newest leader epoch (-1: none)."""

    topic: str
    topic_id: UUID | None
    partition: int
    leader_epoch: int


class Adoption(NamedTuple):
    """Topics to register, names of topics with unknown settings, directories that are not partitions."""

    topics: list[TopicImage]
    without_settings: list[str]
    others: list[AdoptablePartition]


def plan_adoption(
    found: Sequence[AdoptablePartition],
    known: Collection[str],
    *,
    broker_id: int,
    config: BrokerConfig,
    settings_of: SettingsOf,
    new_uuid: Callable[[], UUID],
) -> Adoption:
    """Plan the adoption of topics that are not `known`; the broker leads all their partitions."""
    adoption = Adoption([], [], [])
    by_topic: dict[str, list[AdoptablePartition]] = {}
    for directory in found:
        if directory.topic not in known:
            by_topic.setdefault(directory.topic, []).append(directory)
    for name, directories in sorted(by_topic.items()):
        partitions = sorted(directory.partition for directory in directories)
        if topic_name_problem(name) is not None or partitions[-1] >= MOST_PARTITIONS:
            # Such as `backup-20241121`: registered as a topic, it would get a directory for each lower number, too.
            adoption.others.extend(directories)
            continue
        topic_id = next((directory.topic_id for directory in directories if directory.topic_id is not None), None)
        configs = settings_of(name, topic_id, partitions)
        if configs is None:
            configs = _settings_of_internal(name, config)
        if configs is None:
            configs = UNLIMITED_RETENTION
            adoption.without_settings.append(name)
        # The leader epoch continues from the log's: a lower one would conflict with its history.
        epochs = {directory.partition: max(directory.leader_epoch, 0) for directory in directories}
        own = (broker_id,)
        images = tuple(PartitionImage(broker_id, epochs.get(i, 0), own, own) for i in range(partitions[-1] + 1))
        adoption.topics.append(TopicImage(name, topic_id or new_uuid(), images, configs, is_internal_topic(name)))
    return adoption


def _settings_of_internal(name: str, config: BrokerConfig) -> dict[str, str] | None:
    """The settings with which brokers create an internal topic; None if it is not internal or has none."""
    spec = internal_topic_spec(name, config, is_alone=True)
    return {setting: value for setting, value in spec.configs.items() if value is not None} or None


def stray_partitions(
    found: Sequence[AdoptablePartition], placed: Mapping[str, Sequence[Collection[int]]], broker_id: int
) -> list[AdoptablePartition]:
    """The directories of partitions that are not `placed` on this broker: replicas by topic and partition."""
    strays = []
    for directory in found:
        replicas = placed.get(directory.topic, ())
        if directory.partition >= len(replicas) or broker_id not in replicas[directory.partition]:
            strays.append(directory)
    return strays
