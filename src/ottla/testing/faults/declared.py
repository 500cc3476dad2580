"""The fault rules of a test broker, and the requests that it has seen."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import UUID

from ottla.broker.intercept import AnswerError, ChangeResponse, Cut, Delay, Disconnect, Drop, Throttle, Verdict
from ottla.testing.errors import TestBrokerError
from ottla.testing.faults.named import NAMES, api_named, error_named
from ottla.testing.faults.requests import (
    NAMES_KEPT,
    TOPIC_ARRAYS,
    SeenRequest,
    groups_named,
    names_all_topics,
    topics_named,
)
from ottla.testing.faults.rules import Conditions, Matching, byte_count, conditions, milliseconds
from ottla.testing.waiting import WAIT_TIMEOUT_S, until
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType
    from typing import Self, Unpack

    from ottla.broker.context import RequestContext
    from ottla.broker.server import Broker
    from ottla.testing.loop_host import LoopHost

log = logging.getLogger("ottla.testing")

Names: TypeAlias = tuple[str, ...]

#: Most requests of one API that are kept.
REQUESTS_KEPT: Final = 1_000
#: Most rules at a time.
MOST_RULES: Final = 1_000


class Effect(Protocol):
    """The effect of a rule on a request that it applies to."""

    def __call__(self, context: RequestContext, request: Any, /) -> Verdict:
        """The verdict for this request."""
        ...


class FaultRule:
    """A declared fault. Use it with `with` to remove it at the end, or call `remove`."""

    def __init__(self, faults: Faults, what: str, requirements: Conditions, effect: Effect) -> None:
        self._faults = faults
        self._what = what
        self.conditions: Final = requirements
        self.effect: Final = effect
        #: Matching requests since the declaration.
        self.seen = 0
        #: Requests that the rule was applied to.
        self.fired = 0
        #: The first exception of the function `when=`; the rule does not apply to requests for which it raises.
        self.failure: BaseException | None = None

    def remove(self) -> None:
        """End the rule; removing it twice does nothing. Raises `TestBrokerError` where its function `when=` failed."""
        self._faults.remove(self)
        self._check()

    def wait_until_fired(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the rule was applied to `count` requests.

        Raises `WaitedInVainError`, and `TestBrokerError` where its function `when=` failed.
        """
        self.submit_wait(count, timeout_s).result()

    def submit_wait(self, count: int, timeout_s: float) -> Future[None]:
        """Begin to wait until the rule was applied to `count` requests; the future ends with the wait."""
        return self._faults.submit_wait(self, count, timeout_s)

    def _check(self) -> None:
        if self.failure is not None:
            raise TestBrokerError(f"the function when= of the rule {self} failed: {self.failure!r}") from self.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._faults.remove(self)
        if error is None:
            self._check()

    def __repr__(self) -> str:
        said = str(self.conditions)
        return f"<{self._what}{' for ' + said if said else ''}: {self.seen} seen, {self.fired} fired>"


