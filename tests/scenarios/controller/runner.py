"""Runs transcripts of the controller: `> command` lines, each followed by the effects of the event. Commands:

settings name=value ..                   of the controller's broker, in the first line
elected EPOCH [BROKERS] [TOPIC ..]       found topics, as in `found`; BROKERS as in `brokers`, with commas; !t is marked
resigned
brokers 1 2 3@7                          those registered now; @ is another epoch than 1
found TOPIC [TOPIC ..]                   t=1+2,2+3 without leaders; with: 1+2:LEADER/EPOCH/ISR/VERSION[/ADDING/REMOVING]
create t [partitions=1] [factor=1] [assigned=1+2,2+3] [validate] [setting=value ..]
grow t COUNT | delete t | marked t u | configs t setting=value
offline BROKER t-0 .. | prefer t-0 .. | unclean t-0 .. | move t-0 2+3 .. | shutdown BROKER [EPOCH] | dirs BROKER ..
isr t-0 1+2 [from=1] [broker-epoch=1] [epoch=0] [partition-epoch=0] [recovering]
reassign t-0 2+3 t-1 cancel ..           by AlterPartitionReassignments; `move` is one in the older znode
isrs t-0=1+2 t-1=2 [from=1] [epoch=0] [partition-epoch=0]
answered BROKER t-0 .. [offline=t-1,t-2] LeaderAndIsr, by a broker with epoch 1 unless @ says another
deleted BROKER t-0 .. [failed=t-1,t-2]   StopReplica
written [refused|unknown|exists|fenced]  the outcome of the oldest write that is under way
applied [refused]                        the outcome of the oldest notice
timer NAME
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from ottla.cluster import controller_events as events
from ottla.cluster.control_batches import ControlRequest, LeaderAndIsrBatch, PartitionEntry, StopReplicaBatch
from ottla.cluster.controller import Controller
from ottla.cluster.image import BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from ottla.cluster.refusal import TopicRefusal
from ottla.cluster.topics import Chance, TopicSpec
from ottla.config.broker import BrokerConfig, parse_broker_config
from ottla.wire.errors import ErrorCode

BROKER = 1
NOW_MS = 1_000


class Transcript:
    """A controller and what is under way; a broker that follows its notices when `applied` says so."""

    def __init__(self, broker_id: int = BROKER) -> None:
        # Balancing of leaders has a transcript of its own.
        config = parse_broker_config({"broker.id": str(broker_id), "auto.leader.rebalance.enable": "false"})
        assert isinstance(config, BrokerConfig)
        self.broker_id = broker_id
        self.controller = Controller(broker_id, config)
        self.applied = ClusterImage()
        self.writes: deque[int] = deque()
        self.notices: deque[events.Notify] = deque()
        self.tokens = 0
        self.ids = 0

    def run(self, line: str) -> list[str]:
        """The effects of a command, a line each."""
        command, *words = shlex.split(line)
        if command == "settings":
            settings = dict(word.split("=") for word in words)
            config = parse_broker_config({"broker.id": str(self.broker_id), **settings})
            assert isinstance(config, BrokerConfig)
            self.controller = Controller(self.broker_id, config)
            return ["(nothing)"]
        event = getattr(self, f"_{command}")(words)
        effects = self.controller.handle(event, NOW_MS)
        self.controller.check_invariants()
        lines = [text for effect in effects for text in self._told(effect)]
        return lines or ["(nothing)"]

    # Events

    def _elected(self, words: list[str]) -> events.Event:
        epoch, brokers, *topics = [*words, "1"][: max(2, len(words))]
        found = [self._topic(text) for text in topics if not text.startswith("!")]
        marked = [text[1:] for text in topics if text.startswith("!")]
        return events.Elected(int(epoch), live(brokers.split(",")), found, self.applied, marked)

    def _resigned(self, words: list[str]) -> events.Event:
        return events.Resigned()

    def _brokers(self, words: list[str]) -> events.Event:
        return events.BrokersChanged(live(words))

    def _found(self, words: list[str]) -> events.Event:
        return events.TopicsFound([self._topic(text) for text in words])

    def _topic(self, text: str) -> events.FoundTopic:
        name, _, partitions = text.partition("=")
        has_no_id = name.endswith("?")
        name = name.rstrip("?")
        known = self.controller.image.topics.get(name)
        topic_id = known.topic_id if known is not None else self._new_id()
        states = tuple(map(_state, partitions.split(",")))
        return events.FoundTopic(name, None if has_no_id else topic_id, topic_id, states, {}, False)

    def _create(self, words: list[str]) -> events.Event:
        name, options = words[0], dict(word.partition("=")[::2] for word in words[1:])
        assigned = options.pop("assigned", "")
        assignments = {index: numbers(text) for index, text in enumerate(assigned.split(",")) if text}
        validate = options.pop("validate", None) is not None
        default = "-1" if assignments else "1"
        spec = TopicSpec(
            name,
            int(options.pop("partitions", default)),
            int(options.pop("factor", default)),
            assignments,
            dict(options),
        )
        return events.TopicRequested(self._token(), spec, Chance(0, 0), self._new_id(), validate)

    def _grow(self, words: list[str]) -> events.Event:
        return events.PartitionsRequested(self._token(), words[0], int(words[1]))

    def _delete(self, words: list[str]) -> events.Event:
        return events.DeletionRequested(self._token(), words[0])

    def _marked(self, words: list[str]) -> events.Event:
        return events.DeletionsMarked(tuple(words))

    def _configs(self, words: list[str]) -> events.Event:
        return events.ConfigsChanged(words[0], dict(word.partition("=")[::2] for word in words[1:]))

    def _offline(self, words: list[str]) -> events.Event:
        return events.ReplicasOffline(int(words[0]), [key(word) for word in words[1:]])

    def _prefer(self, words: list[str]) -> events.Event:
        return events.ElectionRequested(self._token(), [key(word) for word in words])

    def _unclean(self, words: list[str]) -> events.Event:
        return events.ElectionRequested(self._token(), [key(word) for word in words], is_unclean=True)

    def _shutdown(self, words: list[str]) -> events.Event:
        return events.ShutdownRequested(self._token(), int(words[0]), int(words[1]) if len(words) > 1 else -1)

    def _dirs(self, words: list[str]) -> events.Event:
        return events.LogDirsFailed([int(word) for word in words])

    def _answered(self, words: list[str]) -> events.Event:
        return events.LeaderAndIsrAnswered(*_response(words, "offline"))

    def _deleted(self, words: list[str]) -> events.Event:
        return events.DeletionAnswered(*_response(words, "failed"))

    def _move(self, words: list[str]) -> events.Event:
        wanted = dict(zip(map(key, words[::2]), map(numbers, words[1::2]), strict=True))
        return events.ReassignmentRequested(self._token(), wanted)

    def _reassign(self, words: list[str]) -> events.Event:
        targets = [
            None if word == "cancel" else tuple(int(each) for each in word.split("+") if each) for word in words[1::2]
        ]
        return events.ReassignmentRequested(
            self._token(), dict(zip(map(key, words[::2]), targets, strict=True)), needs_live=True
        )

    def _isr(self, words: list[str]) -> events.Event:
        options = dict(word.partition("=")[::2] for word in words[2:])
        return events.IsrProposed(
            self._token(),
            int(options.get("from", "1")),
            int(options.get("broker-epoch", "1")),
            *key(words[0]),
            int(options.get("epoch", "0")),
            int(options.get("partition-epoch", "0")),
            numbers(words[1]),
            "recovering" in options,
        )

    def _isrs(self, words: list[str]) -> events.Event:
        options = dict(word.partition("=")[::2] for word in words)
        epochs = (int(options.pop("epoch", "0")), int(options.pop("partition-epoch", "0")))
        leader = int(options.pop("from", "1"))
        proposals = [
            events.IsrProposed(0, leader, 1, *key(name), *epochs, numbers(isr)) for name, isr in options.items()
        ]
        return events.IsrsProposed(self._token(), proposals)

    def _written(self, words: list[str]) -> events.Event:
        write_id = self.writes.popleft()
        if not words:
            return events.Written(write_id)
        if words[0] == "fenced":
            moved = TopicRefusal(ErrorCode.NOT_CONTROLLER, words[0])
            return events.Written(write_id, events.WriteFailure.REFUSED, moved)
        refusal = TopicRefusal(ErrorCode.REQUEST_TIMED_OUT, words[0])
        return events.Written(write_id, events.WriteFailure(words[0]), refusal)

    def _applied(self, words: list[str]) -> events.Event:
        notice = self.notices.popleft()
        if words:
            return events.Notified(notice.notify_id, TopicRefusal(ErrorCode.KAFKA_STORAGE_ERROR, "disk full"))
        self.applied.apply(notice.delta)
        return events.Notified(notice.notify_id)

    def _timer(self, words: list[str]) -> events.Event:
        return events.TimerFired(words[0])

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def _new_id(self) -> UUID:
        self.ids += 1
        return UUID(int=self.ids)

    # Effects

    def _told(self, effect: events.Effect) -> list[str]:
        if isinstance(effect, events.Write):
            self.writes.append(effect.write_id)
            return [f"write in epoch {effect.epoch}: {change_text(change)}" for change in effect.changes]
        if isinstance(effect, events.Notify):
            self.notices.append(effect)
            return [f"notify {effect.broker_id}: {text}" for text in delta_texts(effect.delta)]
        if isinstance(effect, events.Answer):
            return [f"answer {effect.token}: {result_text(effect.result)}"]
        if isinstance(effect, events.SetTimer):
            return [f"timer {effect.name} in {effect.at_ms - NOW_MS} ms"]
        if isinstance(effect, events.SetChannels):
            return [f"channels to {join(sorted(set(effect.brokers) - {BROKER}))}"]
        if isinstance(effect, events.SendToBroker):
            return [f"send {effect.broker_id}: {request_text(request)}" for request in effect.requests]
        if isinstance(effect, events.ReadAll):
            return ["read everything"]
        if isinstance(effect, events.ReadBack):
            return [f"read back {effect.name}"]
        return [f"{'error' if effect.is_error else 'info'}: {effect.message}"]


def live(words: Sequence[str]) -> dict[int, events.LiveBroker]:
    """Brokers by id: `3@7` is broker 3 in epoch 7, `3@7<5` the same after it was seen in epoch 5."""
    brokers = {}
    for word in words:
        number, _, epochs = word.partition("@")
        epoch, _, former = epochs.partition("<")
        image = BrokerImage(int(number), ())
        brokers[int(number)] = events.LiveBroker(image, int(epoch or 1), int(former or -1))
    return brokers


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("+") if number)


def key(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _state(text: str) -> events.FoundPartitionState:
    replicas, _, rest = text.partition(":")
    if not rest:
        return events.FoundPartitionState(numbers(replicas))
    leader, epoch, isr, version, *moved = rest.split("/")
    version, _, zxid = version.partition("@")
    state = events.FoundPartitionState(numbers(replicas), int(leader), int(epoch), numbers(isr), int(version))
    return state._replace(move=events.ReplicaMove(*map(numbers, moved)), written_zxid=int(zxid or -1))


def _response(words: list[str], errors: str) -> tuple[int, int, list[tuple[str, int]], list[tuple[str, int]]]:
    number, _, epoch = words[0].partition("@")
    failed = next((word.partition("=")[2].split(",") for word in words if word.startswith(f"{errors}=")), [])
    return int(number), int(epoch or 1), [key(word) for word in words[1:] if "=" not in word], list(map(key, failed))


def request_text(request: ControlRequest) -> str:
    if isinstance(request, StopReplicaBatch):
        stops = "; ".join(
            f"{stop.topic}-{stop.partition} epoch={stop.leader_epoch}{' delete' if stop.is_deletion else ''}"
            for stop in request.entries
        )
        return f"StopReplica {stops}"
    name = "LeaderAndIsr" if isinstance(request, LeaderAndIsrBatch) else "UpdateMetadata"
    return f"{name} {'; '.join(map(entry_text, request.entries)) or 'brokers'}"


def entry_text(entry: PartitionEntry) -> str:
    offline = f" offline={join(entry.offline)}" if entry.offline else ""
    moved = f" adding {join(entry.adding)} removing {join(entry.removing)}" if entry.adding or entry.removing else ""
    marks = f"{' new' if entry.is_new else ''}{' recovering' if entry.is_recovering else ''}{offline}{moved}"
    state = state_text(entry.state._replace(offline=()))
    return f"{entry.topic}-{entry.partition} {state} version={entry.partition_epoch}{marks}"


def state_text(state: PartitionImage) -> str:
    offline = f" offline={join(state.offline)}" if state.offline else ""
    return f"leader={state.leader} epoch={state.leader_epoch} isr={join(state.isr)} of {join(state.replicas)}{offline}"


def join(brokers: Sequence[int]) -> str:
    return "+".join(map(str, brokers)) or "none"


def topic_text(topic: TopicImage) -> str:
    return "; ".join(f"{topic.name}-{index} {state_text(state)}" for index, state in enumerate(topic.partitions))


def change_text(change: events.MetadataChange) -> str:
    if isinstance(change, events.CreateTopic):
        configs = " ".join(f"{name}={value}" for name, value in change.topic.configs.items())
        return f"create {topic_text(change.topic)}{' with ' if configs else ''}{configs}"
    if isinstance(change, events.AddPartitions):
        return f"add partitions from {change.existing}: {topic_text(change.topic)}"
    if isinstance(change, events.RemovePartitions):
        return f"remove partitions: {topic_text(change.topic)}"
    if isinstance(change, events.PutAssignment):
        moves = "".join(
            f"; {change.topic.name}-{index} adding {join(move.adding)} removing {join(move.removing)}"
            for index, move in change.moves.items()
        )
        done = f"; done {join(tuple(change.done))}" if change.done else ""
        done += f"; replaced {join(change.replaced)}" if change.replaced else ""
        replicas = "; ".join(
            f"{change.topic.name}-{index} of {join(known.replicas)}"
            for index, known in enumerate(change.topic.partitions)
        )
        return f"assignment of {replicas}{moves}{done}"
    if isinstance(change, events.PutState):
        condition = "new" if change.version < 0 else f"if version {change.version}"
        recovering = " recovering" if change.is_recovering else ""
        return f"state of {change.topic}-{change.partition} {state_text(change.state)}{recovering} ({condition})"
    if isinstance(change, events.DeleteTopic):
        return f"delete {change.name}{' if it is marked' if change.is_marked else ''}"
    verbs = {
        events.MarkDeletion: "mark for deletion",
        events.UnmarkDeletion: "take the mark from",
    }
    return f"{verbs[type(change)]} {change.name}"


def delta_texts(delta: ImageDelta) -> list[str]:
    texts = []
    if delta.brokers is not None:
        texts.append(f"brokers {join(sorted(delta.brokers))}")
    if delta.controller_id is not None:
        texts.append(f"controller {delta.controller_id}")
    texts.extend(f"{topic.name} is gone" if topic.after is None else topic_text(topic.after) for topic in delta.topics)
    return texts or ["no change"]


def result_text(result: object) -> str:
    if result is None:
        return "done"
    if type(result) is tuple:
        return "; ".join(map(result_text, result))
    if isinstance(result, events.TopicCreated):
        return f"created {result.topic.name}"
    if isinstance(result, TopicRefusal):
        return f"{result.error.name} {result.message}"
    if isinstance(result, events.IsrAccepted):
        return f"ISR {join(result.state.isr)}, partition epoch {result.partition_epoch}"
    if isinstance(result, events.IsrRefused):
        return ErrorCode(result.error_code).name
    if isinstance(result, events.ShutdownProgress):
        return f"still led: {', '.join(f'{topic}-{index}' for topic, index in result.remaining) or 'nothing'}"
    if isinstance(result, events.ElectionResult):
        refused = _refusals(result.refusals)
        return f"elected{', but ' if refused else ''}{refused}"
    assert isinstance(result, events.ReassignmentResult)
    refused = _refusals(result.refusals)
    return f"moved{', but ' if refused else ''}{refused}"


def _refusals(refusals: Mapping[events.PartitionKey, TopicRefusal]) -> str:
    return "; ".join(
        f"{topic}-{index}: {refusal.error.name} {refusal.message}" for (topic, index), refusal in refusals.items()
    )


def rerun(text: str) -> str:
    """The transcript as it is now: comments and commands are kept, what follows them is written again."""
    transcript = Transcript()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines.extend(f"  {told}" for told in transcript.run(line[2:]))
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"
