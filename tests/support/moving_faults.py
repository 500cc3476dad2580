"""Reassignments as faults against a cluster under load: to other brokers and back, cancelled, and while a broker dies.

With three brokers there is no other one to move to: a replica of each partition goes, and is made again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator

from ottla.client.errors import ClientError
from ottla.client.model import TopicPartition
from ottla.client.sync import Admin
from support.cluster_history import Place
from support.failing_cluster import FailingCluster
from support.waiting import wait_until

MOVED_WITHIN_S = 120.0
ASK_AGAIN_S = 0.5
ADMIN = {"request_timeout_ms": 5_000, "default_api_timeout_ms": 20_000}
REPLICAS = 3
#: Seconds after which moves are cancelled, or a broker dies: they may have ended by then.
SOON_S = (0.0, 0.6)


class MovesUnderLoad:
    """Asks a cluster to move the partitions of the load."""

    def __init__(self, cluster: FailingCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance

    def begin(self, count: int) -> None:
        """Begin to move each partition to this many brokers, drawn again."""
        brokers = sorted(self._cluster.brokers)
        wanted = {TopicPartition(*place): self._chance.sample(brokers, count) for place in self._cluster.places}
        self._ask(lambda admin: admin.alter_partition_reassignments(dict(wanted)))

    def cancel(self) -> None:
        """Cancel what moves; a move that ends meanwhile is refused."""

        def ask(admin: Admin) -> None:
            moving = admin.list_partition_reassignments()
            if moving:
                try:
                    admin.alter_partition_reassignments(dict.fromkeys(moving))
                except ClientError as error:
                    if "NO_REASSIGNMENT_IN_PROGRESS" not in str(error):
                        raise

        self._ask(ask)

    def wait_until_done(self, count: int) -> None:
        """Until nothing moves, and each partition has this many replicas, all in sync."""

        def done() -> bool:
            moving: list[object] = []
            self._ask(lambda admin: moving.extend(admin.list_partition_reassignments()))
            return not moving and all(len(self._isr(place)) == count for place in self._cluster.places)

        wait_until(done, lambda: f"the end of the moves: {self._cluster.sight}", MOVED_WITHIN_S, 0.2)
        self._cluster.watcher.forget_preferred()

    def pause_a_moment(self) -> None:
        """Let a random time pass in which the moves are at any point."""
        threading.Event().wait(self._chance.uniform(*SOON_S))

    def _isr(self, place: Place) -> tuple[int, ...]:
        return self._cluster.sight.states[place][2]

    def _ask(self, work: Callable[[Admin], None]) -> None:
        """Ask until somebody answers: the controller may just have died."""
        deadline = time.monotonic() + MOVED_WITHIN_S
        while True:
            try:
                with Admin(bootstrap_servers=self._cluster.bootstrap, **ADMIN) as admin:
                    work(admin)
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                threading.Event().wait(ASK_AGAIN_S)
            else:
                return


def moved(moves: MovesUnderLoad, begun: Callable[[], list[str]]) -> Generator[list[str], None, None]:
    """All partitions move; `begun` says what was seen of it."""
    moves.begin(REPLICAS - 1)
    moves.wait_until_done(REPLICAS - 1)
    moves.begin(REPLICAS)
    yield begun()
    moves.wait_until_done(REPLICAS)


def cancelled(moves: MovesUnderLoad, begun: Callable[[], list[str]]) -> Generator[list[str], None, None]:
    """Moves are begun, cancelled at any point, and begun again."""
    moves.begin(REPLICAS - 1)
    moves.wait_until_done(REPLICAS - 1)
    for _ in range(4):
        moves.begin(REPLICAS)
        moves.pause_a_moment()
        moves.cancel()
    yield begun()
    moves.begin(REPLICAS)
    moves.wait_until_done(REPLICAS)


def interrupted(
    moves: MovesUnderLoad, begun: Callable[[], list[str]], harm: Callable[[], None], heal: Callable[[], None]
) -> Generator[list[str], None, None]:
    """A broker dies while partitions move, and comes back."""
    moves.begin(REPLICAS - 1)
    moves.wait_until_done(REPLICAS - 1)
    moves.begin(REPLICAS)
    moves.pause_a_moment()
    harm()
    yield begun()
    heal()
    moves.wait_until_done(REPLICAS)
