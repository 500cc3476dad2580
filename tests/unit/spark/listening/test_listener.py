"""The listener with a session that is played: events in; figures, metrics, commits out."""

from __future__ import annotations

import threading
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ottla.client.model import TopicPartition
from ottla.spark.errors import OptionError
from ottla.spark.listening import QueryListener, listen
from ottla.spark.listening.progress import Basis, Lag, QueryState
from ottla.spark.listening.source_watch import INTERVAL_S, commit_forward, measure_lag, options_of
from ottla.spark.source.options import parse_read_options
from support.waiting import wait_until
from unit.spark.listening.progress import idled, progress, progressed, source, started, terminated

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.group.id": "g"}


class PlayedSession:
    """The part of a Spark session that a listener uses."""

    def __init__(self) -> None:
        self.streams = self
        self.active: list[Any] = []
        self.listeners: list[QueryListener] = []

    def addListener(self, listener: QueryListener) -> None:  # noqa: N802
        self.listeners.append(listener)

    def removeListener(self, listener: QueryListener) -> None:  # noqa: N802
        self.listeners.remove(listener)


@pytest.fixture
def session() -> Any:
    return PlayedSession()


def test_figures_follow_the_events(session: Any) -> None:
    lines: list[str] = []
    with listen(session, show=lines.append) as listener:
        listener.onQueryStarted(started())
        assert [each.state for each in listener.queries] == [QueryState.RUNNING]
        listener.onQueryProgress(progressed(progress(source({"t": {"0": 6}}, {"t": {"0": 9}}, rows=6))))
        listener.onQueryIdle(idled())
        assert [each.state for each in listener.queries] == [QueryState.IDLE]
        listener.onQueryTerminated(terminated())
    assert session.listeners == []
    assert lines == ["mine: batch 0, 6 rows in 0.39 s, t 3 rows behind"]
    assert listener.report().startswith("mine: stopped, batch 0 of 6 rows")


@pytest.mark.spec("D4")
def test_the_end_of_the_last_batch_is_committed_and_its_lag_measured(session: Any, cluster: Any) -> None:
    cluster.holds("t", (0, 90), (0, 5))
    with listen(session, {"mine": OPTIONS}) as listener:
        for batch, end in enumerate((10, 20, 30)):
            listener.onQueryProgress(progressed(progress(source({"t": {"0": end, "1": 5}}), batch=batch)))
        listener.onQueryTerminated(terminated())
    assert cluster.commits[-1][1].items() <= {T0: 30, T1: 5}.items()
    assert cluster.commits[-1][1][T0] == 30
    assert len(cluster.commits) <= 3
    lag = _lag(listener)
    assert (lag.rows, lag.basis, lag.seconds[T1]) == ({T0: 60, T1: 0}, Basis.CLUSTER, 0.0)
    assert cluster.clients == 0, "connections are closed"


def test_sources_are_followed_no_oftener_than_once_in_the_interval(cluster: Any) -> None:
    now = [100.0]
    cluster.holds("t", (0, 90))
    listener = QueryListener({"mine": OPTIONS}, now_s=lambda: now[0])
    listener.onQueryProgress(progressed(progress(source({"t": {"0": 10}}))))
    wait_until(lambda: _lag(listener).basis is Basis.CLUSTER, "a look at the cluster")
    for end in (20, 30):
        listener.onQueryProgress(progressed(progress(source({"t": {"0": end}}))))
    assert cluster.commits == [("g", {T0: 10})]
    now[0] += INTERVAL_S
    listener.onQueryTerminated(terminated())
    wait_until(lambda: len(cluster.commits) == 2, "a look at the cluster")
    assert cluster.commits == [("g", {T0: 10}), ("g", {T0: 30})]
    listener.close()


