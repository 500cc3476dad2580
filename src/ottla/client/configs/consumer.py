"""The configuration of a consumer.

Sources: Apache Kafka 3.9's ConsumerConfig and KafkaConsumer, for names, defaults and the rules between settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.configs.base import ClientConfig, made, settle_client_id, settle_common
from ottla.client.configs.draft import ConfigDraft
from ottla.client.configs.settings import CONSUMER
from ottla.wire.strings import MAX_STRING_LENGTH

MAX_INSTANCE_ID_LENGTH = 249
MOST_CLIENT_ID_BYTES = MAX_STRING_LENGTH - len("-00000000-0000-0000-0000-000000000000")
"""Of a member of a group: brokers make the member's id of its client id, a dash and a UUID."""
_INSTANCE_ID = re.compile(r"[a-zA-Z0-9._-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """All settings of a consumer."""

    allow_auto_create_topics: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int
    enable_auto_commit: bool
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    fetch_min_bytes: int
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    heartbeat_interval_ms: int
    interceptor_classes: tuple[Any, ...]
    internal_leave_group_on_close: bool
    internal_throw_on_fetch_stable_offset_unsupported: bool
    isolation_level: str
    key_deserializer: Any
    max_partition_fetch_bytes: int
    max_poll_interval_ms: int
    max_poll_records: int
    partition_assignment_strategy: tuple[Any, ...]
    session_timeout_ms: int
    value_deserializer: Any


def parse_consumer_config(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> ConsumerConfig:
    """Parse the mapping and the keywords; both may use Kafka's names (client.id) or Python's (client_id).

    Raises InvalidConfigError with all problems.
    """
    draft = ConfigDraft(CONSUMER, config, keywords)
    settle_common(draft)
    if not draft.problems:
        _settle_group(draft)
        _settle_session(draft)
        _settle_fetch(draft)
    group, instance = draft.values["group.id"], draft.values["group.instance.id"]
    settle_client_id(draft, "consumer", group=group, instance=instance)
    if group is not None and not draft.problems:
        _check_member_id(draft)
    return made(ConsumerConfig, draft)


def _settle_group(draft: ConfigDraft) -> None:
    values = draft.values
    group, instance = values["group.id"], values["group.instance.id"]
    if group is None:
        if draft.is_set("enable.auto.commit") and values["enable.auto.commit"]:
            draft.problems.append(
                "enable.auto.commit=true needs a group to commit for. Give group.id, or set it to false."
            )
        values["enable.auto.commit"] = False
        if instance is not None:
            draft.problems.append(f"group.instance.id={instance} needs a group. Give group.id.")
    elif not group.strip():
        draft.problems.append("group.id is empty. Give it a name, or leave it out to consume without a group.")
    if instance is not None and (
        len(instance) > MAX_INSTANCE_ID_LENGTH or _INSTANCE_ID.match(instance) is None or instance in (".", "..")
    ):
        draft.problems.append(
            f"group.instance.id={instance} is not possible: it has 1 to {MAX_INSTANCE_ID_LENGTH} letters of ASCII, "
            "digits, '.', '_' and '-', and is neither '.' nor '..'."
        )


def _check_member_id(draft: ConfigDraft) -> None:
    """The client id leaves room for the member's id; where none is given, it was made of the group's name."""
    size = len(draft.values["client.id"].encode(errors="replace"))
    if size <= MOST_CLIENT_ID_BYTES:
        return
    if draft.is_set("client.id"):
        what, cure = f"client.id has {size} bytes", "Give a shorter one."
    else:
        what = f"group.id is long, and the client.id that is made of it has {size} bytes"
        cure = "Give a client.id, or a shorter group.id."
    draft.problems.append(
        f"{what}; that of a group's member has {MOST_CLIENT_ID_BYTES} at most, since brokers make the member's id of "
        f"it. {cure}"
    )


def _settle_session(draft: ConfigDraft) -> None:
    """Default of the heartbeat interval: a third of the session timeout, if that is below the usual default."""
    values = draft.values
    heartbeat, session = values["heartbeat.interval.ms"], values["session.timeout.ms"]
    for name in ("heartbeat.interval.ms", "session.timeout.ms"):
        if values[name] < 1:
            draft.problems.append(f"{name}={values[name]} is not possible. Give it 1 or more milliseconds.")
            return
    if heartbeat < session:
        return
    third = max(session // 3, 1)
    if draft.is_set("heartbeat.interval.ms") or third >= session:
        draft.problems.append(
            f"heartbeat.interval.ms={heartbeat} is not shorter than session.timeout.ms={session}, so that the member "
            f"would be taken for dead between two heartbeats. Lower it to {third}, a third of that."
        )
    else:
        values["heartbeat.interval.ms"] = third


def _settle_fetch(draft: ConfigDraft) -> None:
    """Brokers limit fetch.min.bytes to fetch.max.bytes; a fetch must be answered before its request times out."""
    values = draft.values
    least, most = values["fetch.min.bytes"], values["fetch.max.bytes"]
    if least > most and draft.is_set("fetch.min.bytes") and draft.is_set("fetch.max.bytes"):
        draft.problems.append(
            f"fetch.min.bytes={least} is more than fetch.max.bytes={most}, so that no fetch could ever bring it. "
            "Lower fetch.min.bytes or raise fetch.max.bytes."
        )
    wait, timeout = values["fetch.max.wait.ms"], values["request.timeout.ms"]
    if wait < timeout:
        return
    if draft.is_set("fetch.max.wait.ms"):
        draft.problems.append(
            f"fetch.max.wait.ms={wait} is not shorter than request.timeout.ms={timeout}, so that fetches of quiet "
            "partitions would fail. Lower fetch.max.wait.ms or raise request.timeout.ms."
        )
    else:
        values["fetch.max.wait.ms"] = timeout // 2
