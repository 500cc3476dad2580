"""Settings that cannot be honoured and must not be passed over: why, and what to do instead."""

from __future__ import annotations

from ottla.config.settings import REFUSED, Setting, setting_of_listener
from ottla.config.values import Value

_NO_LOGIN = "of SASL this broker has the mechanisms PLAIN, SCRAM, OAUTHBEARER and GSSAPI only"
_LEAVE_OUT = "remove it, or keep clients off this broker by the address it listens on"
_NO_KRAFT = "this broker coordinates through ZooKeeper's znodes and takes no KRaft role"
_REMOVE_KRAFT = "remove the settings of KRaft (process.roles, controller.*) and set broker.id"
_NO_REVOCATION = "the revocation of certificates is not checked"
_JAVA_CLASS = "it names a Java class, which cannot be loaded here"
_OF_MECHANISM = (
    "Kafka's brokers take it of one listener and mechanism only",
    "name it listener.name.NAME.oauthbearer.{}, in lower case",
)

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The replica selector with which consumers read in their racks (KIP-392)."""
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
"""The authorizer that decides by ACLs in ZooKeeper."""

_CAUSES: dict[str, tuple[str, str]] = {
    "authorizer.zookeeper.url": ("ACLs are kept in the ZooKeeper of the cluster", "remove it"),
    "principal.builder.class": (_JAVA_CLASS, "remove it"),
    "create.topic.policy.class.name": (_JAVA_CLASS + ", and topics would be created unchecked", "remove it"),
    "alter.config.policy.class.name": (_JAVA_CLASS + ", and settings would be changed unchecked", "remove it"),
    "client.quota.callback.class": (_JAVA_CLASS + ", and clients would go unlimited", "remove it"),
    "remote.log.storage.system.enable": (
        "tiered storage is not there, and segments would stay on local disk",
        "set it to false",
    ),
    "sasl.jaas.config": (
        "Kafka's brokers take login configurations of one listener and mechanism only",
        "name it listener.name.NAME.MECHANISM.sasl.jaas.config, in lower case",
    ),
    **{
        name: (_OF_MECHANISM[0], _OF_MECHANISM[1].format(name))
        for name in ("sasl.login.callback.handler.class", "sasl.server.callback.handler.class")
    },
    "security.providers": (_JAVA_CLASS, "remove it"),
    "ssl.engine.factory.class": (_JAVA_CLASS, "remove it"),
    "zookeeper.ssl.crl.enable": (_NO_REVOCATION, "set it to false"),
    "zookeeper.ssl.ocsp.enable": (_NO_REVOCATION, "set it to false"),
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
    if setting.name == "authorizer.class.name" and value not in ("", ACL_AUTHORIZER):
        return (
            f"{setting.name} cannot be honoured: {value} is a Java class, which cannot be loaded here. Set it to "
            f"{ACL_AUTHORIZER}, or remove it: then every client may do everything."
        )
    if setting.effect != REFUSED or value == default or value in ("", []):
        return None
    cause, cure = _CAUSES.get(setting_of_listener(setting.name) or setting.name) or _by_prefix(setting.name)
    return f"{setting.name} cannot be honoured: {cause}. {cure[0].upper()}{cure[1:]}."


def _by_prefix(name: str) -> tuple[str, str]:
    if name.startswith(("process.", "controller.")):
        return _NO_KRAFT, _REMOVE_KRAFT
    return _NO_LOGIN, _LEAVE_OUT


def refusal_of_listener_override(name: str) -> str | None:
    """Why a setting for one listener (`listener.name.<listener>.<setting>`) refuses to start, or None."""
    if not name.startswith("listener.name."):
        return None
    if any(part in name for part in (".sasl.", ".principal.builder.class")):
        return f"{name} cannot be honoured: {_NO_LOGIN}. {_LEAVE_OUT[0].upper()}{_LEAVE_OUT[1:]}."
    return None
