"""Java's own assignors and its `ConsumerProtocol`, asked over pipes: one Java process answers line by line.

A line `{"assignor": "range", "topics": {name: {"partitions": n, "racks": [[rack, …], …] | null}}, "members":
{id: {"subscription": hex, "instance": text | null}}}` is answered by `{id: hex of the assignment}`; the operations
`rewrite_subscription` and `rewrite_assignment` tell what Java reads in some bytes and how it writes that again.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ottla.assign.assignor import ClusterMetadata, MemberSubscription
from ottla.assign.consumer_protocol import Assignment, Malformed, decode_assignment, encode_subscription
from support.java import java_command

PROGRAM = Path(__file__).resolve().parents[1] / "property" / "assign" / "AssignorOracle.java"
STOP_TIMEOUT_S = 60.0


class OracleError(AssertionError):
    """Java threw an exception; the message names it."""


class AssignorOracle:
    """The running Java process; use it as a context manager. Needs Apache Kafka's jars."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            java_command(str(PROGRAM)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            encoding="utf-8",
        )

    def __enter__(self) -> AssignorOracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process, as its input ends; killed when it does not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._stderr.close()

    def assign(
        self, name: str, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
    ) -> dict[str, Assignment]:
        """What Java's assignor of that wire name gives every member."""
        answer = self.ask(assign_request(name, cluster, subscriptions))
        read = {member_id: decode_assignment(bytes.fromhex(data)) for member_id, data in answer.items()}
        return {member_id: one for member_id, one in read.items() if not isinstance(one, Malformed)}

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one line and give the answer; OracleError when Java threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise AssertionError(f"the oracle ended:\n{self._stderr.read().decode(errors='replace')[-4000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer and len(answer) == 1:
            raise OracleError(answer["error"])
        return answer


def assign_request(
    name: str, cluster: ClusterMetadata, subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, Any]:
    """The line that asks for an assignment."""
    return {
        "assignor": name,
        "topics": {
            topic: {
                "partitions": known.partitions,
                "racks": None if known.racks is None else [sorted(racks) for racks in known.racks],
            }
            for topic, known in cluster.topics.items()
        },
        "members": {
            member_id: {"subscription": subscription_bytes(member).hex(), "instance": member.group_instance_id}
            for member_id, member in subscriptions.items()
        },
    }


def subscription_bytes(member: MemberSubscription) -> bytes:
    """What the member sent, in the version it sent."""
    sent = member.subscription
    return encode_subscription(
        sent.topics,
        sent.user_data,
        sent.version,
        owned_partitions=sent.owned_partitions,
        generation_id=sent.generation_id,
        rack_id=sent.rack_id,
    )
