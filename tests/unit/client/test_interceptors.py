"""Interceptors: order, configuration, and that what they raise disturbs nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.client.configs import parse_consumer_config, parse_producer_config
from ottla.client.consumer.records import ConsumerRecords
from ottla.client.errors import InvalidConfigError
from ottla.client.interceptors import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    ProducerInterceptor,
    ProducerInterceptors,
)
from ottla.client.model import OffsetAndMetadata, RecordMetadata, TopicPartition
from ottla.client.producer.record import ProducerRecord

HERE = __name__
T0 = TopicPartition("t", 0)


class Adding(ProducerInterceptor):
    def __init__(self, what: bytes = b"!", fails: bool = False) -> None:
        self.what = what
        self.fails = fails
        self.seen: list[Any] = []

    def configure(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        if self.fails:
            raise ValueError("no")
        return record._replace(value=record.value + self.what)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.seen.append((metadata, error))
        if self.fails:
            raise ValueError("no")

    def close(self) -> None:
        self.seen.append("closed")
        if self.fails:
            raise ValueError("no")


class Forgetful:
    """It has one method only, and that gives nothing."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> None:
        pass


class Halving(ConsumerInterceptor):
    def __init__(self) -> None:
        self.committed: list[Any] = []

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        return ConsumerRecords({each: records.records(each)[::2] for each in records.partitions()})

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(offsets)
        raise ValueError("no")


class Unwilling:
    def configure(self, config: Mapping[str, Any]) -> None:
        raise KeyError("url")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[HERE])


def producers(*interceptors: object) -> ProducerInterceptors:
    return ProducerInterceptors.of(
        parse_producer_config({"bootstrap.servers": "a:1"}, {"client_id": "c", "interceptor_classes": interceptors})
    )


@pytest.mark.spec("P4")
def test_each_gets_what_the_one_before_gave() -> None:
    chain = producers(Adding(b"1"), Adding(b"2"))
    assert chain.on_send(ProducerRecord("t", b"v")).value == b"v12"
    assert not producers()


@pytest.mark.spec("P4")
def test_what_one_raises_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    first, failing, last = Adding(b"1"), Adding(fails=True), Adding(b"2")
    chain = producers(first, failing, Forgetful(), last)
    record = ProducerRecord("t", b"v")
    called: list[Any] = []
    metadata = RecordMetadata("t", 0, 5, 6)
    with chain.sending(record, lambda metadata, error: called.append((metadata, error))) as (changed, callback):
        assert changed.value == b"v12"
        callback(metadata, None)
    assert called == first.seen == failing.seen == last.seen == [(metadata, None)]
    chain.close()
    chain.close()
    assert first.seen[1:] == failing.seen[1:] == last.seen[1:] == ["closed"]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "on_send of interceptor Adding failed",
        "on_send of interceptor Forgetful failed",
        "on_acknowledgement of interceptor Adding failed",
        "close of interceptor Adding failed",
    ]


@pytest.mark.spec("P4")
def test_a_record_that_failed_is_nowhere() -> None:
    adding = Adding()
    chain = producers(adding)
    error = ValueError("no")
    with chain.sending(ProducerRecord("t", b"", partition=3), None) as (_, callback):
        callback(None, error)
    with pytest.raises(ValueError, match="no"), chain.sending(ProducerRecord("t", b""), None):
        raise error
    assert adding.seen == [(RecordMetadata("t", 3, -1, -1), error), (RecordMetadata("t", -1, -1, -1), error)]


def test_classes_and_names_are_made_and_configured() -> None:
    chain = producers(Adding, "mine.Adding")
    configs = [one.config for one in chain._interceptors]
    assert [config["client.id"] for config in configs] == ["c", "c"]
    assert configs[0]["bootstrap.servers"] == "a:1"
    with pytest.raises(InvalidConfigError, match=r"interceptor\.classes=mine\.Missing: .* cannot be imported"):
        producers("mine.Missing")
    with pytest.raises(InvalidConfigError, match=r"configure of Unwilling failed \(KeyError: 'url'\)"):
        producers(Unwilling)


@pytest.mark.spec("C3")
def test_consumers_show_what_they_read_and_commit(caplog: pytest.LogCaptureFixture) -> None:
    halving = Halving()
    chain = ConsumerInterceptors.of(
        parse_consumer_config({"bootstrap.servers": "a:1"}, {"interceptor_classes": [halving]})
    )
    records: Any = ConsumerRecords({T0: [1, 2, 3]})  # type: ignore[list-item]
    assert chain.on_consume(records).records(T0) == [1, 3]
    offsets = {T0: OffsetAndMetadata(3)}
    chain.on_commit(offsets)
    assert halving.committed == [offsets]
    assert "on_commit of interceptor Halving failed" in caplog.text
