"""Filters: all topics that a regular expression matches, or all that it does not.

Source: Apache Kafka 0.8.2.2, `kafka.consumer.TopicFilter`.
"""

from __future__ import annotations

import re

from ottla.client.errors import InvalidArgumentError
from ottla.cluster.topics import INTERNAL_TOPICS
from ottla.zk.layout import SubscriptionPattern


class TopicFilter:
    """A regular expression over whole names of topics; `,` stands for `|`, spaces and quotes around it are left out.

    Raises InvalidArgumentError for one that cannot be. See `Whitelist` and `Blacklist`.
    """

    PATTERN: SubscriptionPattern

    def __init__(self, pattern: str) -> None:
        text: object = pattern
        if not isinstance(text, str):
            raise InvalidArgumentError(f"a topic filter is the text of a regular expression, not {pattern!r}")
        self.regex = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._compiled = re.compile(self.regex)
        except re.error as error:
            raise InvalidArgumentError(f"the topic filter {pattern!r} is not a regular expression: {error}") from error

    def is_allowed(self, topic: str, *, exclude_internal_topics: bool) -> bool:
        """Whether the filter takes the topic."""
        return self._takes(topic) and not (exclude_internal_topics and topic in INTERNAL_TOPICS)

    def _takes(self, topic: str) -> bool:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """All topics whose names match as a whole."""

    PATTERN = "white_list"

    def _takes(self, topic: str) -> bool:
        return self._compiled.fullmatch(topic) is not None


class Blacklist(TopicFilter):
    """All topics whose names do not match as a whole."""

    PATTERN = "black_list"

    def _takes(self, topic: str) -> bool:
        return self._compiled.fullmatch(topic) is None


FILTERS: dict[SubscriptionPattern, type[TopicFilter]] = {each.PATTERN: each for each in (Whitelist, Blacklist)}
"""By what registrations call them."""
