"""The consumer settings that concern its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ottla.assign.assignor import PartitionAssignor
from ottla.assign.registry import AssignorError, Strategy, load_assignors
from ottla.client.consumer.membership import MemberSettings
from ottla.client.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class GroupConfig(MemberSettings):
    """The settings, by Kafka's names with underscores."""

    client_rack: str = ""
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    exclude_internal_topics: bool = True
    internal_leave_group_on_close: bool = True
    partition_assignment_strategy: tuple[Strategy, ...] = ("range", "cooperative-sticky")
    originals: Mapping[str, Any] = field(default_factory=dict)
    """All settings as given, for assignors with a method `configure`."""

    @classmethod
    def of(cls, config: object) -> Self:
        """Pick the group's settings from the consumer's."""
        return cls(**{each.name: getattr(config, each.name) for each in fields(cls)})

    def assignors(self) -> dict[str, PartitionAssignor]:
        """Return the assignors by name, in order of preference; those with a method `configure` get all settings.

        Raises InvalidArgumentError if one cannot be made.
        """
        try:
            made = load_assignors(self.partition_assignment_strategy)
        except AssignorError as error:
            raise InvalidArgumentError(f"partition.assignment.strategy: {error}") from error
        for assignor in made:
            configure = getattr(assignor, "configure", None)
            if callable(configure):
                configure(self.originals)
        return {assignor.name: assignor for assignor in made}
