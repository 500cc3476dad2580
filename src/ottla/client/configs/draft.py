"""The settings that the user wrote, a mapping with Kafka's names and Python keywords, merged under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from ottla.client.configs.foreign import RENAMED, instead_of
from ottla.client.configs.instances import JAVA_PACKAGES, imported
from ottla.client.configs.settings import ADMIN, CLASS_LISTS, CONSUMER, OF_BUILT_IN_CLASSES, SETTINGS_OF, attribute_of
from ottla.client.configs.values import default_of, parse_original
from ottla.config.settings import HONOURED, LONGEST_NAME, NO_EFFECT, REFUSED, Setting
from ottla.config.values import ConfigError
from ottla.wire.strings import too_long

_NO_LOGIN = "of SASL there are PLAIN, SCRAM, OAUTHBEARER and GSSAPI only. Remove it."
_NO_JAVA_CLASS = "Java classes cannot be loaded here. Remove it."
_REFUSALS = {
    "group.protocol": "the newer group protocol (KIP-848) is not supported yet. Remove it, or set it to classic.",
    "group.remote.assignor": "it is a setting of the newer group protocol (KIP-848), which is not supported yet. "
    "Remove it, and name assignors in partition.assignment.strategy.",
    "security.providers": _NO_JAVA_CLASS,
    "ssl.engine.factory.class": _NO_JAVA_CLASS,
    "sasl.client.callback.handler.class": _NO_JAVA_CLASS,
    "sasl.login.class": _NO_JAVA_CLASS,
    "bootstrap.controllers": "KRaft controllers are not talked to. Give bootstrap.servers, the addresses of brokers.",
}


class ConfigDraft:
    """The configuration of one client while it is validated.

    `values` has the typed value of every setting by Kafka's name, `originals` the values as the user wrote them;
    `problems` are errors, `notes` are messages to log.
    """

    def __init__(self, kind: str, config: object, keywords: Mapping[str, Any]) -> None:
        self.kind = kind
        self.declared = SETTINGS_OF[kind]
        self.values: dict[str, Any] = {name: default_of(setting) for name, setting in self.declared.items()}
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._originals: dict[str, Any] = {}
        self._unknown: dict[str, tuple[str, Any]] = {}
        self._contradicted: set[str] = set()
        mapping: Mapping[object, Any] = {}
        if isinstance(config, Mapping):
            mapping = config
        elif config is not None:
            self.problems.append(_no_mapping(kind, config))
        for source in (mapping, keywords):
            for name, value in source.items():
                self._take(name, value)
        if self._unknown:
            self._take_class_settings()

    @property
    def originals(self) -> Mapping[str, Any]:
        """The settings as the user wrote them, by Kafka's names."""
        return MappingProxyType(self._originals)

    def is_set(self, name: str) -> bool:
        """Whether the user set it."""
        return self._originals.get(name) is not None

    def _take(self, written: object, original: object) -> None:
        if not isinstance(written, str):
            self.problems.append(f"the name of a setting is text, not {written!r}")
            return
        name = written.replace("_", ".")
        setting = self.declared.get(name)
        if setting is None and name not in OF_BUILT_IN_CLASSES[self.kind]:
            if name in self._unknown and not _are_alike(self._unknown[name][1], original):
                self._contradicted.add(name)
            self._unknown[name] = written, original
            return
        if original is None and self.is_set(name):
            return  # None means "not set": the given value stays
        before = self._originals.get(name)
        if before is not None and not self._is_same(setting, before, original):
            shown = "" if setting is not None and setting.is_sensitive else f", as {before!r} and {original!r}"
            self.problems.append(f"{name} is given twice with different values{shown}. Give it once.")
            return
        self._originals[name] = original
        if setting is not None:
            self._take_known(setting, original)

    def _take_class_settings(self) -> None:
        """Keep names that are not Kafka's: custom classes may declare them, for their `configure`."""
        classes = list(self._classes())
        theirs = {name.replace("_", ".") for one in classes for name in getattr(one, "config_names", ())}
        for name, (written, original) in self._unknown.items():
            if name in theirs and name in self._contradicted:  # the value may be a secret
                self.problems.append(f"{name} is given twice with different values. Give it once.")
            elif name in theirs:
                self._originals[name] = original
            else:
                self.problems.append(_unknown(written, name, self.kind, classes))

    def _classes(self) -> Iterator[object]:
        """Yield the classes of class settings; names that fail are reported when they are instantiated."""
        for name, setting in self.declared.items():
            if setting.type == "class" or name in CLASS_LISTS:
                value = self.values[name]
                for one in value if isinstance(value, tuple) else (value,):
                    if isinstance(one, str) and "." in one and not one.startswith(JAVA_PACKAGES):
                        with suppress(Exception):  # a user's module may raise anything
                            yield imported(one)
                    else:
                        yield one

    def _take_known(self, setting: Setting, original: object) -> None:
        if setting.type == "string" and isinstance(original, str) and (problem := too_long(original)) is not None:
            self.problems.append(f"{setting.name} {problem}. Give a shorter one.")
            return
        try:
            value = self.values[setting.name] = parse_original(setting, original)
        except ConfigError as error:
            self.problems.append(f"{error}")
            return
        if setting.effect == HONOURED or _is_default(setting, value):
            return
        shown = "" if setting.is_sensitive else f"={original}"
        if setting.effect == REFUSED:
            why = _REFUSALS.get(setting.name, _NO_LOGIN)
            self.problems.append(f"{setting.name}{shown} cannot be honoured: {why}")
        elif setting.effect == NO_EFFECT:
            self.notes.append(f"{setting.name}{shown} has no effect here: {setting.documentation}")

    def _is_same(self, setting: Setting | None, first: object, second: object) -> bool:
        if setting is None:
            return _are_alike(first, second)
        try:
            return _are_alike(parse_original(setting, first), parse_original(setting, second))
        except ConfigError:
            return first is second


