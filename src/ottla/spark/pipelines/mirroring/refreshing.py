"""The mirror's work besides copying records, every `refresh_interval_ms` in a thread of the process that started it.

It follows topics, partitions and settings, translates offsets of groups, and sends heartbeats.
"""

from __future__ import annotations

import logging
import threading

from pyspark.sql.streaming.query import StreamingQuery

from ottla.client.errors import ClientError
from ottla.env.clock import Clock, SystemClock
from ottla.spark.pipelines.mirroring.checkpoints import GroupTranslator
from ottla.spark.pipelines.mirroring.copying import names_of
from ottla.spark.pipelines.mirroring.ends import MirrorEnd, source_of, target_of
from ottla.spark.pipelines.mirroring.formats import MirrorHeartbeat
from ottla.spark.pipelines.mirroring.naming import HEARTBEATS
from ottla.spark.pipelines.mirroring.topics import COMPACTED, TopicFollower, create_topic
from ottla.spark.pipelines.settings.model import MirrorSettings

LONGEST_WAIT_S = 1.0
"""After the end of the query the thread ends within about this many seconds."""

log = logging.getLogger(__name__)


class MirrorRefresher:
    """Keeps the target like the source while a query runs."""

    def __init__(self, mirror: MirrorSettings, clock: Clock | None = None) -> None:
        self._mirror = mirror
        self._clock = SystemClock() if clock is None else clock
        self._translator = GroupTranslator(mirror)
        self._is_failing = False

    def refresh_once(self) -> None:
        """Make MirrorMaker 2's own topics, and do everything once. Raises ClientError."""
        names = names_of(self._mirror)
        source, target = source_of(self._mirror), target_of(self._mirror)
        with source.admin() as source_admin, target.admin() as target_admin:
            own = {names.offset_syncs_topic: source_admin, names.checkpoints_topic: target_admin}
            for topic, admin in own.items():
                if topic not in admin.list_topics(list_internal=True):
                    create_topic(admin, topic, 1, COMPACTED)
            for admin in (source_admin, target_admin):
                if HEARTBEATS not in admin.list_topics():
                    create_topic(admin, HEARTBEATS, 1, COMPACTED)
            TopicFollower(source_admin, target_admin, names).follow_all()
        self._beat(source, names.target_alias, names.source_alias)
        self._beat(target, names.source_alias, names.target_alias)
        self._translator.translate_all()

    def start(self, query: StreamingQuery) -> threading.Thread:
        """Do it until the query ends, in a thread of its own; gives the thread."""
        thread = threading.Thread(target=self._run, args=(query,), name=f"mirror-{query.name}", daemon=True)
        thread.start()
        return thread

    def _run(self, query: StreamingQuery) -> None:
        wait = threading.Event()
        next_ms = self._clock.monotonic_ms() + self._mirror.refresh_interval_ms
        while _is_active(query):
            wait.wait(min(max(next_ms - self._clock.monotonic_ms(), 0) / 1_000, LONGEST_WAIT_S))
            if self._clock.monotonic_ms() >= next_ms and _is_active(query):
                self._refresh()
                next_ms = self._clock.monotonic_ms() + self._mirror.refresh_interval_ms

    def _refresh(self) -> None:
        """Do everything once; what fails is logged once, and tried again the next time."""
        try:
            self.refresh_once()
        except ClientError as problem:
            if not self._is_failing:
                log.warning("topics and groups are not followed now; it is tried again: %s", problem)
            self._is_failing = True
        else:
            self._is_failing = False

    def _beat(self, end: MirrorEnd, source_alias: str, target_alias: str) -> None:
        beat = MirrorHeartbeat(source_alias, target_alias, self._clock.now_ms())
        with end.producer() as producer:
            producer.send(HEARTBEATS, beat.value, beat.key, 0)


def _is_active(query: StreamingQuery) -> bool:
    try:
        return query.isActive
    except Exception:  # The session is gone, and the query with it.
        return False
