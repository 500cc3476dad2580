"""Names of a mirror that cannot be, and the pattern that the source is read with. The rest is MirrorMaker 2's own
judgement (tests/golden/mirror).
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.mirroring.naming import MirrorNames

pytestmark = pytest.mark.spec("R6")

NAMES = MirrorNames("west", "east", "orders|clicks-[0-9]+")


@pytest.mark.parametrize(
    ("topic", "mirrored"),
    [
        ("orders", True),
        ("clicks-12", True),
        ("orders2", False),
        ("my.orders", False),
        ("clicks-", False),
        ("heartbeats", True),
        ("clicks-1\n", False),
    ],
)
def test_topics_match_as_whole_names(topic: str, mirrored: bool) -> None:
    assert NAMES.is_mirrored(topic) == mirrored
    assert (re.search(NAMES.pattern, topic) is not None) == mirrored, "the source searches"


def test_an_alias_is_no_pattern() -> None:
    names = MirrorNames("w-1", "e_1", ".*")
    names.check()
    assert not names.is_mirrored("e_1.orders")
    assert names.is_mirrored("eX1.orders")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"source_alias": ""}, "source_alias: '' cannot begin"),
        ({"target_alias": "a.b"}, "target_alias: 'a.b' cannot begin"),
        ({"target_alias": "west"}, "are both 'west'"),
        ({"topics": "(?i)orders"}, "topics: '\\(\\?i\\)orders' is not a regular expression"),
        ({"groups": "["}, "groups: '\\[' is not a regular expression"),
    ],
)
def test_names_that_cannot_be_are_refused(change: dict[str, str], complaint: str) -> None:
    with pytest.raises(PipelineSettingsError, match=complaint):
        replace(NAMES, **change).check()
