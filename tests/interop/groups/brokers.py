"""ottla and Apache Kafka for groups: short sessions, requests handled in turn, and a tap before each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from support.apache import ApacheKafka, ApacheZooKeeper
from support.ottla_server import OttlaServer
from support.ports import LOOPBACK, free_port
from support.tap import Tap

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "4",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "4",
}
#: Requests are handled one after the other, as `player` wants it.
IN_TURN = {"num.io.threads": "1", "num.network.threads": "1"}


@dataclass(frozen=True)
class GroupBrokers:
    """Both brokers. Clients that look for their coordinator are sent through the taps; `bootstrap` leads past them."""

    ottla: OttlaServer
    kafka: ApacheKafka
    taps: dict[str, Tap]

    @classmethod
    def start(cls, folder: Path, zookeeper: ApacheZooKeeper) -> GroupBrokers:
        """Start both; whoever asked for them stops them."""
        # Apache Kafka's controller looks for its broker where it is advertised, so that the tap has to know it before.
        taps = {side: Tap(free_port()) for side in ("ottla", "kafka")}
        seen = {side: SETTINGS | {"advertised.listeners": _listener(tap.port)} for side, tap in taps.items()}
        ottla = OttlaServer(
            folder / "ottla", port=taps["ottla"].upstream, overrides=seen["ottla"], arguments=["--id", "1"]
        )
        apart = {
            "listeners": _listener(taps["kafka"].upstream),
            "zookeeper.connect": f"{zookeeper.connect}/groups",
            **IN_TURN,
        }
        kafka = ApacheKafka(folder / "kafka", zookeeper=zookeeper, overrides=seen["kafka"] | apart)
        brokers = cls(ottla, kafka, taps)
        try:
            ottla.start()
            kafka.start()
        except BaseException:
            brokers.stop()
            raise
        return brokers

    @property
    def bootstraps(self) -> dict[str, str]:
        """The addresses that lead past the taps, by side."""
        return {"ottla": self.ottla.bootstrap, "kafka": self.kafka.bootstrap}

    def stop(self) -> None:
        """Stop both."""
        self.ottla.stop()
        self.kafka.stop()
        for tap in self.taps.values():
            tap.close()


def newer_coordinator(folder: Path) -> ApacheKafka:
    """Apache Kafka 3.9 by itself, with the coordinator that is the only one in Apache Kafka 4."""
    newer = {"group.coordinator.rebalance.protocols": "classic,consumer", "group.coordinator.threads": "1"}
    return ApacheKafka(folder, zookeeper=None, overrides=SETTINGS | IN_TURN | newer)


def _listener(port: int) -> str:
    return f"PLAINTEXT://{LOOPBACK}:{port}"
