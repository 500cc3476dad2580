"""The programs of bench/clients.py do what they count: in small, against ottla."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.ottla_server import OttlaServer

BENCH = Path(__file__).resolve().parents[2] / "bench"
PARTITIONS = 4
SECONDS = 0.02
SENDS = 20
CLIENTS = ("confluent-kafka", "confluent-kafka, tuned", "kafka-python", "aiokafka", "ottla", "ottla.sync")


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """The modules of bench/, which are scripts and not a package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        import client_figures
        import client_process
        import clients
        from client_programs import meter

        yield SimpleNamespace(clients=clients, figures=client_figures, process=client_process, meter=meter)


def test_all_clients_are_measured(bench: SimpleNamespace) -> None:
    assert tuple(bench.clients.MODULES) == CLIENTS


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", CLIENTS)
def test_each_load_counts_what_is_in_the_log(
    client: str, shared_ottla_server: OttlaServer, bench: SimpleNamespace
) -> None:
    server = shared_ottla_server
    broker = SimpleNamespace(port=server.port, server=server.server)
    filled = bench.clients.fill(broker, value_bytes=100, total_bytes=2 * 1024 * 1024)
    with bench.process.ClientProcess(client) as process, bench.clients.Caller(server.port) as caller:
        for load in bench.clients.programs(client):
            writes = load in (*bench.meter.PRODUCING, bench.meter.SINGLE)
            topic = bench.clients.make_topic(caller, PARTITIONS)[0] if writes else filled.name
            job = bench.meter.Job(
                load=load,
                bootstrap=server.bootstrap,
                broker_pid=server.server.pid,
                topic=topic,
                partitions=PARTITIONS,
                records=0 if writes else filled.records,
                value_bytes=100,
                seconds=SECONDS,
                sends=SENDS,
                group_id=f"{client}-{load}",
            )
            measured = process.measure(job)
            assert measured.records > 0
            assert measured.cpu_s > 0
            if writes:
                bench.clients.check_appended(caller, topic, measured)
                assert measured.appended > measured.records
            else:
                assert measured.records < filled.records
            if load == bench.meter.SINGLE:
                assert 0 < measured.p50_ms <= measured.p99_ms


def test_goals_compare_with_the_best_of_the_others(bench: SimpleNamespace) -> None:
    figures = bench.figures.ClientFigures("legend")
    load, per_s = bench.meter.PRODUCE_LOOP, {"confluent-kafka": 300, "kafka-python": 20, "aiokafka": 100, "ottla": 90}
    for client, rate in per_s.items():
        measured = bench.meter.Measured(records=rate, seconds=1.0)
        figures.add(bench.figures.Key("a broker", load, 100, client), measured)
    assert figures.goals() == (2, 0)
    for _ in range(2):
        figures.add(bench.figures.Key("a broker", load, 100, "ottla"), bench.meter.Measured(records=150, seconds=1.0))
    assert figures.goals() == (2, 2), "the median counts"
    table = list(figures.tables())[-1]
    assert "ottla: await send / aiokafka" in table
    assert "ottla: await send / confluent-kafka" in table
    assert "kafka-python" not in table