def _no_mapping(kind: str, original: object) -> str:
    """Other clients take topics or addresses as their first argument; ours take a mapping of settings."""
    message = f"{original!r} is not a mapping of settings"
    if isinstance(original, str) and ":" in original:
        return f"{message}. Give addresses of brokers as bootstrap_servers={original!r}."
    if kind == CONSUMER and isinstance(original, (str, list, tuple)):
        topics = [original] if isinstance(original, str) else list(original)
        return f"{message}. Give bootstrap_servers and other settings only, and call subscribe({topics}) afterwards."
    return f"{message}. Give a mapping by Kafka's names, or keywords as bootstrap_servers."


def _unknown(written: str, name: str, kind: str, classes: Iterable[object]) -> str:
    others = _others_with(name, kind)
    if others:
        whose = " and ".join(map(_plural, others))
        return f"{written} is a setting of {whose}, not of {_plural(kind)}. Remove it."
    known = SETTINGS_OF[kind]
    renamed = [other for other in RENAMED.get(name, ()) if other in known]
    if renamed:
        return f"{written} is not one of Kafka's settings; Kafka's own name is {' or '.join(map(_both, renamed))}."
    if name in RENAMED:
        elsewhere = RENAMED[name][0]
        whose = " and ".join(map(_plural, _others_with(elsewhere, kind)))
        return f"{written} is not one of Kafka's settings; Kafka's own, {elsewhere}, is one of {whose}. Remove it."
    instead = instead_of(name)
    if instead is not None:
        return f"{written} is not one of Kafka's settings: {instead}."
    close = [] if len(name) > LONGEST_NAME else get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {_both(close[0])}?" if close else "docs/client-settings.md lists those that there are."
    return f"{written} is not a known setting of {_plural(kind)}; {hint}{_of_own_class(name, classes)}"


def _of_own_class(name: str, classes: Iterable[object]) -> str:
    """The advice if one of the user's classes may read the setting: its `configure` gets only those it names."""
    for one in classes:
        kind = one if isinstance(one, type) else type(one)
        if hasattr(kind, "configure") and not kind.__module__.startswith("ottla."):
            return f" If {kind.__name__} reads it, list it in the class: config_names = ({name!r},)."
    return ""


def _is_default(setting: Setting, value: object) -> bool:
    """Whether an unsupported setting has its default value; no class setting among them has a default."""
    if setting.type == "class" or setting.name in CLASS_LISTS:
        return value is None or (isinstance(value, tuple) and not value)
    return bool(value == default_of(setting))


def _are_alike(first: object, second: object) -> bool:
    """Whether two values are equal; custom objects are compared by identity."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_are_alike, first, second))
    return first is second or (isinstance(first, str | int | float) and type(first) is type(second) and first == second)


def _plural(kind: str) -> str:
    return "admin clients" if kind == ADMIN else f"{kind}s"


def _others_with(name: str, kind: str) -> list[str]:
    """Return the other kinds of client that have this setting."""
    return [other for other, settings in SETTINGS_OF.items() if other != kind and name in settings]


def _both(name: str) -> str:
    attribute = attribute_of(name)
    return name if attribute == name else f"{name} ({attribute})"
