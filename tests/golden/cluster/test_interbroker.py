"""What three brokers of Apache Kafka 3.9.1 say to each other, recorded on the wire.

`interbroker/` has for each scene of `interbroker_scenes` the frames (`.jsonl`) and a transcript to be read (`.txt`),
with the znodes that changed. `OTTLA_RECORD=1` records them again:
`OTTLA_RECORD=1 pytest --long tests/golden/cluster/test_interbroker.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest

from golden.cluster.interbroker_scenes import SCENES, Scene, Stage, Znodes
from golden.cluster.interbroker_transcript import (
    ByBroker,
    Decoder,
    from_lines,
    to_lines,
    transcript,
    without_idle_fetches,
)
from interop.wire_json import Definitions
from ottla.wire.apis import API
from ottla.wire.codec import decode, encode
from ottla.wire.framing import encode_request_header, parse_request_header, parse_response_header
from support.java import kafka_libs
from support.recording_tap import Exchange
from support.tapped_cluster import TappedCluster
from support.zk_transaction_log import Written, transactions

RECORDED = Path(__file__).parent / "interbroker"
#: ApiVersions and AllocateProducerIds: in which scene they come depends on who happens to be asked.
BY_CHANCE = {18, 67}
#: A session lives longer than a replica may lag, so that a leader can drop one from the ISR that still has its session.
SETTINGS = {"zookeeper.session.timeout.ms": "9000"}


def decoder() -> Decoder:
    libs = kafka_libs()
    assert libs is not None
    return Decoder(Definitions(libs))


def by_broker(written: Iterable[Written]) -> Iterable[ByBroker]:
    """Who wrote what: a session is that of the broker it registers. Nobody else writes but the client of the test."""
    sessions: dict[int, str] = {}
    seen = []
    for one in written:
        for text in one.operations:
            if match := re.match(r"create ephemeral /brokers/ids/(\d+)", text):
                sessions[one.session] = f"broker {match[1]}"
        seen.append(one)
    return [ByBroker(sessions.get(one.session, "the test"), one) for one in seen]


def state_of(znodes: Znodes) -> Iterable[str]:
    """The znodes that change with what happens to brokers and topics: path, czxid, version, data."""
    for path, (data, version, czxid) in znodes.items():
        if data and not path.startswith("/config/changes/"):
            yield f"  {path}  czxid={czxid} version={version} {data}"


def write(scenes: Sequence[Scene], reads: Decoder, written: Sequence[Written]) -> None:
    """The files of all scenes."""
    RECORDED.mkdir(exist_ok=True)
    known = list(by_broker(written))
    ends = [scene.began_ms for scene in scenes[1:]] + [max(one.at_ms for one in written) + 1]
    for scene, end_ms in zip(scenes, ends, strict=True):
        kept, idle = without_idle_fetches(reads, scene.exchanges)
        (RECORDED / f"{scene.name}.jsonl").write_text(to_lines(kept))
        meanwhile = [one for one in known if scene.began_ms <= one.what.at_ms < end_ms]
        text = f"{scene.text}\n\n{transcript(reads, kept, meanwhile, scene.began_ms)}\n"
        text += f"{idle} fetches that brought nothing are left out.\n\nZnodes with data in the end:\n"
        text += "".join(f"{line}\n" for line in state_of(scene.znodes))
        (RECORDED / f"{scene.name}.txt").write_text(text)


@cache
def recorded(scene: str) -> list[Exchange]:
    return from_lines(RECORDED / f"{scene}.jsonl")


@pytest.mark.parametrize("scene", SCENES)
def test_recorded_frames_are_read_and_written_again(scene: str) -> None:
    """Every frame of Apache Kafka's brokers, header and body, byte for byte."""
    assert recorded(scene)
    for one in recorded(scene):
        api = API[one.api_key]
        header, position = parse_request_header(one.request)
        request = decode(api.request, one.request, one.api_version, position)
        assert encode_request_header(header) + encode(request, one.api_version) == one.request, request
        if one.answered:
            _, position = parse_response_header(one.response, one.api_key, one.api_version)
            response = decode(api.response, one.response, one.api_version, position)
            again = one.response[:position] + encode(response, one.api_version)
            assert again == one.response, response


@pytest.mark.needs_kafka
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_scenes_play_as_recorded(tmp_path: Path) -> None:
    reads = decoder()
    cluster = TappedCluster(tmp_path, ["apache"] * 3, SETTINGS)
    stage = Stage(cluster, reads.is_idle)
    with cluster.prepared():
        try:
            for name, act in SCENES.items():
                stage.play(name, act)
        finally:
            if os.environ.get("OTTLA_RECORD"):
                write(stage.scenes, reads, transactions(cluster.zookeeper.folder / "zookeeper"))
    for scene in stage.scenes:
        recorded_kinds = {one.api_key for one in from_lines(RECORDED / f"{scene.name}.jsonl")}
        assert {one.api_key for one in scene.exchanges} - BY_CHANCE == recorded_kinds - BY_CHANCE, scene.name
