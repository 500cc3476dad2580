"""The cluster's delegation tokens: read from the znodes, changed there, and followed as other brokers change them.

Changes are announced in the same transaction (`zk.layout.delegation_tokens`). The rules are those of Apache Kafka 3.9's
DelegationTokenManagerZk; all brokers have the same secret.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.control.announced_changes import READ_AT_ONCE, Announced, AnnouncedChanges
from ottla.broker.control.refusals import METADATA_ERRORS
from ottla.broker.control.znodes import expired_notifications, reconfigured
from ottla.cluster.configs import LARGEST_NODE
from ottla.cluster.delegation_tokens import TokenInformation, hmac_of
from ottla.cluster.refusal import TopicRefusal
from ottla.security.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    TokenLogin,
    credential_of_password,
)
from ottla.wire.errors import ErrorCode
from ottla.zk.layout import DelegationTokenChangeZnode, DelegationTokenZnode, ZnodeDataError
from ottla.zk.tree import Create, Delete, NoNodeError, Operation, Set

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.env.clock import Clock
    from ottla.env.randomness import Randomness
    from ottla.zk.client import ZkClient

log = logging.getLogger("ottla.broker")

LONGEST_TIME_MS: Final = 2**63 - 1
"""What clients and znodes can have."""


def _refusal(error: ErrorCode) -> TopicRefusal:
    return TopicRefusal(error, error.message)


NOT_FOUND = _refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
OWNER_MISMATCH = _refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
EXPIRED = _refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)


class DelegationTokenSettings(NamedTuple):
    """The secret of the tokens' HMACs, and times in milliseconds."""

    secret: str
    max_lifetime_ms: int
    expiry_ms: int
    check_interval_ms: int

    def __repr__(self) -> str:
        return f"DelegationTokenSettings(max_lifetime_ms={self.max_lifetime_ms}, expiry_ms={self.expiry_ms})"

    @classmethod
    def of(cls, config: BrokerConfig) -> DelegationTokenSettings:
        """The settings of a broker."""
        return cls(
            config.delegation_token_secret,
            config.get_long("delegation.token.max.lifetime.ms"),
            config.get_long("delegation.token.expiry.time.ms"),
            config.get_long("delegation.token.expiry.check.interval.ms"),
        )


