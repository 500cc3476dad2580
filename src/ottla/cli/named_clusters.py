"""Clusters by name, for `--cluster NAME`: one file of the user, TOML, a table of client settings for each cluster."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.cli.command import CommandError

FILE_VARIABLE: Final = "OTTLA_CLUSTERS_FILE"
SERVERS: Final = "bootstrap.servers"
#: Settings of the cluster's schema registry, with Confluent's names.
REGISTRY_URL: Final = "schema.registry.url"
REGISTRY_LOGIN: Final = "schema.registry.basic.auth.user.info"
REGISTRY_SETTINGS: Final[tuple[str, ...]] = (REGISTRY_URL, REGISTRY_LOGIN)
#: Bytes of the file; more is another kind of file.
MAX_FILE_BYTES: Final = 1024 * 1024
SIMILAR_ENOUGH: Final = 0.5
_EXAMPLE: Final = '[NAME] with bootstrap.servers = "host:9092" under it'
_USER: Final = re.compile(r"[^,@]*@")


class NamedCluster(NamedTuple):
    """A cluster of the file: its bootstrap servers as they are written, and how many settings it has beside them."""

    name: str
    servers: str
    settings: int


@dataclass(frozen=True, slots=True)
class ClustersFile:
    """The file as it is written: settings by Kafka's names for each cluster, `${…}` not replaced."""

    path: Path
    text: str
    clusters: Mapping[str, Mapping[str, Any]]

    @property
    def named(self) -> list[NamedCluster]:
        """All clusters, without anything secret."""
        return [
            NamedCluster(name, _USER.sub("***@", _text(each.get(SERVERS, "-"))), len(each.keys() - {SERVERS}))
            for name, each in sorted(self.clusters.items())
        ]

    def refusal(self, problem: str, cluster: str, setting: str = "") -> CommandError:
        """An error that names the file and the line of the cluster or of its setting."""
        line = _line(self.text, cluster, setting) or _line(self.text, cluster, "")
        return CommandError(f"{self.path}{f', line {line}' if line else ''}: {problem}")


def clusters_path() -> Path:
    """The file's path: OTTLA_CLUSTERS_FILE, or ottla/clusters.toml where the user keeps settings."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path("~/.config").expanduser()) / "ottla" / "clusters.toml"


def read_clusters() -> ClustersFile:
    """Read the file. Raises CommandError, which names it, the line where that is known, and the cure."""
    path = clusters_path()
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise CommandError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; name clusters in a file of their own")
        text = content.decode("utf-8-sig")
        top = tomllib.loads(text)
    except FileNotFoundError:
        raise CommandError(f"{path} does not exist, the file that names clusters; write {_EXAMPLE} into it") from None
    except OSError as problem:
        raise CommandError(f"cannot read {path}: {problem.strerror}") from None
    except RecursionError:
        raise CommandError(
            f"{path} is not TOML: its brackets are nested too deeply; each cluster is {_EXAMPLE}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise CommandError(f"{path} is not TOML: {problem}; each cluster is {_EXAMPLE}") from None
    found = ClustersFile(path, text, {name: dict(_flat(table)) for name, table in top.items()})
    for name, table in top.items():
        if isinstance(table, list) and table and isinstance(table[0], dict):
            raise found.refusal(f"[[{name}]] makes a list; write [{name}]", name)
        if not isinstance(table, dict):
            raise found.refusal(f"{name} is outside of a cluster; write [NAME] above it", name)
        for setting in found.clusters[name]:
            if setting.endswith(f".{SERVERS}"):
                whole = f"{name}.{setting.removesuffix(f'.{SERVERS}')}"
                raise found.refusal(f'[{whole}] is a part of [{name}]; write ["{whole}"]', name, setting)
    return found


class ClusterSettings(NamedTuple):
    """The settings of a cluster by Kafka's names, and those of its schema registry, with `${…}` replaced."""

    settings: dict[str, str]
    registry: dict[str, str]


def named_cluster(name: str) -> ClusterSettings:
    """The settings of a cluster, checked. Raises CommandError."""
    from ottla.client.configs.admin import parse_admin_config
    from ottla.client.configs.settings import SETTINGS_OF
    from ottla.client.errors import InvalidConfigError
    from ottla.spark.pipelines.errors import PipelineSettingsError
    from ottla.spark.pipelines.settings.references import References, redacted

    file = read_clusters()
    if name not in file.clusters:
        raise CommandError(f"{file.path} names no cluster {name}{_nearest(name, file.clusters)}")
    shared = frozenset.intersection(*(frozenset(each) for each in SETTINGS_OF.values()))
    references = References(file.path.absolute().parent, os.environ)
    settings: dict[str, str] = {}
    registry: dict[str, str] = {}
    for setting, value in file.clusters[name].items():
        if setting == "request.timeout.ms":
            raise file.refusal(f"{setting} is what --timeout says; leave it out", name, setting)
        if setting not in shared and setting not in REGISTRY_SETTINGS:
            known = (
                _nearest(setting, shared.union(REGISTRY_SETTINGS), "") or "; settings of one kind of client are for -c"
            )
            raise file.refusal(f"{setting} is not a setting that all clients have{known}", name, setting)
        try:
            taken = registry if setting in REGISTRY_SETTINGS else settings
            taken[setting] = references.resolve(_text(value), setting)
        except PipelineSettingsError as problem:
            raise file.refusal(str(problem), name, setting) from None
    try:
        parse_admin_config(settings, {})
    except InvalidConfigError as error:
        why = redacted(error.problems[0], references.secrets)
        at = max((each for each in settings if each in why), key=len, default="")
        raise file.refusal(why, name, at) from None
    return ClusterSettings(settings, registry)


def complete_cluster(incomplete: str) -> list[str]:
    """Names that begin like this, for the shell; none where the file cannot be read."""
    try:
        return [each for each in read_clusters().clusters if each.startswith(incomplete)]
    except CommandError:
        return []


def _nearest(
    name: str, known: Mapping[str, Any] | frozenset[str], others: str = "; `ottla cluster names` lists them"
) -> str:
    similar = get_close_matches(name, sorted(known), n=1, cutoff=SIMILAR_ENOUGH)
    return f"; did you mean {similar[0]}?" if similar else others


def _text(value: Any) -> str:
    """A value as in a properties file: lists with commas."""
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _flat(table: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Settings with their whole names: a dot in a key of TOML makes a table."""
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _line(text: str, cluster: str, setting: str) -> int | None:
    """Number of the line with the setting of the cluster, or with its first one; None where it is not found."""
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        is_header = line.lstrip().startswith("[")
        try:
            keys = _keys(tomllib.loads(line if is_header else f"{line.partition('=')[0]}=0"))
        except tomllib.TOMLDecodeError:
            continue
        if is_header:
            table, keys = f"{keys}.", ""
        if f"{table}{keys}".startswith(f"{cluster}.{setting}") or f"{table}{keys}" == cluster:
            return number
    return None


def _keys(table: Any) -> str:
    """The only keys of tables in each other, with dots between."""
    keys = []
    while isinstance(table, dict) and table:
        key, table = next(iter(table.items()))
        keys.append(key)
    return ".".join(keys)
