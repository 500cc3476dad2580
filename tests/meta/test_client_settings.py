"""A client's setting that is said to be honoured is read by that client's code; one that is not, is not declared so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.configs.settings import ADMIN, CONSUMER, OTHER_DEFAULTS, PRODUCER, SETTINGS_OF, attribute_of
from ottla.config.settings import HONOURED, NO_EFFECT

PROJECT = Path(__file__).resolve().parents[2]
CLIENT = PROJECT / "src" / "ottla" / "client"
#: Connections, which all kinds of clients share.
PEER = PROJECT / "src" / "ottla" / "peer"
#: Where settings of TLS are read, by their Kafka names.
SECURITY = [*(PROJECT / "src" / "ottla" / "security").rglob("*.py"), CLIENT / "configs" / "base.py"]
#: Where each kind of client has code of its own; what lies beside them all of them share.
OWN = {PRODUCER: ("producer",), CONSUMER: ("consumer",), ADMIN: ("admin", "admin.py")}
#: What holds settings: `config.linger_ms`, `self._settings.client_id`; GroupConfig copies some and reads its own.
HOLDERS = ("config", "_config", "settings", "_settings")


def modules_of(kind: str) -> list[Path]:
    """The modules that a client of this kind is made of."""
    others = {name for other, names in OWN.items() if other != kind for name in names}
    own = [
        path for path in sorted(CLIENT.rglob("*.py")) if path.relative_to(CLIENT).parts[0] not in {"configs", *others}
    ]
    return own + sorted(PEER.rglob("*.py"))


def settings_read(path: Path) -> set[str]:
    """The attributes that the module reads of anything that holds settings."""
    read = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder = node.value
            name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            if name in HOLDERS or (name == "self" and path.name == "group_config.py"):
                read.add(node.attr)
    return read


def texts_in(path: Path) -> Iterator[str]:
    """The texts of a module, with a space for each value that is put in."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else " " for each in node.values)
        elif isinstance(node, ast.Constant):
            yield str(node.value)


def is_read_by_name(name: str) -> bool:
    """Whether a setting of TLS is named where all of them are read."""
    texts = "\n".join(text for path in SECURITY for text in texts_in(path))
    return name in texts or name.replace("keystore", " ").replace("truststore", " ") in texts


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER, ADMIN])
def test_what_is_said_to_be_honoured_is_read(kind: str) -> None:
    read = set[str]().union(*map(settings_read, modules_of(kind)))
    unread = [
        name
        for name, setting in SETTINGS_OF[kind].items()
        if setting.effect == HONOURED and attribute_of(name) not in read and not is_read_by_name(name)
    ]
    assert unread == []


@pytest.mark.parametrize("kind", [PRODUCER, CONSUMER, ADMIN])
def test_what_is_said_to_have_no_effect_is_not_read(kind: str) -> None:
    own = [path for path in sorted(CLIENT.rglob("*.py")) if path.relative_to(CLIENT).parts[0] in OWN[kind]]
    read = set[str]().union(*map(settings_read, own))
    without = [name for name, setting in SETTINGS_OF[kind].items() if setting.effect == NO_EFFECT]
    assert [name for name in without if attribute_of(name) in read] == []


def test_other_defaults_than_javas_are_reported_in_the_decision() -> None:
    decision = (PROJECT / "docs" / "decisions" / "0042-settings-of-clients.md").read_text()
    assert [name for name in OTHER_DEFAULTS if f"`{name}`" not in decision] == []


def test_every_setting_of_clients_is_documented() -> None:
    page = (PROJECT / "docs" / "client-settings.md").read_text()
    assert [name for settings in SETTINGS_OF.values() for name in settings if f"`{name}`" not in page] == []
