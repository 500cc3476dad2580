"""Logins of ZooKeeper's clients and the users of its servers, from Java's login configurations.

A setting has one login module as text, or the path of a file with the sections `Client` and `Server`.
"""

from __future__ import annotations

import re

from ottla.env.outgoing import reason_of
from ottla.env.secret_files import read_whole
from ottla.security.digest_md5 import MECHANISM
from ottla.security.jaas import MAX_JAAS_CHARACTERS, JaasConfig, JaasError, Login, parse_jaas

_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"""
_SECTION = r"""(?:\A|[\s;}}]){name}\s*\{{((?:{quoted}|[^}}"'])*)\}}"""

_NO_PATH = re.compile(r"""[;"']|\s\w+\s*=""")
"""In a module that lacks its semicolon, too: messages have paths, and no passwords."""


def login_to_zookeeper(value: str) -> Login:
    """User and password of a client. Raises JaasError."""
    login = _module(value, "Client").login
    if login is None:
        raise JaasError("the DigestLoginModule has no username and password; give it both")
    return login


def users_of_zookeeper(value: str) -> dict[str, str]:
    """The passwords of a server's users. Raises JaasError."""
    users = _module(value, "Server").users
    if not users:
        raise JaasError('the DigestLoginModule has no users; give it user_NAME="PASSWORD" for each')
    return users


def _module(value: str, section: str) -> JaasConfig:
    text = value if _NO_PATH.search(value) else _content(value)
    found = re.search(_SECTION.format(name=section, quoted=_QUOTED), text)
    if found is None and re.search(r"\w\s*\{", re.sub(_QUOTED, "", text)):
        raise JaasError(f"it has no section {section}; add one")
    return parse_jaas(text if found is None else found[1], MECHANISM)


def _content(path: str) -> str:
    try:
        return read_whole(path, MAX_JAAS_CHARACTERS).decode()
    except OSError as error:
        raise JaasError(f"the file {path} cannot be read ({reason_of(error)}); check the path and its mode") from None
    except UnicodeDecodeError:
        raise JaasError(f"the file {path} is not UTF-8") from None
