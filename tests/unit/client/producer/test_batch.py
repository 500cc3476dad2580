"""Batches as they are sent."""

from __future__ import annotations

import threading

import pytest

from ottla.client.model import TopicPartition
from ottla.client.producer.batch import ProducerBatch
from ottla.records.batch import parse_batch_header
from ottla.records.compression import Compression


@pytest.mark.spec("P4")
def test_bytes_that_may_be_on_their_way_stay_when_the_batch_is_numbered_again() -> None:
    batch = ProducerBatch(TopicPartition("t", 0), 1000, 1061, 0.0, threading.Lock())
    batch.builder.append(1, b"k", b"v")
    batch.close()
    batch.renumber(7, 0, 5, is_new=True)
    sent = batch.encode(Compression.NONE, None)
    assert batch.encode(Compression.NONE, None) is sent
    before = bytes(sent)
    batch.renumber(7, 1, 0)
    again = batch.encode(Compression.NONE, None)
    assert sent == before
    header = parse_batch_header(again)
    assert (header.producer_epoch, header.base_sequence, header.records_count) == (1, 0, 1)


@pytest.mark.spec("P3")
def test_a_closed_batch_takes_no_record_from_who_still_has_it_in_hand() -> None:
    batch = ProducerBatch(TopicPartition("t", 0), 1000, 1061, 0.0, threading.Lock())
    builder = batch.builder
    assert builder.append(1, b"k", b"v") == 0
    batch.close()
    assert builder.append(2, b"k", b"w") == -1
    assert (batch.record_count, builder.count) == (1, 1)
