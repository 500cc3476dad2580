"""Quotas of clients: what each client used of late, and how long it has to wait (KIP-13, 55, 124, 599, 612).

The dispatcher has the quotas while there are any (`Dispatcher.quotas`), and gives each request a `Charge` then. What a
request used is recorded where it is answered; the response says for how long its connection is not read (KIP-219).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.broker.quotas.windows import SampledRate, TokenBucket
from ottla.cluster.quotas import ABSENT, DEFAULT, QuotaEntity, QuotaKey, address, candidates
from ottla.cluster.refusal import TopicRefusal
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.net.connection import Principal
    from ottla.wire.framing import RequestHeader

#: Most clients whose use is known; the one that was quiet for longest goes for a new one.
MOST_WINDOWS: Final = 20_000
#: Most clients of which it is kept which quota is theirs.
MOST_KNOWN: Final = 20_000
#: Client ids that are equal in this many characters count as one: what is kept of a client stays small.
LONGEST_CLIENT_ID: Final = 255
#: `fetch.max.bytes` is an int32.
LARGEST_FETCH: Final = 2**31 - 1
#: What brokers and logins send has no limit of time.
EXEMPT: Final = frozenset(
    (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)
QUOTA_EXCEEDED: Final = TopicRefusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED.message)

_Shared = tuple[str, str]


class CountedRequest(Protocol):
    """A request as its charge sees it (`RequestContext`)."""

    charge: Charge | None
    header: RequestHeader
    throttle_ms: int

    @property
    def principal(self) -> Principal:
        """The client's identity."""
        ...

    @property
    def client_id(self) -> str:
        """The client id, empty if there is none."""
        ...

    def throttle(self, throttle_ms: int) -> None:
        """Have the connection wait."""
        ...


