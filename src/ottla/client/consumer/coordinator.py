"""The group side of a consumer: runs its membership, sends its requests, calls the user's listener, commits.

Everything runs in one event loop. Heartbeats, the search for the coordinator and SyncGroup run in background tasks.
What involves the user (callbacks, revoking partitions, joining) waits for `poll`; `needs_poll` and the notification
request one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from ottla.assign.assignor import GroupMetadata
from ottla.client.consumer.commits import Commits, Offsets
from ottla.client.consumer.consumer_metadata import ConsumerMetadata
from ottla.client.consumer.coordinator_link import CoordinatorLink
from ottla.client.consumer.group_config import GroupConfig
from ottla.client.consumer.listener import UserCall, call_here
from ottla.client.consumer.membership import Assign, ClientState, DropCoordinator, FindCoordinator, Membership, Send
from ottla.client.consumer.missing_topics import MissingTopics
from ottla.client.consumer.rebalance import Rebalance
from ottla.client.consumer.subscription_state import SubscriptionState, SubscriptionType
from ottla.client.errors import ClientError, RetriableCommitFailedError, as_client_error
from ottla.client.model import OffsetAndMetadata, TopicPartition
from ottla.peer.cluster import Cluster
from ottla.wire.messages.leave_group import LeaveGroupRequest

log = logging.getLogger(__name__)

CLOSED = "the consumer is being closed"
UNSUBSCRIBED = "the consumer unsubscribed from all topics"


class ConsumerCoordinator:
    """See the module. Make it in the event loop that uses it.

    `notify` is called when `poll` has work to do; `call` runs the user's functions; `on_commit` (an interceptor) gets
    committed offsets.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: GroupConfig,
        subscriptions: SubscriptionState,
        metadata: ConsumerMetadata,
        notify: Callable[[], None],
        *,
        call: UserCall = call_here,
        on_commit: Callable[[Offsets], Any] | None = None,
    ) -> None:
        self.membership = Membership(config, cluster.jittered)
        self.needs_poll = False
        """Whether `poll` has work to do: cheap, checked in every poll of the user's."""
        self._cluster = cluster
        self._config = config
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._notify = notify
        self._link = CoordinatorLink(cluster, self.membership, self._changed)
        self.commits = Commits(cluster, self._link, self.membership, subscriptions, call, on_commit)
        self.commits.on_done = self._changed
        self._rebalance = Rebalance(
            cluster, self.membership, subscriptions, config.assignors(), call, config.client_rack
        )
        self._auto_commit_due_ms = self._now_ms() + config.auto_commit_interval_ms
        self._commit_before: asyncio.Task[None] | None = None
        self._stale_version: int | None = None
        self._seen_version = -1
        self._missing = MissingTopics(cluster.clock)
        self._resubscribed = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._client_state = ClientState.DOWN
        self._polling = False
        self._closed = False

    # State

    def group_metadata(self) -> GroupMetadata:
        """Return group and member, as transactions need it."""
        return self._rebalance.group_metadata()

    def metrics(self) -> dict[str, float]:
        """Return metrics by Kafka's names; `client-state` is the number of the `ClientState`."""
        member, now_ms = self.membership.metrics, self._now_ms()

        def seconds_since(at_ms: float | None) -> float:
            return -1.0 if at_ms is None else (now_ms - at_ms) / 1000

        return {
            "client-state": float(self.membership.client_state.value),
            "rejoin-needed": float(self.membership.is_active and self.membership.rejoin_needed),
            "assigned-partitions": float(len(self._subscriptions.assigned_partitions)),
            "commit-total": float(self.commits.total),
            "commit-latency-avg": self.commits.latency_total_ms / max(1, self.commits.total),
            "commit-latency-max": self.commits.latency_max_ms,
            "join-total": float(member.joins),
            "sync-total": float(member.syncs),
            "heartbeat-total": float(member.heartbeats),
            "last-heartbeat-seconds-ago": seconds_since(member.last_heartbeat_at_ms),
            "rebalance-total": float(member.rebalances),
            "failed-rebalance-total": float(member.failed_rebalances),
            "rebalance-latency-total": member.rebalance_latency_total_ms,
            "rebalance-latency-avg": member.rebalance_latency_total_ms / max(1, member.rebalances),
            "rebalance-latency-max": member.rebalance_latency_max_ms,
            "last-rebalance-seconds-ago": seconds_since(member.last_rebalance_at_ms),
        }

    # Polling

    def polled(self) -> None:
        """Note that the user polls; `poll` calls it, too. Cheap, and allowed in any thread."""
        self.membership.polled(self._now_ms())

    async def poll(self, deadline_ms: float) -> None:
        """Do the work that is due: callbacks, revoking and taking partitions, joining, auto commit.

        It waits for the user's callbacks, and up to `deadline_ms` for the commit before a revocation; for nothing else.
        Raises errors of the callbacks, and fatal errors of the group.
        """
        self.polled()
        if self._polling:
            return  # the listener polls: the rebalance continues after it returns
        self._polling = True
        try:
            await self.commits.run_callbacks()
            if self._subscriptions.has_auto_assigned_partitions:
                await self._rebalance_further(deadline_ms)
            self._auto_commit_if_due()
        finally:
            self._polling = False
            self._changed()

    async def _rebalance_further(self, deadline_ms: float) -> None:
        membership = self.membership
        self._resubscribed = False
        membership.start(self._now_ms())
        self._raise_failure()
        if self._rebalance.has_pending_assignment_call:
            await self._rebalance.repeat_assignment_call()
        self._take_in_metadata()
        if not membership.rejoin_needed and (reason := self._rebalance.reason_to_rejoin(self._metadata.version)):
            membership.request_rejoin(reason)
        self._changed()
        while membership.wants_poll(self._now_ms()):
            self._raise_failure()
            try:
                if not await self._advance(deadline_ms):
                    break
            finally:
                self._changed()

    def _raise_failure(self) -> None:
        membership = self.membership
        failure = membership.fenced or membership.failure
        membership.failure = None
        if failure is not None:
            raise failure

    async def _advance(self, deadline_ms: float) -> bool:
        """Do the next step of a rebalance; False if it has to wait."""
        membership = self.membership
        if membership.assignment is not None:
            revoked = self._rebalance.to_revoke()
            self._subscriptions.mark_pending_revocation(revoked)
            if revoked and not await self._commit_first(revoked, deadline_ms):
                return False
            if membership.assignment is not None:
                await self._rebalance.complete()
                self._auto_commit_due_ms = self._now_ms() + self._config.auto_commit_interval_ms
            return True
        if not self._has_fresh_topics():
            return False
        if membership.needs_prepare:
            if not membership.has_lost_membership:
                self._rebalance.mark_pending()
                if not await self._commit_first(list(self._subscriptions.assigned_partitions), deadline_ms):
                    return False
            else:
                self._drop_commit_before()
            await self._prepare()
        if not membership.needs_prepare and membership.can_join(self._now_ms()):
            self._stale_version = None
            membership.join(self._rebalance.protocols(), self._now_ms())
        return True

    async def _prepare(self) -> None:
        membership = self.membership
        membership.needs_prepare = False
        try:
            await self._rebalance.prepare()
        except asyncio.CancelledError:
            membership.needs_prepare = True
            raise

    async def _commit_first(self, partitions: Iterable[TopicPartition], deadline_ms: float) -> bool:
        """Before these are revoked: commit them if auto commit is on. False: not done yet."""
        if not self._config.enable_auto_commit:
            return True
        if self._commit_before is None:
            offsets = self._consumed(partitions)
            if not offsets:
                return True
            work = self.commits.commit_patiently(offsets, self.membership.settings.max_poll_interval_ms)
            self._commit_before = self._spawn(work)
        left_ms = max(0.0, deadline_ms - self._now_ms())
        await asyncio.wait({self._commit_before}, timeout=None if left_ms == float("inf") else left_ms / 1000)
        if not self._commit_before.done():
            return False
        self._commit_before = None
        await self.commits.run_callbacks()
        return True

    def _drop_commit_before(self) -> None:
        """Cancel the commit before a revocation: its partitions may belong to other members by now."""
        if self._commit_before is not None:
            self._commit_before.cancel()
            self._commit_before = None

    def _consumed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        consumed = self._subscriptions.all_consumed()
        return {each: consumed[each] for each in partitions if each in consumed}

    def _take_in_metadata(self) -> None:
        """Update a pattern subscription for topics that were created or deleted."""
        subscriptions = self._subscriptions
        if subscriptions.type is not SubscriptionType.PATTERN or self._metadata.version == self._seen_version:
            return
        self._seen_version = self._metadata.version
        if self._metadata.version:
            found = {
                name
                for name, topic in self._cluster.metadata.topics.items()
                if subscriptions.matches_pattern(name)
                and not (self._config.exclude_internal_topics and topic.is_internal)
            }
            expected = filter(subscriptions.matches_pattern, subscriptions.subscription)
            subscriptions.subscribe_from_pattern(found | self._missing.passing(expected, found))

    def _has_fresh_topics(self) -> bool:
        """With a pattern, members refresh metadata before they join, so that one rebalance finds all new topics."""
        if self._subscriptions.type is not SubscriptionType.PATTERN:
            return True
        if self._stale_version is None:
            self._stale_version = self._metadata.version
            self._metadata.request_update()
            # Wait for the first metadata; later not, if no topic matches so far.
            return bool(self._metadata.version) and not self._subscriptions.subscription
        return self._metadata.version > self._stale_version

    def subscription_changed(self) -> None:
        """Handle a change of the subscription by the user."""
        self._seen_version = -1
        self._stale_version = None
        self._resubscribed = True
        self._changed()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Trigger a rebalance with the next poll, for a change that only the assignor knows of."""
        self.membership.request_rejoin(reason or "rebalance enforced by user")
        self._changed()

    # Commits

    def _auto_commit_if_due(self) -> None:
        now_ms = self._now_ms()
        if not self._config.enable_auto_commit or now_ms < self._auto_commit_due_ms:
            return
        self._auto_commit_due_ms = now_ms + self._config.auto_commit_interval_ms
        if self.membership.is_active and (self.membership.has_lost_membership or self.membership.is_rebalancing):
            return
        self._commit_consumed()

    def assignment_changes(self) -> None:
        """Before the user assigns other partitions: auto commit those that are removed.

        No rebalance would do it.
        """
        if self._config.enable_auto_commit:
            self._commit_consumed()
        self._changed()

    def _commit_consumed(self) -> None:
        consumed = self._subscriptions.all_consumed()
        if consumed:
            try:
                self.commits.commit_async(consumed, self._auto_committed)
            except RetriableCommitFailedError as error:
                self._auto_committed(consumed, error)

    def _auto_committed(self, offsets: Offsets, error: ClientError | None) -> None:
        if isinstance(error, RetriableCommitFailedError):
            self._auto_commit_due_ms = min(
                self._auto_commit_due_ms, self._now_ms() + self.membership.settings.retry_backoff_ms
            )
        elif error is not None:
            log.warning("group %s: commit by itself: %s", self.membership.settings.group_id, error)

    # Leaving

    async def leave(self, timeout_ms: int, reason: str = UNSUBSCRIBED) -> None:
        """Leave the group: auto commit, call the listener, send LeaveGroup.

        Waits for the commit and the coordinator's response, at most `timeout_ms`. Does nothing if the consumer is not a
        member. Raises RebalanceListenerError at the end.
        """
        membership = self.membership
        deadline_ms = self._now_ms() + timeout_ms
        self._drop_commit_before()
        try:
            await self._commit_last(deadline_ms)
            if membership.is_active:
                await self._rebalance.give_up()
        finally:
            if membership.is_active:
                if reason != CLOSED or self._config.internal_leave_group_on_close:
                    membership.leave(reason)
                goodbye = self._carry_out()
                membership.stop()
                self._changed()
                if goodbye:
                    await asyncio.wait(goodbye, timeout=max(0.0, deadline_ms - self._now_ms()) / 1000)

    async def _commit_last(self, deadline_ms: float) -> None:
        membership, config = self.membership, self._config
        may_commit = not membership.is_active or not (membership.has_lost_membership or membership.is_rebalancing)
        consumed = self._subscriptions.all_consumed()
        if config.enable_auto_commit and may_commit and consumed:
            await self.commits.commit_patiently(consumed, max(0.0, deadline_ms - self._now_ms()))

    async def close(self, timeout_ms: int = 30_000) -> None:
        """Commit, leave, and stop; returns when done or at the timeout. Raises RebalanceListenerError."""
        if self._closed:
            return
        self._closed = True
        deadline_ms = self._now_ms() + timeout_ms
        try:
            try:
                await self.commits.drain(deadline_ms)
            finally:  # whatever a callback raised
                await self.leave(max(0, int(deadline_ms - self._now_ms())), CLOSED)
        finally:
            self.membership.stop()
            if self._timer is not None:
                self._timer.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.commits.close()
            self._log_state()

    # Background work

    def _changed(self) -> None:
        """After each event of the membership: carry out its actions, and set the timer to its next deadline."""
        self._carry_out()
        now_ms = self._now_ms()
        due = [self.membership.next_deadline_ms(now_ms)]
        if self._config.enable_auto_commit:
            due.append(self._auto_commit_due_ms if self._auto_commit_due_ms > now_ms else None)
        needed = (
            self.membership.wants_poll(now_ms)
            or self.commits.has_callbacks
            or self._rebalance.has_pending_assignment_call
            or self._resubscribed
            or (self._config.enable_auto_commit and now_ms >= self._auto_commit_due_ms)
        )
        if needed and not self.needs_poll:
            self._notify()
        self.needs_poll = needed
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # A poll that waits is woken halfway, in time to poll again and stay in the group.
        halfway_ms = self.membership.last_poll_ms + self.membership.settings.max_poll_interval_ms / 2
        due.append(halfway_ms if self.membership.is_active and halfway_ms > now_ms else None)
        soonest = min((each for each in due if each is not None), default=None)
        if soonest is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, soonest - now_ms) / 1000, self._on_time)
        self._log_state()

    def _on_time(self) -> None:
        self._timer = None
        self.membership.wake(self._now_ms())
        self._changed()
        self._notify()

    def _carry_out(self) -> list[asyncio.Task[None]]:
        """Start the actions of the membership; returns the tasks that send LeaveGroup."""
        actions, self.membership.actions = self.membership.actions, []
        goodbyes = []
        for action in actions:
            if isinstance(action, FindCoordinator):
                self._spawn(self._link.find())
            elif isinstance(action, DropCoordinator):
                self._link.drop()
            elif isinstance(action, Assign):
                self._spawn(self._lead(action))
            else:
                task = self._spawn(self._send(action))
                if isinstance(action.request, LeaveGroupRequest):
                    goodbyes.append(task)
        return goodbyes

    async def _send(self, action: Send) -> None:
        try:
            answer = await self._link.ask(action.request, action.timeout_ms)
        except Exception as error:  # whatever it is: no response will come then
            failed = as_client_error("the group's coordinator cannot be asked", error)
            self.membership.request_failed(action.request, failed, self._now_ms())
        else:
            self.membership.receive(action.request, answer, self._now_ms())
        self._changed()

    async def _lead(self, action: Assign) -> None:
        try:
            assignments = await self._rebalance.assign(action.answer)
        except Exception as error:  # whatever it is: the others wait for this member
            failed = as_client_error("the group cannot be led", error)
            self.membership.assignment_failed(action.answer, failed, self._now_ms())
        else:
            self.membership.assigned(action.answer, assignments)
        self._changed()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _log_state(self) -> None:
        group = self.membership.settings.group_id
        notes, self.membership.notes = self.membership.notes, []
        for note in notes:
            log.log(logging.WARNING if note.is_warning else logging.INFO, "group %s: %s", group, note.text)
        before, self._client_state = self._client_state, self.membership.client_state
        if before is not self._client_state:
            log.info("group %s: consumer state %s -> %s", group, before.name, self._client_state.name)

    def _now_ms(self) -> float:
        return self._cluster.clock.monotonic_ms()
