"""Which topics and groups are mirrored, and under which names: MirrorMaker 2's DefaultReplicationPolicy,
IdentityReplicationPolicy, DefaultTopicFilter and DefaultGroupFilter of Apache Kafka 3.9, as pure functions of names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ottla.spark.pipelines.errors import PipelineSettingsError

HEARTBEATS = "heartbeats"
SEPARATOR = "."

_INTERNAL = r"(?!__|\.)(?!.*[-.]internal\Z)"
_HEARTBEATS = rf"(?:.*\.)?{HEARTBEATS}"
_EXCLUDED_TOPICS = r"(?!.*\.replica\Z)"
_EXCLUDED_GROUPS = r"(?!console-consumer-|connect-|__)"


@dataclass(frozen=True)
class MirrorNames:
    """The names of one direction, `source_alias` to `target_alias`.

    `topics` and `groups` are regular expressions that match whole names. With `unchanged` topics keep their names, but
    for heartbeats.
    """

    source_alias: str
    target_alias: str
    topics: str
    groups: str = ".*"
    unchanged: bool = False

    @cached_property
    def pattern(self) -> str:
        """A regular expression that is found in the names of all topics to mirror, and in no others.

        Internal topics are left out, and those that came from the target by way of their names.
        """
        target = re.escape(self.target_alias)
        end = rf".*{HEARTBEATS}\Z" if self.unchanged else ".*[^.]"
        cycle = rf"(?!(?:.*\.)?{target}\.{end})"
        return rf"\A{_INTERNAL}{cycle}(?:{_HEARTBEATS}|{_EXCLUDED_TOPICS}(?:{self.topics}))\Z"

    def check(self) -> None:
        """Raises PipelineSettingsError for invalid or equal aliases and invalid regular expressions."""
        for name, alias in (("source_alias", self.source_alias), ("target_alias", self.target_alias)):
            if not re.fullmatch(r"[A-Za-z0-9_-]+", alias):
                raise PipelineSettingsError(
                    f"{name}: {alias!r} cannot begin a topic's name; use letters, digits, - and _ only"
                )
        if self.source_alias == self.target_alias:
            raise PipelineSettingsError(
                f"source_alias and target_alias are both {self.source_alias!r}; give each cluster an alias of its own"
            )
        for name, setting, pattern in (
            ("topics", self.topics, self.pattern),
            ("groups", self.groups, self._group_pattern),
        ):
            try:
                re.compile(pattern)
            except re.error as problem:
                raise PipelineSettingsError(
                    f"{name}: {setting!r} is not a regular expression ({problem.msg})"
                ) from None

    def is_mirrored(self, topic: str) -> bool:
        """Whether a topic of the source is mirrored: MirrorSourceConnector.shouldReplicateTopic."""
        return self._topics.match(topic) is not None

    def is_translated(self, group: str) -> bool:
        """Whether a group's offsets are translated."""
        return self._groups.match(group) is not None

    def remote_topic(self, topic: str) -> str:
        """The name at the target."""
        if self.unchanged and not topic.endswith(HEARTBEATS):
            return topic
        return f"{self.source_alias}{SEPARATOR}{topic}"

    @property
    def carries_origin(self) -> bool:
        """Whether records say in a header where they were first produced, since names do not."""
        return self.unchanged

    @property
    def offset_syncs_topic(self) -> str:
        """The topic of offset syncs; it is on the source."""
        return f"mm2-offset-syncs.{self.target_alias}.internal"

    @property
    def checkpoints_topic(self) -> str:
        """The topic of checkpoints; it is on the target."""
        return f"{self.source_alias}.checkpoints.internal"

    @cached_property
    def _topics(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @property
    def _group_pattern(self) -> str:
        return rf"\A{_EXCLUDED_GROUPS}(?:{self.groups})\Z"

    @cached_property
    def _groups(self) -> re.Pattern[str]:
        return re.compile(self._group_pattern)
