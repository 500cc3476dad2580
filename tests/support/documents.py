"""The pages of docs/ that are made from the code, so that they cannot say anything else than it does."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ottla.broker.served import SERVED
from ottla.cli.main import app
from ottla.client.client_metrics import ENDINGS
from ottla.client.configs import reference as client_reference
from ottla.config import reference
from ottla.wire.apis import API, ApiKey
from support.dashboard import dashboard
from support.doctor_page import doctor_page
from support.group_page import groups_page
from support.metrics_page import metrics_page
from support.pipeline_keys_page import pipeline_keys_page
from support.screen_pictures import SCREENS
from support.spark_options_page import spark_options_page
from support.tour_pictures import DRAWINGS
from support.transaction_page import transaction_states_page

PROJECT = Path(__file__).resolve().parents[2]
HANDLERS = PROJECT / "src" / "ottla" / "broker" / "handlers"
MADE_BY = "<!-- Made by `./run docs`; a test compares it with the code. -->\n"


def apis_page() -> str:
    """docs/apis.md: which APIs the broker serves, from the table that it dispatches by."""
    rows = [f"# The APIs that the broker serves\n\n{MADE_BY}"]
    rows.append(
        "The versions served are what ApiVersions answers; those of Apache Kafka 3.9 stand beside them. Each "
        "handler opens with what every version added. With an authorizer a request needs the operations "
        "([ACLs](acls.md)); where there are several, each is for a part of it, or one in place of another.\n"
    )
    rows.append("| key | API | served | Kafka 3.9 | operations | handler |\n|---|---|---|---|---|---|")
    for key, served in sorted(SERVED.items()):
        api = API[key]
        path = HANDLERS / f"{served.module}.py"
        handler = f"[{served.module}](../src/ottla/broker/handlers/{path.name})"
        rows.append(
            f"| {key} | {api.name} | {_versions(served.min_version, served.max_version)} "
            f"| {_versions(api.min_version, api.max_version)} | {_operations(path)} "
            f"| {handler}: {_first_sentence(path)} |"
        )
    missing = [key for key in ApiKey if key not in SERVED]
    rows.append("\n## Not served yet\n")
    rows.append("Requests of these are answered as Apache Kafka answers APIs that it does not have.\n")
    rows.append(", ".join(f"{_camel(key.name)} ({key.value})" for key in missing) + ".")
    return "\n".join(rows) + "\n"


def _versions(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


#: Functions of `broker.authorization`, and the resource of what they declare.
_RESOURCES = {"on_cluster": "Cluster", "on_group": "Group", "on_topic": "Topic", "on_topics": "Topic"}


def _operations(path: Path) -> str:
    """The operations that a handler declares, as its code names them."""
    found: dict[str, None] = {}
    tree = ast.parse(path.read_text())
    (declared,) = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "accesses"]
    constants = {
        target.id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(declared):
        if isinstance(node, ast.Name) and node.id == "CLUSTER_ACTION":
            found["Cluster ClusterAction"] = None
        call = constants.get(node.id) if isinstance(node, ast.Name) else node
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        names = [_code_name(each, constants) for each in call.args]
        if call.func.id in _RESOURCES:
            found[f"{_RESOURCES[call.func.id]} {names[0]}"] = None
        elif call.func.id == "Access":
            found[f"{names[1] or 'Group, TransactionalId'} {names[0]}"] = None
        elif call.func.id == "accesses_of":
            found[f"Topic, Cluster {names[0]}"] = None
    return "; ".join(found)


def _code_name(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """Kafka's name of `Operation.READ`, or of a constant that is one; empty for anything else."""
    value = constants.get(node.id, node) if isinstance(node, ast.Name) else node
    return _camel(value.attr) if isinstance(value, ast.Attribute) else ""


def _first_sentence(path: Path) -> str:
    """What a handler does: the text after the colon in the first line of its docstring."""
    first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    return first.partition(": ")[2] or first


def commands() -> dict[str, TyperCommand | TyperGroup]:
    """The commands of `ottla` by name; those of a group by the group's name and their own."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return dict(_commands_of(group, ""))


def _commands_of(group: TyperGroup, before: str) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield before + name, command
            yield from _commands_of(command, f"{before}{name} ")
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield before + name, command


_CLI_INTRODUCTION = """\
`./run ottla COMMAND` runs these in the project's own environment; installed, it is `ottla COMMAND`.

`-h` is help. `ottla --install-completion` has the shell complete commands and options.

Commands that work with a cluster take `--bootstrap-server`, or the environment variable `OTTLA_BOOTSTRAP_SERVER`, and
connect to any Kafka cluster, ottla's or Apache's. `--cluster NAME`, or `OTTLA_CLUSTER`, takes a cluster from the file
of [named clusters](named-clusters.md). Results go to standard output: tables, or with `--json` one object a
line. Tables are shortened to fit a terminal; in a pipe they are complete. Messages go to standard error, one line each.

A command that deletes or overwrites something shows it first. At a terminal it then asks; in a script, and with
`--json`, nothing is changed without `--yes`: the exit code is 1 then, as after a "no". `group reset-offsets --export`
writes a file for later, changes nothing, and ends with 0.