class Faults:
    """The fault rules of a test broker: `broker.faults.delay("Fetch", ms=500)`.

    Each takes an API's name, and which of its requests are meant (`ottla.testing.faults.rules.Matching`): `nth`,
    `times`, `topic`, `group`, `client_id`, `when`. If several apply to a request, the one declared first wins. Each
    raises `TestBrokerError` for what it cannot do.
    """

    def __init__(self, host: LoopHost, server: Broker) -> None:
        self._host = host
        self._server = server
        self._rules: list[FaultRule] = []
        #: Version, client id, topics, groups and time of the latest requests.
        self._requests: dict[ApiKey, deque[tuple[int, str, Names, Names, int]]] = {}
        self._counts: dict[ApiKey, int] = {}

    # Declaring

    def fail(self, api: str | ApiKey, error: str | ErrorCode, **matching: Unpack[Matching]) -> FaultRule:
        """Answer with this error, wherever the response has a field for it, and do not handle the request.

        With `topic` only that topic fails, and the rest of the request is handled; OffsetFetch and DescribeLogDirs
        fail whole. A request without a place for an error has its connection closed, and so has Produce with acks=0.
        """
        key, code = api_named(api), error_named(error)
        wanted = conditions(key, matching)

        def effect(context: RequestContext, request: Any) -> Verdict:
            return self._fail(context, key, request, code, wanted.topic)

        return self._declare(f"fail {NAMES[key]} with {code.name}", wanted, effect)

    def delay(self, api: str | ApiKey, ms: float, **matching: Unpack[Matching]) -> FaultRule:
        """Handle the request `ms` milliseconds later; `advance` of the broker ends the delay early."""
        duration_ms = milliseconds(ms)
        return self._simple(f"delay by {duration_ms} ms:", api, matching, Delay(duration_ms))

    def disconnect(self, api: str | ApiKey, **matching: Unpack[Matching]) -> FaultRule:
        """Close the connection instead of handling the request."""
        return self._simple("disconnect at", api, matching, Disconnect())

    def cut(self, api: str | ApiKey, after_bytes: int, **matching: Unpack[Matching]) -> FaultRule:
        """Handle the request, and close the connection after `after_bytes` of the response.

        The bytes count from the response's size field on; with 0 the client gets nothing of it.
        """
        after = byte_count(after_bytes)
        return self._simple(f"cut after {after} bytes:", api, matching, Cut(after))

    def drop(self, api: str | ApiKey, **matching: Unpack[Matching]) -> FaultRule:
        """Neither handle nor answer the request; the connection stays open.

        Later requests of the same connection are not answered either, since responses keep their order.
        """
        return self._simple("drop", api, matching, Drop())

    def throttle(self, api: str | ApiKey, ms: float, **matching: Unpack[Matching]) -> FaultRule:
        """Handle the request, report this throttle time, and read nothing from the connection for it (KIP-219)."""
        duration_ms = milliseconds(ms)
        return self._simple(f"throttle by {duration_ms} ms:", api, matching, Throttle(duration_ms))

    def clear(self) -> None:
        """Remove all rules. Raises `TestBrokerError` where the function `when=` of one of them failed."""
        removed = list(self._rules)
        self._host.call(self._rules.clear)
        for rule in removed:
            rule._check()

    def _simple(self, what: str, api: str | ApiKey, matching: Matching, verdict: Verdict) -> FaultRule:
        key = api_named(api)
        return self._declare(f"{what} {NAMES[key]}", conditions(key, matching), lambda _context, _request: verdict)

    def _declare(self, what: str, wanted: Conditions, effect: Effect) -> FaultRule:
        if len(self._rules) >= MOST_RULES:
            raise TestBrokerError(f"there are {MOST_RULES} rules already: remove some, or all with faults.clear()")
        rule = FaultRule(self, what, wanted, effect)
        self._host.call(self._rules.append, rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Remove a rule; see `FaultRule.remove`."""
        if rule in self._rules and not self._host.loop.is_closed():
            self._host.call(self._remove, rule)

    def _remove(self, rule: FaultRule) -> None:
        if rule in self._rules:
            self._rules.remove(rule)

    def submit_wait(self, rule: FaultRule, count: int, timeout_s: float) -> Future[None]:
        """See `FaultRule.submit_wait`."""

        def look() -> bool | None:
            rule._check()
            return True if rule.fired >= count else None

        async def wait() -> None:
            await until(look, lambda: f"the rule {rule} to be applied {count} times", timeout_s)

        return self._host.submit(wait())

    # Applying

    def intercept(self, context: RequestContext, request: Any) -> Verdict | None:
        """Note a request, and decide what happens to it (`ottla.broker.intercept.Intercept`)."""
        key = ApiKey(context.header.api_key)
        topics, groups = self._note(key, context, request)
        applied: FaultRule | None = None
        for rule in self._rules:
            if rule.conditions.key is not key or not _matches(rule, context, request, topics, groups):
                continue
            rule.seen += 1
            if applied is None and rule.conditions.is_due(rule.seen, rule.fired):
                rule.fired += 1
                applied = rule
        return None if applied is None else applied.effect(context, request)

    def _fail(self, context: RequestContext, key: ApiKey, request: Any, error: ErrorCode, topic: str | None) -> Verdict:
        from ottla.testing.faults.failing import fail_fetch, fail_metadata, fail_topics

        version = context.api_version
        names = self._server.image.topic_names

        def is_failing(each: str | UUID | None) -> bool:
            return topic is None or topic == (names.get(each) if isinstance(each, UUID) else each)

        change: Callable[[Any], None]
        if key is ApiKey.FETCH:
            change = fail_fetch(version, request, error, is_failing, lambda: self._fetched(request))
        elif key is ApiKey.METADATA:
            change = fail_metadata(version, request, error, is_failing)
        elif topic is not None and key in TOPIC_ARRAYS:
            change = fail_topics(key, version, request, error, is_failing)
            if key is ApiKey.PRODUCE and request.acks == 0:
                return Cut(0)
        elif key is ApiKey.PRODUCE and request.acks == 0:
            return Disconnect()
        else:
            return AnswerError(error)
        return ChangeResponse(change)

    def _fetched(self, request: Any) -> list[tuple[str | UUID, int]]:
        replica_id = max(request.replica_id, request.replica_state.replica_id)
        session = self._server.sessions_of(replica_id).get(request.session_id)
        return [] if session is None else list(session.partitions)

    # Requests seen

    def _note(self, key: ApiKey, context: RequestContext, request: Any) -> tuple[Names, Names]:
        version = context.api_version
        session: list[str | UUID] = []
        if key is ApiKey.FETCH and request.session_id:
            session = [topic for topic, _ in self._fetched(request)]
        topics = topics_named(key, version, request, self._server.image.topic_names, session)
        groups = groups_named(key, version, request)
        kept = self._requests.get(key)
        if kept is None:
            kept = self._requests[key] = deque(maxlen=REQUESTS_KEPT)
        kept.append((version, context.client_id, topics[:NAMES_KEPT], groups[:NAMES_KEPT], self._server.clock.now_ms()))
        self._counts[key] = self._counts.get(key, 0) + 1
        return topics, groups

    def requests(self, wanted: Conditions) -> list[SeenRequest]:
        """The kept requests of an API that are as wanted, oldest first. To be called in the broker's thread."""
        return [
            SeenRequest(NAMES[wanted.key], version, client_id, topics, groups, at_ms)
            for version, client_id, topics, groups, at_ms in self._requests.get(wanted.key, ())
            if wanted.matches(topics, groups, client_id, None)
        ]

    def count(self, api: str | ApiKey) -> int:
        """How many requests of an API came in."""
        return self._counts.get(api_named(api), 0)

    async def wait_for_requests(self, wanted: Conditions, count: int, timeout_s: float) -> list[SeenRequest]:
        """The kept requests as wanted once there are, or were, at least `count`."""
        api = NAMES[wanted.key]
        if (said := str(wanted)) and count > REQUESTS_KEPT:
            raise TestBrokerError(f"{count} requests with {said}: no more than {REQUESTS_KEPT} of an API are kept")

        def found() -> int:
            return len(self.requests(wanted)) if said else self._counts.get(wanted.key, 0)

        def look() -> list[SeenRequest] | None:
            return self.requests(wanted) if found() >= count else None

        def what() -> str:
            return f"{count} requests {api}{' with ' + said if said else ''}: {found()} came in"

        return await until(look, what, timeout_s)


def _matches(rule: FaultRule, context: RequestContext, request: Any, topics: Names, groups: Names) -> bool:
    names_all = rule.conditions.key is ApiKey.METADATA and names_all_topics(context.api_version, request)
    try:
        return rule.conditions.matches(topics, groups, context.client_id, request, names_all)
    except BaseException as error:  # pytest.fail raises none that is an Exception, and SystemExit would end the loop
        log.exception("the function when= of the rule %s failed", rule)
        rule.failure = rule.failure or error
        return False
