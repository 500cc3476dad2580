"""Settings that cannot be honoured and must not be passed over: why, and what to do instead."""

from __future__ import annotations

from ottla.config.settings import REFUSED, Setting
from ottla.config.values import Value

_NO_TLS_OR_LOGIN = "this broker serves PLAINTEXT listeners only, without TLS and without logins"
_LEAVE_OUT = "remove it, or keep clients off this broker by the address it listens on"
_NO_KRAFT = "this broker coordinates through ZooKeeper's znodes and takes no KRaft role"
_REMOVE_KRAFT = "remove the settings of KRaft (process.roles, controller.*) and set broker.id"
_JAVA_CLASS = "it names a Java class, which cannot be loaded here"

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The replica selector with which consumers read in their racks (KIP-392)."""
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"

_CAUSES: dict[str, tuple[str, str]] = {
    "authorizer.class.name": ("access control is not supported yet, so every client may do everything", _LEAVE_OUT),
    "principal.builder.class": (_JAVA_CLASS, "remove it"),
    "create.topic.policy.class.name": (_JAVA_CLASS + ", and topics would be created unchecked", "remove it"),
    "alter.config.policy.class.name": (_JAVA_CLASS + ", and settings would be changed unchecked", "remove it"),
    "client.quota.callback.class": (_JAVA_CLASS + ", and clients would go unlimited", "remove it"),
    "delegation.token.master.key": ("delegation tokens are not supported yet", "remove it"),
    "delegation.token.secret.key": ("delegation tokens are not supported yet", "remove it"),
    "remote.log.storage.system.enable": (
        "tiered storage is not there, and segments would stay on local disk",
        "set it to false",
    ),
    "security.inter.broker.protocol": (_NO_TLS_OR_LOGIN, "set it to PLAINTEXT"),
    "security.providers": (_JAVA_CLASS, "remove it"),
    "zookeeper.set.acl": ("znodes are made without access lists", "set it to false"),
    "zookeeper.ssl.client.enable": ("TLS to ZooKeeper is not supported yet", "set it to false"),
    "zookeeper.metadata.migration.enable": (_NO_KRAFT, "set it to false"),
}


def refusal_of(setting: Setting, value: Value, default: Value) -> str | None:
    """Why this value refuses to start, with the cure; None where the setting may stand.

    A setting that is given the value it has anyway changes nothing and is never refused.
    """
    if setting.name == "replica.selector.class" and value not in (None, "", RACK_AWARE, LEADER_ONLY):
        return (
            f"{setting.name} cannot be honoured: {value} is a Java class, which cannot be loaded here. Set it to "
            f"{RACK_AWARE} or {LEADER_ONLY}, or remove it."
        )
    if setting.effect != REFUSED or value == default or value in ("", []):
        return None
    cause, cure = _CAUSES.get(setting.name) or _by_prefix(setting.name)
    return f"{setting.name} cannot be honoured: {cause}. {cure[0].upper()}{cure[1:]}."


def _by_prefix(name: str) -> tuple[str, str]:
    if name.startswith(("process.", "controller.")):
        return _NO_KRAFT, _REMOVE_KRAFT
    return _NO_TLS_OR_LOGIN, _LEAVE_OUT


def refusal_of_listener_override(name: str) -> str | None:
    """Why a setting for one listener (`listener.name.<listener>.<setting>`) refuses to start, or None."""
    if not name.startswith("listener.name."):
        return None
    if any(part in name for part in (".ssl.", ".sasl.", ".principal.builder.class")):
        return f"{name} cannot be honoured: {_NO_TLS_OR_LOGIN}. {_LEAVE_OUT[0].upper()}{_LEAVE_OUT[1:]}."
    return None
