"""Evidence read over the wire."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.client.model import TopicPartition
from ottla.groups.classic.membership import GroupMemberState
from ottla.groups.evidence import EVIDENCE_TOPIC, Cause, RebalanceRecorder
from ottla.ops import rebalances
from ottla.ops.rebalances import CAUSE_WORDS, RebalanceLog, cause_in_words, parse_rebalance
from ottla.records.record import Record, encode_batch

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rebalances.md"
PARTITION = TopicPartition(EVIDENCE_TOPIC, 0)


def evidence(group="g", generation=1):
    member = GroupMemberState("anna-1", None, "anna", "/10.0.0.7", 1, 1, (), b"")
    made = RebalanceRecorder(group, "consumer", generation - 1, 1000 + generation, {})
    made.outcome, made.stable_at_ms = "stable", 1200
    return made.close(generation, "range", "anna-1", [member], 1500)


def write(fake, *records):
    fake.leaders[PARTITION] = 0
    for record in records:
        key = record.group_id.encode() if not isinstance(record, bytes) else b"g"
        value = record.encode() if not isinstance(record, bytes) else record
        fake.logs[PARTITION].append(encode_batch([Record(0, 1000, key, value)]))


def generations(found):
    return [each.value["generation"] for each in found]


def test_what_the_coordinator_writes_is_read():
    record = parse_rebalance(evidence().encode())
    assert (record.group, record.started_at_ms, record.longest_pause_ms) == ("g", 1001, 0)


@pytest.mark.parametrize("value", [b"", b"\xff", b"{}", b"[]", b"3", b'"x"', b"[" * 100_000])
def test_anything_else_is_no_record(value):
    assert parse_rebalance(value) is None


@pytest.mark.parametrize(
    "name", ["generation", "started_at_ms", "duration_ms", "moved_count", "joined_at_ms", "cause_count"]
)
def test_a_number_that_is_none(name):
    value = json.loads(evidence().encode())
    assert parse_rebalance(json.dumps(value | {name: "soon"}).encode()) is None


@pytest.mark.parametrize("name", ["group", "outcome", "leader", "assignor"])
def test_a_text_that_is_none(name):
    value = json.loads(evidence().encode())
    assert parse_rebalance(json.dumps(value | {name: ["x"]}).encode()) is None


@pytest.mark.parametrize("name", ["causes", "members", "removed", "moved"])
@pytest.mark.parametrize("wrong", [None, "x", 7, {}, [1], [{"member_id": 7}], [{"topic": "t"}]])
def test_a_list_of_something_else(name, wrong):
    value = json.loads(evidence().encode())
    assert parse_rebalance(json.dumps(value | {name: wrong}).encode()) is None


def test_every_cause_has_its_words():
    assert set(CAUSE_WORDS) == {cause.value for cause in Cause}
    assert cause_in_words({"cause": "member_left"}, "anna") == "anna left"
    assert cause_in_words({"cause": "member_left"}, "") == "a member left"
    assert cause_in_words({"cause": "moon_{full}"}, "x") == "moon (full) (x)"


def test_the_page_names_every_field_and_cause():
    page = PAGE.read_text()
    value = evidence().value
    value["moved"] = [{"topic": "t", "partition": 0, "from": None, "to": None}]
    fields = {*value, *value["members"][0], *value["moved"][0], "cause", "at_ms", "detail"}
    assert [name for name in sorted(fields | set(CAUSE_WORDS)) if f"`{name}`" not in page] == []
    named = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE))
    assert {name for row in named for name in re.findall(r"\w+", row)} <= fields | set(CAUSE_WORDS)


def test_the_last_of_a_group(fake, with_cluster, monkeypatch):
    monkeypatch.setattr(rebalances, "WINDOW_RECORDS", 7)
    write(fake, *[evidence("g" if at % 3 else "other", at) for at in range(50)], b"garbage")
    for count in (1, 5, 8, 100):
        found = with_cluster(fake, lambda cluster, count=count: RebalanceLog(cluster).last("g", count))
        assert generations(found) == [at for at in range(50) if at % 3][-count:]
    assert with_cluster(fake, lambda cluster: RebalanceLog(cluster).last("nobody", 3)) == []
    assert generations(with_cluster(fake, lambda cluster: RebalanceLog(cluster).last("g", 3, 2))) == [2]
    assert with_cluster(fake, lambda cluster: RebalanceLog(cluster).last("g", 3, 3)) == []


def test_no_evidence_is_kept(fake, with_cluster):
    async def work(cluster):
        log = RebalanceLog(cluster)
        return await log.is_there(), await log.last("g", 3), await log.follow()

    assert with_cluster(fake, work) == (False, [], [])


def test_following(fake, with_cluster):
    async def work(cluster):
        log = RebalanceLog(cluster)
        await log.skip_to_end()
        told = [await log.follow()]
        for batch in ([1, 2], [], [3]):
            write(fake, *[evidence(generation=at) for at in batch])
            told.append(await log.follow())
        fake.logs[PARTITION].batches.clear()  # the topic was made anew
        fake.logs[PARTITION].end = 0
        write(fake, evidence(generation=4))
        told.append(await log.follow())
        return [generations(each) for each in told]

    write(fake, evidence(generation=0))
    assert with_cluster(fake, work) == [[], [1, 2], [], [3], [4]]


def test_a_topic_that_appears_is_followed_from_its_beginning(fake, with_cluster):
    async def work(cluster):
        log = RebalanceLog(cluster)
        await log.skip_to_end()
        write(fake, evidence(generation=1))
        return generations(await log.follow())

    assert with_cluster(fake, work) == [1]
