"""How settings are changed: checked by the cluster, shown, confirmed where it needs care, then made."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.command import EXIT_FAILED, EXIT_REFUSED, NOT_CONFIRMED, CommandError, confirmed
from ottla.cli.config import COMMAND
from ottla.cli.config.checks import mistyped, own_names, risk_of_change, unknown_setting, why_not_unset
from ottla.cli.config.views import CHANGES, HIDDEN, SettingChange, change_row, entity_text
from ottla.cli.options import read_properties
from ottla.cli.terminal import Terminal, printable, write_json
from ottla.client.admin.configs import ConfigAdmin
from ottla.client.admin.model import ConfigEntry, ConfigOperation, ConfigResource, ResourceType
from ottla.client.errors import BrokerError, ClientError, InvalidArgumentError, PartlyFailedError
from ottla.config.settings import NO_EFFECT, broker_setting, is_password
from ottla.ops.cluster_leave import OWN_SETTING
from ottla.peer.cluster import Cluster
from ottla.wire.errors import ErrorCode

_OPERATORS: Final = {"+=": "append", "-=": "subtract", "=": "set"}


@dataclass(frozen=True, slots=True)
class Entities:
    """Whose settings a command is about, as given on the command line."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    broker_defaults: bool = False

    def resources(self) -> list[ConfigResource]:
        """The resources. Raises CommandError if there are none."""
        found = [ConfigResource.topic(name) for name in dict.fromkeys(self.topics)]
        found += [ConfigResource.broker(number) for number in dict.fromkeys(self.brokers)]
        found += [ConfigResource.broker(None)] if self.broker_defaults else []
        if not found:
            raise CommandError("say whose settings: --topic NAME, --broker ID or --broker-defaults")
        return found


def parse_changes(arguments: Sequence[str], properties: str | None = None) -> list[ConfigOperation]:
    """Changes of KEY=VALUE, KEY+=VALUE and KEY-=VALUE, the latter for lists, after those of a file's settings.

    Raises CommandError.
    """
    from_file = read_properties(properties) if properties is not None else {}
    operations = [ConfigOperation("set", name, value) for name, value in from_file.items()]
    if not arguments and not operations:
        raise CommandError("name a setting, as in retention.ms=86400000, or a file of settings with --properties FILE")
    for each in arguments:
        name, equals, value = each.partition("=")
        operator = f"{name[-1:]}=" if name[-1:] in ("+", "-") else "="
        name = name.removesuffix(operator.removesuffix("=")).strip()
        if not equals or not name:
            raise CommandError(f"{each}: expected key=value, as in retention.ms=86400000; key+=value adds to a list")
        operations.append(ConfigOperation(_OPERATORS[operator], name, value.strip()))
    return operations


async def change_settings(
    cluster: Cluster, entities: Entities, operations: Sequence[ConfigOperation], *, yes: bool, as_json: bool
) -> int:
    """Have the cluster check the changes, show them, confirm those that need care, and make them; the exit code."""
    names = [operation.name for operation in operations]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"{twice} is named twice; name each setting once")
    resources, admin = entities.resources(), ConfigAdmin(cluster)
    wanted = {resource: list(operations) for resource in resources}
    try:
        present, own = await _present(cluster, admin, resources)
        removed = [each.name for each in operations if each.operation == "delete"]
        refusals = [why_not_unset(each, removed, present[each], own[each]) for each in resources]
        if any(refusals):
            return max(COMMAND.report(each) for each in refusals if each)
        await admin.incremental_alter_configs(wanted, validate_only=True)
    except ClientError as error:
        return report_errors(error, names)
    changes = [_change(each, operation, present[each]) for each in resources for operation in operations]
    is_risky = any(change.care for change in changes)
    if as_json and is_risky and not yes:
        write_json(*(change_row(change, done=False) for change in changes))
    elif not as_json:
        Terminal.standard_output().table(CHANGES, changes)
    if is_risky and not confirmed("Make these changes?", yes=yes, as_json=as_json):
        return COMMAND.report(NOT_CONFIRMED)
    code, failed = 0, set()
    try:
        await admin.incremental_alter_configs(wanted)
    except PartlyFailedError as error:
        failed, code = set(error.errors), report_errors(error, names)
    except ClientError as error:
        failed, code = set(resources), report_errors(error, names)
    for change in changes if as_json else ():
        write_json(change_row(change, done=change.resource not in failed))
    done_for = [resource for resource in resources if resource not in failed]
    for resource in () if as_json else done_for:
        sys.stdout.write(f"changed: {printable(entity_text(resource))}\n")
    idle = [each.name for each in operations if any(_is_idle(of, each, present[of]) for of in done_for)]
    if idle:
        COMMAND.report(f"accepted, but without effect on brokers of ottla (docs/settings.md): {', '.join(idle)}")
    return code


