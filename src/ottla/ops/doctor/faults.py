"""The faults that `ottla doctor` finds beside those of `ottla cluster health`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ottla.peer.errors import HandshakeFault


class FaultKind(Enum):
    """Kinds of faults: the name of each, and what is wrong then."""

    CONNECTION_REFUSED = "connection-refused", "nothing listens at an address"
    UNKNOWN_HOST = "unknown-host", "the name of a host does not resolve"
    NO_ANSWER = "no-answer", "an address does not accept a connection, or accepts it and does not answer"
    TLS_WANTED = "tls-wanted", HandshakeFault.TLS_WANTED.value
    TLS_NOT_SPOKEN = "tls-not-spoken", HandshakeFault.TLS_NOT_SPOKEN.value
    LOGIN_WANTED = "login-wanted", HandshakeFault.LOGIN_WANTED.value
    LOGIN_NOT_TAKEN = "login-not-taken", HandshakeFault.LOGIN_NOT_TAKEN.value
    UNTRUSTED_CERTIFICATE = "untrusted-certificate", HandshakeFault.UNTRUSTED_CERTIFICATE.value
    WRONG_HOST_NAME = "wrong-host-name", HandshakeFault.WRONG_HOST_NAME.value
    EXPIRED_CERTIFICATE = "expired-certificate", HandshakeFault.EXPIRED_CERTIFICATE.value
    CLIENT_CERTIFICATE_MISSING = "client-certificate-missing", HandshakeFault.CLIENT_CERTIFICATE_MISSING.value
    CLIENT_CERTIFICATE_REFUSED = "client-certificate-refused", HandshakeFault.CLIENT_CERTIFICATE_REFUSED.value
    MECHANISM_NOT_ENABLED = "mechanism-not-enabled", HandshakeFault.MECHANISM_NOT_ENABLED.value
    LOGIN_REFUSED = "login-refused", HandshakeFault.LOGIN_REFUSED.value
    NO_TOKEN = "no-token", HandshakeFault.NO_TOKEN.value
    TLS_OR_LOGIN = "tls-or-login", "TLS or the login (SASL) fails for another reason"
    WEB_SERVER = "web-server", "a web server or a proxy is behind the port"
    ZOOKEEPER = "zookeeper", "a ZooKeeper is behind the port"
    OLD_BROKER = "old-broker", "a broker older than Apache Kafka 0.11 is behind the port"
    NOT_KAFKA = "not-kafka", "something else is behind the port"
    TWO_CLUSTERS = "two-clusters", "the bootstrap servers belong to different clusters"
    ADVERTISED_ANY = "advertised-any-address", "a broker advertises 0.0.0.0 or ::, which no machine has as its address"
    ADVERTISED_LOOPBACK = "advertised-loopback", "a broker elsewhere advertises the client's own machine"
    ADVERTISED_UNKNOWN_HOST = "advertised-unknown-host", "the host that a broker advertises does not resolve here"
    ADVERTISED_UNREACHABLE = (
        "advertised-unreachable",
        "the address that a broker advertises cannot be reached from here",
    )
    ADVERTISED_ELSEWHERE = "advertised-elsewhere", "another cluster is at the address that a broker advertises"
    SINGLE_REPLICA = "single-replica", "topics have one replica, and the cluster several brokers"
    MIN_ISR_ABOVE_FACTOR = "min-isr-above-factor", "min.insync.replicas is more than there are replicas"
    OFFSETS_TOPIC_MISSING = "offsets-topic-missing", "there are too few brokers to create __consumer_offsets"
    OFFSETS_TOPIC_THIN = "offsets-topic-thin", "__consumer_offsets has fewer replicas than three, or than brokers"
    ABOVE_REQUEST_LIMIT = "messages-above-request-limit", "max.message.bytes is more than socket.request.max.bytes"
    ABOVE_FETCH_LIMIT = "messages-above-fetch-limit", "max.message.bytes is more than replica.fetch.max.bytes"
    UNCLEAN_ELECTION_ENABLED = "unclean-election-enabled", "a replica that lacks records may become the leader"
    FUTURE_TIMESTAMPS = "future-timestamps", "records from the future keep their segments from being deleted"
    CLOCK_AHEAD = "clock-ahead", "records that a broker dated are ahead of this machine's clock"
    GROUP_UNANSWERED = "group-unanswered", "the coordinator of a group does not say what it knows"
    TOPIC_MISSING = "subscribed-topic-missing", "members subscribe to a topic that does not exist"
    UNASSIGNED_PARTITIONS = "unassigned-partitions", "a stable group leaves partitions of its topics to no member"
    LAG_WITHOUT_MEMBERS = "lag-without-members", "a group without members has records to read, and committed nothing"
    OFFSET_OUT_OF_RANGE = "offset-out-of-range", "records were deleted before a group read them"
    OFFSET_BEYOND_END = "offset-beyond-end", "a committed offset is beyond the end of the log"
    LAG_NEAR_RETENTION = "lag-near-retention", "records will soon be deleted that a group has not read"
    STUCK_REBALANCE = "stuck-rebalance", "a group rebalances at both of two looks"
    SLOW_REBALANCE = "slow-rebalance", "the last rebalance of a group took long (brokers of ottla record it)"
    FREQUENT_REBALANCES = "frequent-rebalances", "a group rebalanced often lately (brokers of ottla record it)"
    NO_PROGRESS = "no-progress", "a group with members and lag committed nothing between two looks"
    TOO_FEW_OPEN_FILES = "too-few-open-files", "a broker may open too few files for its logs (--data)"
    DAMAGED_META = "damaged-meta-properties", "meta.properties of a log directory cannot be read (--data)"
    WRONG_CLUSTER = "wrong-cluster", "a log directory belongs to another cluster (--data)"

    @property
    def slug(self) -> str:
        """Its name."""
        return self.value[0]

    @property
    def summary(self) -> str:
        """The fault in a few words."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class DoctorFault:
    """A fault: its name, where it is, what is wrong there, and one sentence that cures it."""

    fault: str
    where: str
    what: str
    cure: str


def fault(kind: FaultKind, where: str, what: str, cure: str) -> DoctorFault:
    """A fault of this kind."""
    return DoctorFault(kind.slug, where, what, cure)