def test_a_commit_that_fails_is_counted_and_the_query_goes_on(
    session: Any, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.holds("t", (0, 90))
    cluster.commit_failures = 1
    with listen(session, {"mine": OPTIONS}) as listener:
        listener.onQueryProgress(progressed(progress(source({"t": {"0": 10}}))))
        listener.onQueryTerminated(terminated())
    assert [each.commit_failures for each in listener.queries] == [1]
    assert "not committed to group g" in caplog.text
    assert _lag(listener).rows == {T0: 80}, "the lag is measured nevertheless"


@pytest.mark.spec("D4")
def test_a_coordinator_that_does_not_answer_is_said_once_and_lag_is_measured(
    cluster: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.spark.listening.source_watch.COMMIT_WAIT_S", 0.01)
    cluster.holds("t", (0, 90))
    cluster.coordinator_answers.clear()
    now = [100.0]
    listener = QueryListener({"mine": OPTIONS}, now_s=lambda: now[0])
    for end in (10, 20):
        listener.onQueryProgress(progressed(progress(source({"t": {"0": end}}))))
        wait_until(lambda end=end: _lag(listener).basis is Basis.CLUSTER, "a look at the cluster")
        assert _lag(listener).rows == {T0: 90 - end}
        now[0] += INTERVAL_S
    assert [each.commit_failures for each in listener.queries] == [2]
    assert caplog.text.count("not committed to group g") == 1
    cluster.coordinator_answers.set()
    listener.onQueryProgress(progressed(progress(source({"t": {"0": 30}}))))
    listener.close()
    assert cluster.commits == [("g", {T0: 30})]
    assert "offsets are committed to group g again" in caplog.text


def test_queries_whose_options_are_not_given_are_not_followed(session: Any, cluster: Any) -> None:
    with listen(session, {"another": OPTIONS}) as listener:
        listener.onQueryProgress(progressed(progress(source({"t": {"0": 10}}))))
        listener.onQueryTerminated(terminated())
    assert cluster.commits == []


def test_options_are_checked_at_once(session: Any) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        listen(session, {"mine": {"subscribe": "t"}})
    assert session.listeners == []


def test_a_group_that_is_ahead_is_left_alone(cluster: Any) -> None:
    client = cluster.connect()
    cluster.commits.append(("g", {T0: 50, T1: 1}))
    commit_forward(client, "g", {T0: 40, T1: 2})
    commit_forward(client, "g", {T0: 40, T1: 2})
    commit_forward(client, "g", {})
    assert cluster.commits[1:] == [("g", {T1: 2})]


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(cluster: Any) -> None:
    cluster.holds("t", (15, 90), (0, 5))
    lag = measure_lag(cluster.connect(), {T0: 10, T1: 5}, now_s=100.0)
    assert lag == Lag({T0: 80, T1: 0}, {T0: 85.0, T1: 0.0}, Basis.CLUSTER), "retention took those before 15"


def test_sources_of_the_same_topic_get_their_options_in_order() -> None:
    first, second, third = (
        parse_read_options({"kafka.bootstrap.servers": "a:1"} | more, streaming=True)
        for more in ({"subscribe": "t,u"}, {"subscribePattern": "t.*"}, {"assign": '{"v": [0]}'})
    )
    candidates = [first, second, third]
    assert options_of(("t",), candidates) is first
    assert options_of(("t",), candidates) is second
    assert options_of(("t",), candidates) is None
    assert options_of((), candidates) is None
    assert options_of(("v",), candidates) is third


def test_metrics_for_prometheus(session: Any) -> None:
    own = CollectorRegistry()
    with listen(session, port=0, registry=own) as listener:
        listener.onQueryStarted(started())
        offsets = source({"t": {"0": 6}, "u": {"0": 1}}, {"t": {"0": 9}, "u": {"0": 1}}, rows=7)
        listener.onQueryProgress(progressed(progress(offsets, source(3, rows=1))))
        listener.onQueryTerminated(terminated("it broke"))
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as response:
            served = response.read().decode()
        assert served == generate_latest(own).decode()
    lines = served.splitlines()
    assert 'ottla_spark_query_state{query="mine",state="failed"} 1.0' in lines
    assert 'ottla_spark_rows_total{query="mine",source="0"} 7.0' in lines
    assert 'ottla_spark_rows_total{query="mine",source="1"} 1.0' in lines
    assert 'ottla_spark_lag_rows{query="mine",source="0",topic="t"} 3.0' in lines
    assert 'ottla_spark_lag_rows{query="mine",source="0",topic="u"} 0.0' in lines
    assert 'ottla_spark_batch_seconds{query="mine"} 0.392' in lines
    assert generate_latest(own) == b"", "taken out of the registry again"


def test_queries_of_one_name_have_one_sample_of_each_metric(session: Any) -> None:
    """Prometheus refuses a page with two; a query that is started again without its checkpoint has a new id."""
    own = CollectorRegistry()
    with listen(session, registry=own) as listener:
        for query, rows in (("one", 7), ("another", 3)):
            listener.onQueryStarted(started(query=query))
            offsets = source({"t": {"0": rows}}, {"t": {"0": 9}}, rows=rows)
            listener.onQueryProgress(progressed(progress(offsets, query=query)))
            listener.onQueryTerminated(terminated(query=query))
        samples = [line.rpartition(" ")[0] for line in generate_latest(own).decode().splitlines() if line[0] != "#"]
        assert len(samples) == len(set(samples))
        assert own.get_sample_value("ottla_spark_rows_total", {"query": "mine", "source": "0"}) == 3


def test_close_waits_for_the_events_of_queries_that_have_ended(session: Any) -> None:
    """Spark delivers them after `awaitTermination` has returned."""
    listener = listen(session)
    listener.onQueryStarted(started())
    closing = threading.Thread(target=listener.close)
    closing.start()
    listener.onQueryProgress(progressed(progress(source({"t": {"0": 6}}))))
    assert session.listeners == [listener]
    listener.onQueryTerminated(terminated())
    closing.join()
    assert session.listeners == []
    assert [each.state for each in listener.queries] == [QueryState.STOPPED]


def test_close_does_not_wait_for_queries_that_run(session: Any) -> None:
    listener = listen(session)
    listener.onQueryStarted(started())
    session.active = [SimpleNamespace(id=started().id)]
    listener.close()
    assert [each.state for each in listener.queries] == [QueryState.RUNNING]


def _lag(listener: QueryListener) -> Lag:
    (query,) = listener.queries
    assert query.last is not None
    lag = query.last.sources[0].lag
    assert lag is not None
    return lag