def _is_idle(resource: ConfigResource, operation: ConfigOperation, present: Mapping[str, ConfigEntry]) -> bool:
    """Whether a broker of ottla, as its own settings tell, is given a setting that does nothing there."""
    known = broker_setting(operation.name) if resource.type == ResourceType.BROKER else None
    return (
        known is not None and known.effect == NO_EFFECT and operation.operation != "delete" and OWN_SETTING in present
    )


async def _present(
    cluster: Cluster, admin: ConfigAdmin, resources: Sequence[ConfigResource]
) -> tuple[dict[ConfigResource, dict[str, ConfigEntry]], dict[ConfigResource, set[str]]]:
    """The settings now, and which are set there. Those of all brokers are what a broker has without its own."""
    defaults = ConfigResource.broker(None)
    found = await admin.describe_configs(resources, include_synonyms=True)
    own = {resource: own_names(entries, resource) for resource, entries in found.items()}
    if defaults in found:
        metadata = await cluster.refresh([])
        one = ConfigResource.broker(min(metadata.nodes))
        described = (await admin.describe_configs([one], include_synonyms=True))[one]
        found[defaults] = {name: _without_own(entry) for name, entry in described.items()} | {
            name: entry for name, entry in found[defaults].items() if name not in described
        }
    return found, own


def _without_own(entry: ConfigEntry) -> ConfigEntry:
    """A broker's setting as it is without the broker's own value."""
    synonyms = tuple(each for each in entry.synonyms if each.source != "DYNAMIC_BROKER_CONFIG")
    return entry._replace(synonyms=synonyms, value=synonyms[0].value if synonyms else None)


def report_errors(error: ClientError, names: Sequence[str]) -> int:
    """Report errors about settings of these names; the exit code: EXIT_FAILED where there was no answer."""
    code = EXIT_REFUSED
    for each in error.errors.values() if isinstance(error, PartlyFailedError) else (error,):
        is_wrong = isinstance(each, BrokerError) and each.code == ErrorCode.INVALID_CONFIG
        cure = f"; {mistyped(str(each), names)}docs/settings.md has the settings and what they may be"
        COMMAND.report(f"{each}{cure if is_wrong else ''}")
        if not isinstance(each, BrokerError | InvalidArgumentError):
            code = EXIT_FAILED
    return code


def _change(resource: ConfigResource, operation: ConfigOperation, present: Mapping[str, ConfigEntry]) -> SettingChange:
    entry = present.get(operation.name)
    now = None if entry is None else entry.value
    new = _new_value(operation, entry, now)
    risk = risk_of_change(operation.name, now, new)
    if entry is None and operation.operation != "delete" and resource.type == ResourceType.BROKER:
        risk = unknown_setting(operation.name, of_topic=False)
    if operation.operation == "delete":
        new = None
    elif is_password(operation.name):
        new = HIDDEN
    return SettingChange(resource, operation.name, now, new, risk)


def _new_value(operation: ConfigOperation, entry: ConfigEntry | None, now: str | None) -> str | None:
    """The value after the change; for one that is unset what it inherits, if that is known."""
    if operation.operation == "delete":
        inherited = [each.value for each in entry.synonyms[1:]] if entry is not None else []
        return inherited[0] if inherited else None
    items, value = (now or "").split(",") if now else [], operation.value or ""
    if operation.operation == "append":
        return ",".join(items + [item for item in value.split(",") if item not in items])
    if operation.operation == "subtract":
        return ",".join(item for item in items if item not in value.split(","))
    return value
