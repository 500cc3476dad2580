"""Numbers of an idempotent producer's batches, without sockets: what is sent when, and when the epoch rises."""

from __future__ import annotations

import threading

import pytest

from ottla.client.model import TopicPartition
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.sequences import MAX_EPOCH, ProducerIdentity, Sequences
from ottla.wire.errors import ErrorCode

P = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

pytestmark = pytest.mark.spec("P5")


def batch(count=10, partition=P):
    made = ProducerBatch(partition, 1000, 1000, 0.0, threading.Lock())
    for _ in range(count):
        made.builder.append(0, None, b"v")
    made.close()
    return made


def numbers(*batches):
    return [(each.producer_epoch, each.base_sequence) for each in batches]


@pytest.fixture
def sequences():
    """Under way: one batch of 10 records of each partition is acknowledged."""
    made = Sequences()
    made.take(ProducerIdentity(7, 0))
    for partition in (P, OTHER):
        first = batch(partition=partition)
        made.number(first)
        made.acknowledged(first)
    return made


def sent(sequences, count, partition=P):
    """So many batches on their way."""
    batches = [batch(partition=partition) for _ in range(count)]
    for each in batches:
        assert sequences.may_send(each)
        sequences.number(each)
    return batches


def test_nothing_goes_without_a_producer_id():
    sequences = Sequences()
    assert not sequences.has_identity
    assert not sequences.may_send(batch())


def test_the_first_batch_goes_alone():
    sequences = Sequences()
    sequences.take(ProducerIdentity(7, 0))
    [first] = sent(sequences, 1)
    second = batch()
    assert not sequences.may_send(second)
    sequences.acknowledged(first)
    assert sequences.may_send(second)


def test_only_the_first_that_is_not_acknowledged_goes_again(sequences):
    first, second, third = sent(sequences, 3)
    assert numbers(first, second, third) == [(0, 10), (0, 20), (0, 30)]
    assert [sequences.may_send(each) for each in (first, second, third)] == [True, False, False]
    sequences.acknowledged(first)
    assert [sequences.may_send(each) for each in (second, third)] == [True, False]


def test_those_behind_a_failure_are_out_of_order_and_simply_go_again(sequences):
    _, second = sent(sequences, 2)
    assert sequences.can_retry(second, OUT_OF_ORDER)
    assert not sequences.settle()
    assert second.producer_epoch == 0


def test_a_lost_predecessor_makes_the_epoch_rise_for_that_partition(sequences):
    first, second = sent(sequences, 2)
    [elsewhere] = sent(sequences, 1, OTHER)
    assert sequences.can_retry(first, OUT_OF_ORDER)
    assert sequences.settle()
    assert numbers(first, second) == [(1, 0), (1, 10)]
    assert numbers(elsewhere) == [(0, 10)]
    assert not sequences.may_send(batch(partition=OTHER))  # until nothing of the old epoch is on its way
    sequences.acknowledged(elsewhere)
    assert numbers(*sent(sequences, 1, OTHER)) == [(1, 0)]


def test_an_answer_from_before_the_epoch_rose_does_not_raise_it_again(sequences):
    first, second = sent(sequences, 2)
    sequences.can_retry(first, ErrorCode.UNKNOWN_PRODUCER_ID)
    sequences.settle()
    assert sequences.can_retry(second, OUT_OF_ORDER)
    assert sequences.can_retry(second, ErrorCode.UNKNOWN_PRODUCER_ID)
    assert not sequences.settle()
    assert sequences.identity.epoch == 1


def test_after_a_batch_is_given_up_nothing_new_goes_until_the_rest_is_known(sequences):
    first, second = sent(sequences, 2)
    sequences.failed(first)
    new = batch()
    assert not sequences.may_send(new)
    assert sequences.may_send(batch(partition=OTHER))
    sequences.acknowledged(second)
    assert not sequences.settle()  # the one behind it was written, so the broker knows where it is
    assert sequences.may_send(new)
    sequences.number(new)
    assert numbers(new) == [(0, 30)]


def test_a_gap_that_stays_makes_the_epoch_rise(sequences):
    [first] = sent(sequences, 1)
    sequences.failed(first)
    assert sequences.settle()
    assert numbers(*sent(sequences, 1)) == [(1, 0)]


def test_the_one_behind_a_gap_asks_for_the_epoch_at_once(sequences):
    first, second = sent(sequences, 2)
    sequences.failed(first)
    assert sequences.can_retry(second, OUT_OF_ORDER)
    assert sequences.settle()
    assert numbers(second) == [(1, 0)]


def test_parts_of_a_batch_have_its_numbers(sequences):
    first, second = sent(sequences, 2)
    left, right = batch(4), batch(6)
    sequences.split(first, [left, right])
    assert numbers(left, right, second) == [(0, 10), (0, 14), (0, 20)]
    assert [sequences.may_send(each) for each in (left, right)] == [True, False]


def test_used_up_epochs_need_a_new_id(sequences):
    sequences.take(ProducerIdentity(7, MAX_EPOCH))
    [first] = sent(sequences, 1)
    sequences.failed(first)
    assert sequences.settle()
    assert not sequences.has_identity
    sequences.take(ProducerIdentity(8, 0))
    [again] = sent(sequences, 1)
    assert (again.producer_id, again.base_sequence) == (8, 0)


def test_numbers_go_around(sequences):
    first = batch()
    sequences.number(first)
    sequences._partitions[P].next = 2**31 - 5
    second = batch()
    sequences.number(second)
    third = batch()
    sequences.number(third)
    assert numbers(second, third) == [(0, 2**31 - 5), (0, 5)]


def test_other_errors_do_not_depend_on_numbers(sequences):
    [first] = sent(sequences, 1)
    assert sequences.can_retry(first, ErrorCode.NOT_ENOUGH_REPLICAS) is None
    assert sequences.can_retry(first, None) is None
