"""Methods of other clients and their arguments, and what to call or give here instead.

Sources: the documentation of confluent-kafka, aiokafka and kafka-python. Settings are in `configs.foreign`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

_READY = "a client is ready when it is made, and closed by close() or a with block; leave it out"
_NO_LOGIN = "set sasl.username and sasl.password, and make another client with others"
_CLUSTER_ID = "ask Admin.describe_cluster()"
_TRY_ANYTHING = "any call that asks a broker says whether it can be reached; leave it out"

CONSUMER_METHODS: Mapping[str, str] = {
    "bootstrap_connected": _TRY_ANYTHING,
    "cluster_id": _CLUSTER_ID,
    "consume": "call poll(timeout_ms), with max.poll.records as the most records",
    "consumer_group_metadata": "call group_metadata()",
    "get_watermark_offsets": "call beginning_offsets() and end_offsets()",
    "getmany": "call poll(timeout_ms), with max.poll.records as the most records",
    "getone": "call poll(timeout_ms) with max.poll.records=1, or iterate over the consumer",
    "highwater": "call current_lag() or end_offsets()",
    "incremental_assign": "call assign() with all partitions",
    "incremental_unassign": "call assign() with the partitions that stay",
    "last_stable_offset": "call end_offsets(), with isolation.level=read_committed",
    "memberid": "call group_metadata()",
    "partitions_for_topic": "call partitions_for()",
    "seek_to_committed": "call seek() with the offsets of committed()",
    "set_sasl_credentials": _NO_LOGIN,
    "start": _READY,
    "stop": "call close()",
    "store_offsets": "set enable.auto.commit to false and call commit() with the offsets you mean",
    "topics": "call list_topics(); subscribe() says what is read",
    "unassign": "call unsubscribe()",
}
PRODUCER_METHODS: Mapping[str, str] = {
    "bootstrap_connected": _TRY_ANYTHING,
    "cluster_id": _CLUSTER_ID,
    "create_batch": "call send_many(), which makes batches itself",
    "list_topics": "ask Admin.list_topics(); partitions_for() describes one topic",
    "poll": "callbacks are called without it; leave it out",
    "produce": "call send(topic, value, key), in this order",
    "produce_batch": "call send_many()",
    "purge": "call abort()",
    "send_and_wait": "wait for the future that send() gives",
    "send_batch": "call send_many()",
    "set_sasl_credentials": _NO_LOGIN,
    "start": _READY,
    "stop": "call close()",
}
ADMIN_METHODS: Mapping[str, str] = {
    "alter_consumer_group_offsets": "call alter_group_offsets()",
    "cluster_id": "call describe_cluster()",
    "delete_consumer_groups": "call delete_groups()",
    "describe_consumer_groups": "call describe_groups()",
    "find_coordinator": "call describe_groups(), which names it",
    "list_consumer_group_offsets": "call list_group_offsets()",
    "list_consumer_groups": "call list_groups()",
    "list_partition_offsets": "call list_offsets()",
    "poll": "calls give their results themselves; leave it out",
    "remove_group_members": "call remove_members_from_group()",
    "reset_group_offsets": "call alter_group_offsets()",
    "set_sasl_credentials": _NO_LOGIN,
    "start": _READY,
    "stop": "call close()",
    "wait_for_topics": "a topic can be used when create_topics() has returned; leave it out",
}
"""What to do instead, by the other client's method name."""

_MILLISECONDS = "give timeout_ms, in milliseconds"
_LISTENER = "give a ConsumerRebalanceListener as listener"
_FIRST = "give it as the first argument, without a name"
_RAISED = "errors are raised; leave it out"
_ONE_LIST = "give one list: {method}([…])"

ARGUMENTS: Mapping[str, str] = {
    "asynchronous": "commit() waits for the broker, commit_async() does not",
    "autocommit": "call commit() before, or set enable.auto.commit to what you want",
    "broker_ids": "all brokers are asked; leave it out",
    "cached": "the broker is asked each time; leave it out",
    "config_resources": _FIRST,
    "group_ids": _FIRST,
    "max_records": "set max.poll.records for the consumer: Consumer(max_poll_records=…)",
    "message": "give the offsets to commit: {{TopicPartition(topic, partition): offset + 1}}",
    "metadata": "committed() gives offsets with their metadata; leave it out",
    "new_partitions": _FIRST,
    "new_topics": _FIRST,
    "num_messages": "set max.poll.records for the consumer: Consumer(max_poll_records=…)",
    "on_assign": _LISTENER,
    "on_commit": "commit_async() takes it as callback",
    "on_delivery": "give it as callback",
    "on_lost": _LISTENER,
    "on_revoke": _LISTENER,
    "operation_timeout": _MILLISECONDS,
    "partition": _ONE_LIST,
    "pattern": "subscribe(re.compile(…)) subscribes to what the pattern matches",
    "raise_errors": _RAISED,
    "raw": "metrics() gives numbers by Kafka's names; leave it out",
    "request_timeout": _MILLISECONDS,
    "timeout": _MILLISECONDS,
    "timestamp_ms": "give it as timestamp, which is in milliseconds",
    "topic_partitions": _FIRST,
    "update_offsets": "seek() goes back to where the records were; leave it out",
}
"""What to give instead, by the name of another client's argument; `{method}` stands for the method's name."""


def unexpected(kind: str, method: str, unknown: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error of arguments that a method does not have: as Python's own, with what to give instead."""
    name, *_ = unknown
    instead = ARGUMENTS.get(name)
    if instead is None:
        names = ", ".join(known)
        instead = f"it has {names}" if names else "it takes none"
    return TypeError(f"{kind}.{method}() got an unexpected keyword argument {name!r}; {instead.format(method=method)}")


Client = TypeVar("Client", bound=type)


def explains_arguments(kind: Client) -> Client:
    """Decorate a client: its public methods explain arguments that they do not have, and other clients' have.

    A method with `**foreign` sees to it itself, by `unexpected`: what is called for each record pays for no wrapper,
    and between a call that hands out records and its caller no signal may be handled (decision 47).
    """
    for name in dir(kind):
        method = inspect.getattr_static(kind, name)
        if not name.startswith("_") and inspect.isfunction(method) and not inspect.isasyncgenfunction(method):
            _, *parameters = inspect.signature(method).parameters.values()
            if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters):
                setattr(kind, name, _explaining(kind.__name__, method, [each.name for each in parameters]))
    return kind


def _explaining(kind: str, method: Callable[..., Any], known: list[str]) -> Callable[..., Any]:
    def begin(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        try:
            return method(*args, **options)
        except TypeError as error:
            unknown = [each for each in options if each not in known]
            # Without a frame of the method it is the call itself that failed.
            at = error.__traceback__
            if at is None or at.tb_next is not None or not unknown:
                raise
            raise unexpected(kind, method.__name__, unknown, known) from None

    def call(*args: Any, **options: Any) -> Any:
        return begin(args, options)

    async def wait(*args: Any, **options: Any) -> Any:
        return await begin(args, options)

    # Frameworks look whether a callback is a coroutine function.
    return functools.wraps(method)(wait if inspect.iscoroutinefunction(method) else call)


class MethodHints:
    """Base of a client: explains missing attributes that other clients have."""

    _instead_of: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # else type checkers would accept any name as an attribute

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            instead = self._instead_of.get(name)
            hint = "" if instead is None else f"; {instead}"
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=self)
