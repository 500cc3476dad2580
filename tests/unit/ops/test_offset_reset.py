"""Where offsets go, and the files they stand in."""

from __future__ import annotations

import pytest

from ottla.client.errors import BrokerError, InvalidArgumentError, UnknownTopicError
from ottla.client.model import TopicPartition
from ottla.ops.offset_reset import MOST_OFFSET, PlannedOffset, Reset, Target, csv_lines, plan_reset, read_csv

pytestmark = pytest.mark.spec("G2")

T0 = TopicPartition("t", 0)


def planned(fake, with_cluster, reset, partitions=None):
    if not fake.leaders:
        for each, (start, end, committed) in zip(fake.topic("t", 0, 0), ((10, 100, 50), (0, 20, None)), strict=True):
            fake.fill(each, end)
            fake.logs[each].start = start
            if committed is not None:
                fake.committed[each] = committed
    wanted = list(fake.leaders) if partitions is None else partitions
    return with_cluster(fake, lambda cluster: plan_reset(cluster, "g", wanted, reset))


@pytest.mark.parametrize(
    ("reset", "offsets"),
    [
        (Reset(Target.EARLIEST), [10, 0]),
        (Reset(Target.LATEST), [100, 20]),
        (Reset(Target.CURRENT), [50, 20]),
        (Reset(Target.OFFSET, 15), [15, 15]),
        (Reset(Target.OFFSET, 5), [10, 5]),
        (Reset(Target.OFFSET, MOST_OFFSET), [100, 20]),
        (Reset(Target.TIMESTAMP, 1015), [15, 15]),
        (Reset(Target.TIMESTAMP, 1099), [99, 20]),
        (Reset(Target.OFFSET, offsets={T0: 77, TopicPartition("t", 1): 99}), [77, 20]),
    ],
)
def test_targets(fake, with_cluster, reset, offsets):
    plan = planned(fake, with_cluster, reset)
    assert [each.new_offset for each in plan] == offsets
    assert [each.current_offset for each in plan] == [50, None]
    assert [each.lag for each in plan] == [end - new for end, new in zip((100, 20), offsets, strict=True)]


@pytest.mark.parametrize(
    ("by", "new"), [(0, 50), (10, 60), (-10, 40), (-45, 10), (MOST_OFFSET, 100), (-MOST_OFFSET, 10)]
)
def test_shifts_stay_in_the_log(fake, with_cluster, by, new):
    [each] = planned(fake, with_cluster, Reset(Target.SHIFT, by), [T0])
    assert each.new_offset == new
    assert bool(each.note) == (new != 50 + by)


def test_nothing_to_shift(fake, with_cluster):
    with pytest.raises(
        InvalidArgumentError, match="group g has committed nothing in t-1, so there is nothing to shift"
    ):
        planned(fake, with_cluster, Reset(Target.SHIFT, 1))


def test_what_is_not_there(fake, with_cluster):
    with pytest.raises(UnknownTopicError):
        planned(fake, with_cluster, Reset(Target.LATEST), [TopicPartition("nope", 0)])
    with pytest.raises(BrokerError, match="no partition 7"):
        planned(fake, with_cluster, Reset(Target.LATEST), [TopicPartition("t", 7)])


def test_files_are_written_and_read():
    long_name = "a-topic-with-more-than-24-characters"
    plan = [PlannedOffset(TopicPartition(name, 1), None, 7, 0, 9) for name in ("t", long_name)]
    alone = list(csv_lines({"g": plan}))
    assert alone == ["t,1,7", f'"{long_name}",1,7']
    several = list(csv_lines({"g": plan, 'odd,"name': plan[:1]}))
    assert several[2] == '"odd,""name",t,1,7'
    offsets = {TopicPartition("t", 1): 7, TopicPartition(long_name, 1): 7}
    assert read_csv(alone, ["g"]) == {"g": offsets}
    assert read_csv(several, ["g"]) == {"g": offsets}
    assert read_csv(several, ["g", 'odd,"name']) == {"g": offsets, 'odd,"name': {TopicPartition("t", 1): 7}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t,0", "line 1 has 2 values, but should be group,topic,partition,offset or topic,partition,offset"),
        ("t,0,1\n\nt,0,2", "line 3: t-0 stands there twice"),
        ("t,-1,1", "line 1: the partition '-1' is not a number from 0 to 2147483647"),
        ("t,0,x", "line 1: the offset 'x' is not a number"),
        (f"t,0,{MOST_OFFSET + 1}", "is not a number from 0"),
        ("t,0,²", "is not a number"),
        ('t,0,"1', "line 1: unexpected end of data"),
        ("x" * 200_000, "line 1: field larger"),
    ],
)
def test_files_that_cannot_be_read(text, words):
    with pytest.raises(InvalidArgumentError) as refused:
        read_csv(text.splitlines(keepends=True), ["g"])
    assert words in str(refused.value)


def test_without_a_group_lines_are_one_groups():
    with pytest.raises(InvalidArgumentError, match=r"line 1 has 3 values, but should be group,topic,partition,offset$"):
        read_csv(["t,0,1"], ["g", "h"])