If the reader of a pipe ends early (`| head`), a command still does all of its work, and its exit code is that of
the whole. Those that follow something until Ctrl-C, and `log dump`, end at once then, with 0.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something is damaged or missing, members are active, nothing was changed; a server failed |
| 2 | it could not be done as asked: options contradict each other, a file or the cluster cannot be reached |
| 130 | ended by Ctrl-C |
"""


def cli_page() -> str:
    """docs/cli.md: the commands and their options."""
    rows = [f"# The command line\n\n{MADE_BY}"]
    rows.append(_CLI_INTRODUCTION)
    for name, command in commands().items():
        rows.append(f"\n## ottla {name}\n\n{_paragraphs(command.help or '')}\n")
        rows += list(_option_rows(command.params))
    return "\n".join(rows) + "\n"


def _option_rows(parameters: Iterable[object]) -> Iterator[str]:
    yield "| option | meaning |\n|---|---|"
    for parameter in parameters:
        if not isinstance(parameter, TyperOption | TyperArgument) or parameter.hidden:
            continue
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        meaning = re.sub(r"\s+", " ", parameter.help or "").replace("|", "\\|")
        default = "" if parameter.default in (None, False) else f" [{parameter.default}]"
        yield f"| {names} | {meaning}{default} |"


def _paragraphs(text: str) -> str:
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    return "\n\n".join(part for part in parts if part)


_METRICS_INTRODUCTION = """\
`metrics()` of a producer or a consumer gives these as a dict from name to number. Names and groups are Kafka's; only
`client-state` and `rejoin-needed` are not.

NAME-total only grows; NAME-rate is its growth per second, NAME-avg and NAME-max are of what was measured, over the last
`metrics.num.samples` times `metrics.sample.window.ms`, or since the metrics were read last where that is longer; NaN
where there was nothing. A figure with tags has them behind its name: `records-lag{topic=t,partition=0}`.

## Prometheus and OpenTelemetry

Both read the figures of a running program in a thread of their own. Name the clients; sync and asyncio ones both work.

```python
from ottla.client import ClientCollector, observe_metrics, serve_metrics

server = serve_metrics(9404, producer, consumer)  # http://127.0.0.1:9404/metrics, until server.close()
prometheus_client.REGISTRY.register(ClientCollector(producer, consumer))  # or at the endpoint that you have
observe_metrics(opentelemetry.metrics.get_meter("orders"), producer, consumer)
```

- Prometheus needs `pip install 'ottla[metrics]'`. Names are those that the JMX exporter makes without rules, in lower
  case: `kafka_`, `producer` or `consumer`, the group and the figure, as in
  `kafka_producer_producer_metrics_record_send_total` and `kafka_consumer_consumer_fetch_manager_metrics_records_lag`.
  Labels are `client_id`, and `topic` and `partition` where the figure has them.
- OpenTelemetry needs its `opentelemetry-api`, and an SDK to export. Names are those of its agent for Java:
  `kafka.producer.record_send_total`, `kafka.consumer.records_lag`. Attributes are `client-id`, `topic`, `partition`.
- NAME-total is a counter, the rest are gauges. OpenTelemetry gets no NaN.

## All figures
"""


def client_metrics_page() -> str:
    """docs/client-metrics.md: the figures that `metrics()` of producers and consumers gives."""
    rows = [f"# What clients count\n\n{MADE_BY}"]
    rows.append(_METRICS_INTRODUCTION)
    rows.append("| figure | group | meaning |\n|---|---|---|")
    for declared, ends in ENDINGS:
        for name, (group, documentation, tags) in declared.items():
            told = f"{{{','.join(tags)}}}" if tags else ""
            rows.append(f"| {', '.join(f'`{name}{end}{told}`' for end in ends)} | {group} | {documentation} |")
    return "\n".join(rows) + "\n"


def architecture_page() -> str:
    """The page as it is, with a table of all packages, the lowest layers first, by their docstrings."""
    text = (PROJECT / "ARCHITECTURE.md").read_text()
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "layers")
    order = [name.strip("() ") for layer in reversed(layers) for name in layer.split("|")]
    package = PROJECT / "src" / "ottla"
    rows = []
    for path in package.glob("*/**/__init__.py"):
        parts = path.parent.relative_to(package).parts
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        what = docstring.partition("\n\n")[0].replace("\n", " ")
        rows.append((order.index(parts[0]), parts, f"| `{'.'.join(parts)}` | {what} |"))
    before, heading, rest = text.partition("## Where things are\n")
    after = rest[rest.index("\n\nEach handler opens") :]
    table = "\n".join(row for _, _, row in sorted(rows))
    return f"{before}{heading}\n| package | what |\n|---|---|\n{table}{after}"


#: Page to what makes it.
PAGES: dict[str, Callable[[], str]] = {
    "ARCHITECTURE.md": architecture_page,
    "docker/grafana-dashboard.json": dashboard,
    "docs/apis.md": apis_page,
    "docs/cli.md": cli_page,
    "docs/client-metrics.md": client_metrics_page,
    "docs/client-settings.md": lambda: client_reference.render().replace("\n\n", f"\n\n{MADE_BY}\n", 1),
    "docs/doctor.md": lambda: doctor_page(MADE_BY),
    "docs/groups.md": lambda: groups_page(MADE_BY),
    "docs/metrics.md": lambda: metrics_page(MADE_BY),
    "docs/pipeline-keys.md": lambda: pipeline_keys_page(MADE_BY),
    "docs/settings.md": reference.render,
    "docs/spark-options.md": lambda: spark_options_page(MADE_BY),
    "docs/transaction-states.md": lambda: transaction_states_page(MADE_BY),
    **{f"docs/pictures/{name}.svg": make for name, make in (SCREENS | DRAWINGS).items()},
}
