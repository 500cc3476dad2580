"""Commands that people type from habit, Kafka's tools and kcat, and which of ottla's does the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTEAD: Final[Mapping[str, str]] = {
    "kafka-broker-api-versions": "broker describe",
    "kafka-configs": "config describe|set|unset",
    "kafka-console-consumer": "consume",
    "kafka-console-producer": "produce",
    "kafka-consumer-groups": "group list|describe|reset-offsets|delete",
    "kafka-delete-records": "topic delete-records",
    "kafka-dump-log": "log dump",
    "kafka-get-offsets": "topic offsets",
    "kafka-leader-election": "leader-election",
    "kafka-log-dirs": "replica list",
    "kafka-mirror-maker": "pipeline run",
    "kafka-producer-perf-test": "profile",
    "kafka-reassign-partitions": "reassign plan|execute|verify|cancel",
    "kafka-replica-verification": "replica verify",
    "kafka-server-start": "serve",
    "kafka-topics": "topic list|describe|create|alter|delete",
    "kafka-verifiable-consumer": "consume",
    "kafka-verifiable-producer": "produce",
    "kafkacat": "produce` or `ottla consume",
    "kcat": "produce` or `ottla consume",
    "zookeeper-server-start": "zookeeper",
    "zookeeper-shell": "zookeeper ls|get|tree",
}
#: Names of other tools' groups of commands.
_PLURALS: Final = {"brokers": "broker", "configs": "config", "groups": "group", "logs": "log", "topics": "topic"}


class Commands(TyperGroup):
    """Commands of `ottla`, which say what does the job of a tool that is typed from habit."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command. A habit ends with a usage error that names ottla's command."""
        name = args[0].removesuffix(".sh").removesuffix(".bat") if args else ""
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name in INSTEAD and name not in self.commands:
            ctx.fail(f"{args[0]} is `ottla {INSTEAD[name]}` here.")
        if name in _PLURALS and name not in self.commands:
            ctx.fail(f"No such command '{args[0]}'; it is `ottla {_PLURALS[name]}`.")
        return super().resolve_command(ctx, args)
