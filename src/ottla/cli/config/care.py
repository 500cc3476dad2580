"""Which changes of settings need care, and why: records are deleted, may be lost, are refused; names are mistyped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.config.settings import BROKER_SETTINGS, RUN_TIME_SETTINGS, TOPIC_SETTINGS, broker_setting, nearest_name

_UNCLEAN: Final = "committed records are lost where a replica that was not in sync is elected"
_RETENTION: Final = "older records are deleted"
_LIMITS_OF_RECORDS: Final = frozenset(("max.message.bytes", "message.max.bytes"))
#: Less of these deletes records; a negative value stands for no limit.
_RETENTIONS: Final = frozenset(
    (
        "retention.ms",
        "retention.bytes",
        "log.retention.ms",
        "log.retention.bytes",
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
    )
)
_POLICIES: Final = frozenset(("cleanup.policy", "log.cleanup.policy"))
_POLICY_DOES: Final[Mapping[str, str]] = {
    "delete": "records beyond the retention are deleted",
    "compact": "of records with equal keys only the newest are kept, and records without keys are refused",
}
#: Settings of one listener have its name before theirs.
_OF_LISTENERS: Final = "listener.name."
_THROTTLES: Final = frozenset(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))


def reason_for_care(name: str, now: str | None, new: str | None) -> str | None:
    """Why this change of a setting needs care; None where it does not. None for a value stands for an unknown one."""
    if name == "unclean.leader.election.enable":
        return _UNCLEAN if _is_true(new) and not _is_true(now) else None
    if name in _RETENTIONS:
        if new is None:
            return None if now is None else "older records are deleted if what comes back is less"
        # Another setting, in minutes or hours, holds where this one has no value.
        return _RETENTION if _shrinks("-1" if now is None else now, new, unlimited=True) else None
    if name in _LIMITS_OF_RECORDS:
        return "larger batches of records are refused" if _shrinks(now, new) else None
    if name in _POLICIES:
        return _care_of_policy(now, new)
    if name == "min.insync.replicas":
        if _shrinks(now, new):
            return "records are acknowledged when fewer replicas have them"
        return "producers with acks=all are refused where fewer replicas are in sync" if _shrinks(new, now) else None
    if name in _THROTTLES and new is not None and new.strip() == "0":
        return "throttled replicas are not copied at all"
    return None


def unknown_setting(name: str, *, of_topic: bool) -> str | None:
    """Why a setting's name may be mistyped, with the one that is most like it; None for a known one.

    Apache Kafka's brokers take settings of brokers by any name: a plugin may read them.
    """
    if name in TOPIC_SETTINGS if of_topic else broker_setting(name) or name.startswith(_OF_LISTENERS):
        return None
    near = nearest_name(name, TOPIC_SETTINGS if of_topic else [*BROKER_SETTINGS, *RUN_TIME_SETTINGS])
    return f"a {'topic' if of_topic else 'broker'} has no setting {name}{f' (is it {near}?)' if near else ''}"


def mistyped(refusal: str, names: Iterable[str]) -> str:
    """Guess the names of topic settings that a broker refuses as unknown, as a text to put before other advice."""
    refused = [name for name in names if refusal.partition(" (")[0].endswith(f"Unknown topic config name: {name}")]
    near = [nearest_name(name, TOPIC_SETTINGS) for name in refused]
    return "".join(f"is it {each}? " for each in near if each)


def _care_of_policy(now: str | None, new: str | None) -> str | None:
    before = {word.strip() for word in (now or "").split(",")}
    added = [word for word in ((new or "").split(",")) if word.strip() not in before]
    found = [_POLICY_DOES[word.strip()] for word in added if word.strip() in _POLICY_DOES]
    return "; ".join(found) or None


def _is_true(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _shrinks(now: str | None, new: str | None, *, unlimited: bool = False) -> bool:
    """Whether a number gets smaller; with `unlimited` negative ones are larger than any other."""
    try:
        before, after = int(now or ""), int(new or "")
    except ValueError:
        return False
    if unlimited:
        return after >= 0 and (before < 0 or after < before)
    return after < before