class ClientQuotas:
    """The quotas of all clients, and what they used. `changed` is called when there are the first, or none any more."""

    def __init__(self, config: BrokerConfig, monotonic_ms: Callable[[], float], changed: Callable[[], None]) -> None:
        self.monotonic_ms = monotonic_ms
        self._changed = changed
        self._samples = config.get_int("quota.window.num")
        self._sample_ms = config.get_int("quota.window.size.seconds") * 1000.0
        samples, size_s = (
            config.get_int("controller.quota.window.num"),
            config.get_int("controller.quota.window.size.seconds"),
        )
        self._burst_s = float(samples * size_s)
        #: By entity, what it has.
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        #: The keys that any entity has.
        self._keys: frozenset[str] = frozenset()
        self._known: dict[tuple[str, str, str], tuple[_Shared, float] | None] = {}
        self._rates: dict[tuple[str, _Shared], SampledRate] = {}
        self._buckets: dict[_Shared, TokenBucket] = {}
        #: How often, and for how long, clients were throttled for a key.
        self.throttled = dict.fromkeys(QuotaKey, 0)
        self.throttled_ms = dict.fromkeys(QuotaKey, 0)

    @property
    def limits_clients(self) -> bool:
        """Whether there is a quota that requests count in."""
        return bool(self._keys - {QuotaKey.CONNECTION_CREATION_RATE})

    @property
    def limits_connections(self) -> bool:
        """Whether there is a quota that connections count in."""
        return QuotaKey.CONNECTION_CREATION_RATE in self._keys

    def set_all(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Have these quotas and no others."""
        self._quotas = {_as_connected(entity): values for entity, values in quotas.items() if values}
        self._apply()

    def set(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Have these quotas for an entity. What was used under the former ones counts."""
        entity = _as_connected(entity)
        if values:
            self._quotas[entity] = values
        elif self._quotas.pop(entity, None) is None:
            return
        self._apply()

    def _apply(self) -> None:
        self._known.clear()
        self._keys = frozenset(key for values in self._quotas.values() for key in values)
        self._changed()

    # Use

    def charge(self, context: CountedRequest, size: int) -> Charge:
        """For a request of `size` bytes."""
        return Charge(self, context, size)

    def limit_of(self, key: QuotaKey, user: str, client_id: str) -> tuple[_Shared, float] | None:
        """The clients that share the quota which counts for one, and its value; None for no limit."""
        if key not in self._keys:
            return None
        known = self._known
        asked = (key, user, client_id)
        if asked not in known:
            if len(known) >= MOST_KNOWN:
                known.clear()
            known[asked] = next(
                (
                    (shared, self._quotas[entity][key])
                    for entity, shared in candidates(user, client_id)
                    if key in self._quotas.get(entity, ())
                ),
                None,
            )
        return known[asked]

    def use(self, key: QuotaKey, user: str, client_id: str, value: float) -> int:
        """Record what a client used; return its throttle time in milliseconds."""
        found = self.limit_of(key, user, client_id)
        if found is None:
            return 0
        shared, limit = found
        now_ms = self.monotonic_ms()
        rate = self._rate(key, shared)
        rate.record(value, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def take_back(self, key: QuotaKey, user: str, client_id: str, value: float) -> None:
        """Take back what was recorded: the client does not get it."""
        found = self.limit_of(key, user, client_id)
        if found is not None:
            self._rate(key, found[0]).record(-value, self.monotonic_ms())

    def _rate(self, key: QuotaKey, shared: _Shared) -> SampledRate:
        rate = self._rates.pop((key, shared), None)
        if rate is None:
            rate = SampledRate(self._samples, self._sample_ms)
            if len(self._rates) >= MOST_WINDOWS:
                del self._rates[next(iter(self._rates))]
        self._rates[(key, shared)] = rate  # in the order of their last use
        return rate

    def bucket(self, shared: _Shared) -> TokenBucket:
        """The mutations that those who share a quota have left."""
        bucket = self._buckets.pop(shared, None)
        if bucket is None:
            bucket = TokenBucket(self._burst_s)
            if len(self._buckets) >= MOST_WINDOWS:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[shared] = bucket
        return bucket

    @property
    def longest_wait_ms(self) -> int:
        """Requests and connections wait for one sample at most."""
        return int(self._sample_ms)

    def window_bytes(self, user: str, client_id: str) -> int | None:
        """Most bytes of one fetch: what the quota allows in a window; None for no limit."""
        found = self.limit_of(QuotaKey.CONSUMER_BYTE_RATE, user, client_id)
        if found is None:
            return None
        size = found[1] * max(1, self._samples - 1) * self._sample_ms / 1000
        return int(max(0, min(LARGEST_FETCH, size)))

    def note(self, key: QuotaKey, throttle_ms: int) -> None:
        """Count a throttle for the metrics."""
        self.throttled[key] += 1
        self.throttled_ms[key] += throttle_ms

    def connection_wait_ms(self, host: str) -> int:
        """Record a new connection of an address; how long to keep it before it is closed, 0 to serve it."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        for entity in (QuotaEntity(ip=host), QuotaEntity(ip=DEFAULT)):
            limit = self._quotas.get(entity, {}).get(key)
            if limit is not None:
                break
        else:
            return 0
        now_ms = self.monotonic_ms()
        rate = self._rate(key, (host, ABSENT))
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit, now_ms), self.longest_wait_ms)
        if wait_ms:
            rate.record(-1, now_ms)
            self.note(key, wait_ms)
        return wait_ms


def _as_connected(entity: QuotaEntity) -> QuotaEntity:
    """The entity with its address as connections have it."""
    return entity._replace(ip=address(entity.ip) or entity.ip) if entity.ip else entity


class Charge:
    """The use that one request makes, until it is answered: its bytes, its time in the loop, changes of topics."""

    __slots__ = ("_began_ms", "_client_id", "_mutation_wait", "_quotas", "_size", "_time_ms", "_user")

    def __init__(self, quotas: ClientQuotas, context: CountedRequest, size: int) -> None:
        self._quotas = quotas
        self._user = context.principal.name
        self._client_id = context.client_id[:LONGEST_CLIENT_ID]
        self._size = size
        self._time_ms = 0.0
        self._began_ms: float | None = None
        self._mutation_wait: tuple[int, float] | None = None

    # Time

    def begin(self) -> bool:
        """Count the time from now on; False if it is counted already."""
        if self._began_ms is not None:
            return False
        self._began_ms = self._quotas.monotonic_ms()
        return True

    def end(self) -> None:
        """Count no more time."""
        if self._began_ms is not None:
            self._time_ms += self._quotas.monotonic_ms() - self._began_ms
            self._began_ms = None

    def timed(self, work: Coroutine[object, object, None]) -> Coroutine[object, object, None]:
        """The same work, of which each step is counted."""
        return _TimedWork(self, work)

    def _time_wait_ms(self, context: CountedRequest) -> int:
        quotas = self._quotas
        if context.header.api_key in EXEMPT:
            return 0
        self.end()
        # A thread that works all the time uses 100 percent.
        percent = self._time_ms / 10
        wait_ms = quotas.use(QuotaKey.REQUEST_PERCENTAGE, self._user, self._client_id, percent)
        return min(wait_ms, quotas.longest_wait_ms)

    # When the request is answered

    def answered(self, context: CountedRequest) -> None:
        """The request is answered: its connection waits if it used too much."""
        self._throttle(
            context, QuotaKey.CONTROLLER_MUTATION_RATE, self._mutation_wait_ms(), self._time_wait_ms(context)
        )

    def received(self) -> None:
        """Record the bytes of a produce request that is answered later: its client may have gone by then."""
        self._quotas.use(QuotaKey.PRODUCER_BYTE_RATE, self._user, self._client_id, self._size)
        self._size = 0

    def produced(self, context: CountedRequest, *, expects_answer: bool = True) -> None:
        """As `answered`, for a produce request: all its bytes count."""
        key = QuotaKey.PRODUCER_BYTE_RATE
        wait_ms = self._quotas.use(key, self._user, self._client_id, self._size)
        self._throttle(context, key, wait_ms, self._time_wait_ms(context) if expects_answer else 0)

    def fetched(self, context: CountedRequest, size: int) -> bool:
        """As `answered`, for a consumer's fetch of these bytes of records; whether it gets none, and waits."""
        key = QuotaKey.CONSUMER_BYTE_RATE
        time_ms = self._time_wait_ms(context)
        wait_ms = self._quotas.use(key, self._user, self._client_id, size)
        self._throttle(context, key, wait_ms, time_ms)
        if not (wait_ms or time_ms):
            return False
        self._quotas.take_back(key, self._user, self._client_id, size)
        return True

    @property
    def window_bytes(self) -> int | None:
        """Most bytes of one fetch; None for no limit."""
        return self._quotas.window_bytes(self._user, self._client_id)

    def _throttle(self, context: CountedRequest, key: QuotaKey, wait_ms: int, time_ms: int) -> None:
        context.charge = None
        if wait_ms <= time_ms:
            key, wait_ms = QuotaKey.REQUEST_PERCENTAGE, time_ms
        if wait_ms > context.throttle_ms:
            self._quotas.note(key, wait_ms)
            context.throttle(wait_ms)

    # Changes of topics

    def mutation_refusal(self, partitions: int, *, strict: bool) -> TopicRefusal | None:
        """Record partitions that are created or deleted; a strict request is refused while too many were before."""
        quotas = self._quotas
        found = quotas.limit_of(QuotaKey.CONTROLLER_MUTATION_RATE, self._user, self._client_id)
        if found is None:
            return None
        shared, rate = found
        bucket, now_ms = quotas.bucket(shared), quotas.monotonic_ms()
        if strict and bucket.tokens(rate, now_ms) < 0:
            self._mutation_wait = bucket.throttle_ms(rate, now_ms), now_ms
            return QUOTA_EXCEEDED
        bucket.take(partitions, rate, now_ms)
        wait_ms = 0 if strict else bucket.throttle_ms(rate, now_ms)
        if wait_ms:
            self._mutation_wait = wait_ms, now_ms
        return None

    def created_on_demand(self, partitions: int) -> None:
        """Record partitions that a Metadata request created; as in Apache Kafka it does not wait for them."""
        quotas = self._quotas
        found = quotas.limit_of(QuotaKey.CONTROLLER_MUTATION_RATE, self._user, self._client_id)
        if found is not None:
            quotas.bucket(found[0]).take(partitions, found[1], quotas.monotonic_ms())

    @property
    def limits_mutations(self) -> bool:
        """Whether changes of topics are limited for this client."""
        key = QuotaKey.CONTROLLER_MUTATION_RATE
        return self._quotas.limit_of(key, self._user, self._client_id) is not None

    def _mutation_wait_ms(self) -> int:
        if self._mutation_wait is None:
            return 0
        wait_ms, since_ms = self._mutation_wait
        return max(0, int(wait_ms - (self._quotas.monotonic_ms() - since_ms)))


class _TimedWork(Coroutine[Any, Any, None]):
    """A coroutine whose steps are counted in a charge."""

    __slots__ = ("_charge", "_work")

    def __init__(self, charge: Charge, work: Coroutine[Any, Any, None]) -> None:
        self._charge = charge
        self._work = work

    def send(self, value: Any) -> Any:
        is_first = self._charge.begin()
        try:
            return self._work.send(value)
        finally:
            if is_first:
                self._charge.end()

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> _TimedWork:
        return self

    def __iter__(self) -> _TimedWork:
        return self

    def __next__(self) -> Any:
        return self.send(None)