class DelegationTokens:
    """The tokens, followed from `start` to `stop`. While `is_controller`, expired ones are removed."""

    #: Renewers and owners in a request; the tokens of Apache Kafka are limited by the size of a znode only.
    MOST_PRINCIPALS: Final = 10_000

    def __init__(
        self,
        zk: ZkClient,
        settings: DelegationTokenSettings,
        clock: Clock,
        randomness: Randomness,
        new_id: Callable[[], str],
        is_controller: Callable[[], bool],
    ) -> None:
        self._zk = zk
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        self._new_id = new_id
        self._is_controller = is_controller
        self._tokens: dict[str, TokenInformation] = {}
        self._ids: dict[bytes, str] = {}
        #: Of tokens that have logged in, by mechanism and id.
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._changing = asyncio.Lock()
        self._changes = AnnouncedChanges(
            zk,
            self,
            [DelegationTokenChangeZnode.ROOT],
            DelegationTokenChangeZnode.PREFIX,
            [DelegationTokenZnode.ROOT],
            "delegation tokens",
            log,
        )
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read all tokens, and follow their changes from now on. Raises `ZkError`, `DiskError`."""
        await self._changes.start()
        self._expiring = asyncio.get_running_loop().create_task(self._expire())

    async def stop(self) -> None:
        """Stop following changes."""
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await self._changes.stop()

    @property
    def tokens(self) -> Collection[TokenInformation]:
        """All tokens, those too that have expired and are not removed yet."""
        return self._tokens.values()

    def hmac(self, token: TokenInformation) -> bytes:
        """The HMAC of a token."""
        return hmac_of(self._settings.secret, token.token_id)

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """The credential and owner of a token that a client logs in by; None if it is unknown or has expired."""
        token, now_ms = self._tokens.get(token_id), self._clock.now_ms()
        if token is None or token.is_expired(now_ms):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            salt = self._randomness.secret_bytes(SALT_BYTES)
            password = b64encode(self.hmac(token)).decode()
            credential = credential_of_password(mechanism, password, salt, MIN_ITERATIONS)
            self._credentials[mechanism, token_id] = credential
        return TokenLogin(token.owner.partition(":")[2], credential, max(1, token.expiry_ms - now_ms))

    # Following

    async def read_all(self) -> None:
        """See `AnnouncedReader.read_all`."""
        await self._read([*self._tokens, *await self._zk.children(DelegationTokenZnode.ROOT)])

    async def read_announced(self, announced: Sequence[Announced]) -> None:
        """See `AnnouncedReader.read_announced`."""
        changed = []
        for path, data in announced:
            try:
                changed.append(DelegationTokenChangeZnode.decode(path, data))
            except ZnodeDataError as error:
                log.error("a change of a delegation token could not be followed: %s", error)
        await self._read(changed)

    async def _read(self, token_ids: Sequence[str]) -> None:
        once = list(dict.fromkeys(token_ids))
        for start in range(0, len(once), READ_AT_ONCE):
            some = once[start : start + READ_AT_ONCE]
            paths = [DelegationTokenZnode.path(each) for each in some]
            async with self._changing:
                for token_id, path, found in zip(some, paths, await self._zk.get_many(paths), strict=True):
                    token = None
                    try:
                        token = None if found is None else DelegationTokenZnode.decode(path, found[0])
                    except ZnodeDataError as error:
                        log.error("a delegation token cannot be used: %s", error)
                    self._take_over(token_id, token)

    def _take_over(self, token_id: str, token: TokenInformation | None) -> None:
        hmac = hmac_of(self._settings.secret, token_id)
        if token is not None:
            self._tokens[token_id] = token
            self._ids[hmac] = token_id
            return
        self._tokens.pop(token_id, None)
        self._ids.pop(hmac, None)
        for mechanism in SCRAM_MECHANISMS:
            self._credentials.pop((mechanism, token_id), None)

    # Changing

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> TokenInformation | TopicRefusal:
        """Make a token that is known here when this returns, and to other brokers soon."""
        longest_ms, now_ms = self._settings.max_lifetime_ms, self._clock.now_ms()
        lifetime_ms = longest_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest_ms)
        max_ms = min(now_ms + lifetime_ms, LONGEST_TIME_MS)
        expiry_ms = min(max_ms, now_ms + self._settings.expiry_ms)
        token = TokenInformation(self._new_id(), owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)
        size = sum(map(len, renewers))
        data = b"" if size > LARGEST_NODE else DelegationTokenZnode.encode(token)
        if max(size, len(data)) > LARGEST_NODE:
            return TopicRefusal(ErrorCode.INVALID_REQUEST, f"Renewers and owner take more than {LARGEST_NODE} bytes")

        async def once() -> TokenInformation:
            await self._write(Create(DelegationTokenZnode.path(token.token_id), data), token.token_id, token)
            return token

        return await reconfigured(once)

    async def renew(self, principal: str, hmac: bytes, period_ms: int) -> int | TopicRefusal:
        """Have a token live this long from now, or as long as new ones (negative); return when it expires."""
        return await self._changed(principal, hmac, self._settings.expiry_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: str, hmac: bytes, period_ms: int) -> int | TopicRefusal:
        """Have a token expire in this time, or remove it (negative); return when it expires."""
        return await self._changed(principal, hmac, None if period_ms < 0 else period_ms)

    async def _changed(self, principal: str, hmac: bytes, period_ms: int | None) -> int | TopicRefusal:
        token_id = self._ids.get(hmac)
        if token_id is None:
            return NOT_FOUND
        return await reconfigured(lambda: self._change(principal, token_id, period_ms))

    async def _change(self, principal: str, token_id: str, period_ms: int | None) -> int | TopicRefusal:
        path, now_ms = DelegationTokenZnode.path(token_id), self._clock.now_ms()
        try:
            data, stat = await self._zk.get(path)
        except NoNodeError:
            return NOT_FOUND
        token = DelegationTokenZnode.decode(path, data)
        if not token.may_be_renewed_by(principal):
            return OWNER_MISMATCH
        if period_ms is None:
            await self._write(Delete(path, stat.version), token_id, None)
            return now_ms
        if token.is_expired(now_ms):
            return EXPIRED
        changed = token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms))
        await self._write(Set(path, DelegationTokenZnode.encode(changed), stat.version), token_id, changed)
        return changed.expiry_ms

    async def _write(self, operation: Operation, token_id: str, token: TokenInformation | None) -> None:
        """Raises `ZkError`, `DiskError`."""
        root = DelegationTokenChangeZnode.ROOT
        data = DelegationTokenChangeZnode.encode(token_id)
        announcement = Create(f"{root}/{DelegationTokenChangeZnode.PREFIX}", data, sequential=True)
        async with self._changing:
            expired = await expired_notifications(self._zk, root, DelegationTokenChangeZnode.EXPIRATION_MS)
            await self._zk.multi([operation, announcement, *expired])
            self._take_over(token_id, token)

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._settings.check_interval_ms / 1000)  # sleep: until the next check
            if self._is_controller():
                await self.remove_expired()

    async def remove_expired(self) -> None:
        """Remove the tokens whose time is over; what fails is done at the next check."""
        now_ms = self._clock.now_ms()
        for token in [each for each in self._tokens.values() if each.is_expired(now_ms)]:
            path = DelegationTokenZnode.path(token.token_id)
            try:
                data, stat = await self._zk.get(path)
                if DelegationTokenZnode.decode(path, data).is_expired(now_ms):  # another broker may have renewed it
                    await self._write(Delete(path, stat.version), token.token_id, None)
            except (*METADATA_ERRORS, ZnodeDataError) as error:
                log.warning("the expired delegation token %s is not removed: %s", token.token_id, error)
