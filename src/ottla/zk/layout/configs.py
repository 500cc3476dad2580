"""`/config/…`: settings of topics, brokers, users, clients and addresses, and notifications of their changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ottla.assign.java_order import properties_order
from ottla.zk.layout.codec import ZnodeDataError, dump, expected, load_any, load_settings

DEFAULT_ENTITY = "<default>"
"""In place of a name: the default for all without settings of their own."""
SALT_SECRET_PATH = "/config/users_salt_secret"
"""Random bytes of the cluster, by which unknown users get salts; ottla's own, and `/config/users…` is sensitive."""


def entity_name(name: str | None) -> str:
    """The path element for a user, client or address: Kafka writes all but letters, digits, `.`, `-` and `_` in hex.

    None is the default for all without settings of their own.
    """
    from urllib.parse import quote  # not at the start of every broker: it takes milliseconds

    # Python does not escape the tilde, Java does.
    return DEFAULT_ENTITY if name is None else quote(name, safe="").replace("~", "%7E")


def named_entity(part: str) -> str | None:
    """Decode a path element of `entity_name`; None for the default."""
    from urllib.parse import unquote

    return None if part == DEFAULT_ENTITY else unquote(part)


class _ConfigZnode:
    """The settings of an entity, by its name; None is the default for all without settings of their own."""

    ROOT: ClassVar[str]
    _element: Callable[[str | None], str] = staticmethod(entity_name)

    @classmethod
    def path(cls, name: str | None) -> str:
        """The entity's settings."""
        return f"{cls.ROOT}/{cls._element(name)}"

    @staticmethod
    def encode(config: Mapping[str, str]) -> bytes:
        """The JSON as Kafka writes it, the same for all entity types (version 1)."""
        return dump({"version": 1, "config": {name: config[name] for name in properties_order(config)}})

    @classmethod
    def decode(cls, name: str | None, data: bytes | None) -> dict[str, str]:
        """Raises `ZnodeDataError`."""
        return load_settings(cls.path(name), data)


class TopicConfigZnode(_ConfigZnode):
    """`/config/topics/<topic>`: the topic's own settings."""

    ROOT = "/config/topics"
    _element = staticmethod(str)


class BrokerConfigZnode(_ConfigZnode):
    """`/config/brokers/<id>`, the id in decimal, or `DEFAULT` for all brokers: dynamic broker settings."""

    ROOT = "/config/brokers"
    DEFAULT = DEFAULT_ENTITY
    _element = staticmethod(str)


class ClientConfigZnode(_ConfigZnode):
    """`/config/clients/<client>`: quotas of clients, of any user."""

    ROOT = "/config/clients"


class IpConfigZnode(_ConfigZnode):
    """`/config/ips/<address>`: connection rate of an address."""

    ROOT = "/config/ips"


class UserConfigZnode:
    """`/config/users/<user>` and `/config/users/<user>/clients/<client>`: quotas and credentials of users.

    None in place of a name is the default for all without settings of their own.
    """

    ROOT = "/config/users"
    encode = _ConfigZnode.encode

    @staticmethod
    def decode(path: str, data: bytes | None) -> dict[str, str]:
        """A node without data, made for those below it, has no settings. Raises `ZnodeDataError`."""
        return load_settings(path, data) if data else {}

    @staticmethod
    def path(user: str | None) -> str:
        """The user's settings."""
        return f"/config/users/{entity_name(user)}"

    @staticmethod
    def client_path(user: str | None, client_id: str | None) -> str:
        """The settings of a user's client."""
        return f"{UserConfigZnode.path(user)}/clients/{entity_name(client_id)}"


_VERSION_1_KEYS = ("entity_type", "entity_name")


class ConfigChangeZnode:
    """`/config/changes/config_change_<sequence>`: notifies brokers of changed settings."""

    ROOT = "/config/changes"
    PREFIX = "/config/changes/config_change_"
    #: Kafka removes older ones when it handles a newer one.
    EXPIRATION_MS = 15 * 60 * 1000

    @staticmethod
    def encode(entity_path: str) -> bytes:
        """`entity_path` as in `topics/<topic>` (version 2)."""
        return dump({"version": 2, "entity_path": entity_path})

    @staticmethod
    def decode(path: str, data: bytes | None) -> str:
        """The entity's path below `/config`: of version 2, of version 1, or of a topic's bare name (0.8.2).

        Raises `ZnodeDataError`.
        """
        value = load_any(path, data)
        segments: list[Any]
        with expected(path, "does not say whose settings changed"):
            if isinstance(value, str):
                segments = ["topics", value]
            else:
                segments = [value["entity_path"]] if "entity_path" in value else [value[key] for key in _VERSION_1_KEYS]
        if not all(isinstance(segment, str) and segment for segment in segments):
            raise ZnodeDataError(f"{path} does not say whose settings changed")
        return "/".join(segments)
