"""Drawings of the tour, from the group's table of states, and from tables and runs that its pages show.

The runs are typed by tests/e2e/documents/test_pages.py, so a drawing of one is of a real one.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from ottla.groups.classic.states import RULES, GroupState
from support.pictures import AMBER, BLUE, EDGE, GREEN, GREY, PAPER, RED, box, drawing, lines, path, words

TOUR: Final = Path(__file__).resolve().parents[2] / "docs" / "tour"
BOLD: Final = ' font-weight="bold"'
SMALL: Final = ' font-size="11"'
RECORD: Final = 26


def page(number: int) -> str:
    """The text of a page of the tour."""
    [found] = TOUR.glob(f"{number:02}-*.md")
    return found.read_text()


def found_in(text: str, pattern: str) -> re.Match[str]:
    """The place of the page that a picture is made from."""
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"the tour does not show {pattern} any more"
    return found


def segments() -> str:
    """The segments of page 2 with their batches, and how their index finds an offset."""
    return drawing(760, 276, _segments(page(2)))


def _segments(text: str) -> Iterator[str]:
    rows = re.findall(
        r"^  (\d+) +(\d+) +(\d+) +(\d+) +(\d+) .* (closed|active), *", text.replace("closed", "closed,"), re.M
    )
    offset, segment = found_in(text, r"^offset (\d+): in (0+\d+)\.log").groups()
    entry, position = found_in(text, r"^  index  the last entry not above it: offset (\d+), position (\d+)").groups()
    batch, batch_at = found_in(text, r"the batch of ([\d-]+) is at (\d+)").groups()
    for at, (base, last, size, batches, records, state) in enumerate(rows):
        y, each = 46 + 92 * at, int(records) // int(batches)
        is_searched = int(base) == int(segment)
        yield words(20, y - 10, f"{int(base):020}.log", more=BOLD)
        yield words(20 + 300, y - 10, f"offsets {base} to {last}, {size} bytes, {state}", more=SMALL)
        for number in range(int(batches)):
            first = int(base) + number * each
            name = f"{first}-{first + each - 1}"
            x, place = 20 + number * 110, int(size) // int(batches) * number
            fill = AMBER if is_searched and name == batch else GREEN if state == "active" else GREY
            yield box(x, y, 106, 32, fill)
            yield words(x + 53, y + 14, name, anchor="middle")
            yield words(x + 53, y + 27, f"at {place}", anchor="middle", more=SMALL)
        if is_searched:
            yield box(530, y - 10, 210, 46, BLUE)
            yield words(540, y + 8, f"{int(base):020}.index", more=SMALL)
            yield words(540, y + 26, f"… offset {entry} → position {position} …", more=SMALL)
            start = 20 + 110 * int(position) * int(batches) // int(size)
            yield path(f"M560 {y + 37} V{y + 50} H{start} V{y + 34}")
            way = f"offset {offset}: entry {entry}, read on from {position}, found at {batch_at}"
            yield words(start + 8, y + 46, way, more=SMALL)


class ReplicaState(NamedTuple):
    """A line of page 8: who is in sync, and the log end of each replica."""

    what: str
    in_sync: list[str]
    ends: dict[str, int]

    @property
    def high_watermark(self) -> int:
        """The least log end of the ISR."""
        return min(self.ends[each] for each in self.in_sync)


def replicas() -> str:
    """The replicas of page 8 while one does not fetch: AR, ISR, OSR and the high watermark."""
    return drawing(760, 204, _replicas(page(8)))


def _replicas(text: str) -> Iterator[str]:
    found = re.finditer(r"^(\w[\w ]+?)  +ISR (\S+) +OSR \S+ +log ends (.+)\n(?: +high watermark (\d+))?", text, re.M)
    for at, match in zip(range(3), found, strict=False):
        ends = {name: int(end) for name, end in (each.split() for each in match[3].split(", "))}
        state = ReplicaState(match[1], match[2].split(","), ends)
        assert match[4] is None or int(match[4]) == state.high_watermark
        x = 20 + 246 * at
        yield words(x, 28, state.what, more=BOLD)
        for row, (name, end) in enumerate(ends.items()):
            y = 44 + 40 * row
            yield words(x, y + 17, name)
            role = "leader" if row == 0 else "ISR" if name in state.in_sync else "OSR"
            yield words(x, y + 30, role, more=f' fill="{RED if role == "OSR" else EDGE}"{SMALL}')
            for record in range(end):
                fill = GREY if role == "OSR" else GREEN if record < state.high_watermark else AMBER
                yield box(x + 48 + RECORD * record, y, RECORD - 2, 28, fill)
                yield words(x + 60 + RECORD * record, y + 18, str(record), anchor="middle")
        line = x + 47 + RECORD * state.high_watermark
        yield path(f"M{line} 38 V168", colour=RED, dashed=True, arrow=False)
        yield words(line, 186, f"high watermark {state.high_watermark}", anchor="middle", more=f' fill="{RED}"')


E, P, C, S, D = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)
CENTRES: Final = {E: (100, 90), P: (380, 90), C: (670, 90), S: (670, 300), D: (100, 300)}


class Exit(NamedTuple):
    """The way of an arrow, where its cause stands, and how wide that may be; no width where it stands elsewhere."""

    way: str
    x: int = 0
    y: int = 0
    columns: int = 0
    anchor: str = "middle"


EXITS: Final = {
    (E, P): Exit("M185 80 H293", 240, 54, 14),
    (P, E): Exit("M295 100 H187", 240, 118, 14),
    (P, C): Exit("M465 80 H583", 525, 22, 18),
    (C, P): Exit("M585 100 H467", 530, 120, 20),
    (C, S): Exit("M700 110 V278", 692, 230, 15, "end"),
    (S, P): Exit("M585 300 H410 V112", 420, 318, 27, "start"),
    (E, D): Exit("M100 110 V278", 108, 190, 22, "start"),
    (P, D): Exit("M360 110 V300 H187", 194, 270, 22, "start"),
    (C, D): Exit("M740 110 V400 H70 V322"),
    (S, D): Exit("M650 320 V386 H120 V322"),
}


def states() -> str:
    """The states of a group and its exits, from the table of `ottla.groups.classic.states`."""
    return drawing(780, 416, _states())


def _states() -> Iterator[str]:
    causes = {(state, target): cause for state, rules in RULES.items() for target, cause in rules.exits.items()}
    assert set(EXITS) == set(causes), "each exit of the table has its arrow"
    without_words = {cause for each, cause in causes.items() if not EXITS[each].columns}
    assert without_words == {causes[P, D]}, "one label stands for all dashed arrows"
    for each, how in EXITS.items():
        yield path(how.way, dashed=causes[each] in without_words)
        texts = textwrap.wrap(causes[each], how.columns) if how.columns else []
        yield from lines(how.x, how.y, texts, anchor=how.anchor, more=SMALL)
    for state, (x, y) in CENTRES.items():
        yield box(x - 85, y - 20, 170, 40, GREEN if state is S else GREY if state is D else BLUE)
        yield words(x, y + 5, state.value, anchor="middle", more=BOLD)


def request_path() -> str:
    """The stations of page 11, in Apache Kafka and here."""
    return drawing(900, 280, _request_path(page(11)))


def _request_path(text: str) -> Iterator[str]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    stations = [row for row in rows if not row[0].startswith(("muted", "---"))]
    yield words(16, 28, "in Apache Kafka", more=BOLD)
    yield words(16, 162, "in ottla: one event loop", more=BOLD)
    yield box(12, 170, 876, 98, BLUE)
    for at, (station, _, here) in enumerate(stations):
        x = 20 + 146 * at
        for y, height, content in ((38, 84, station), (178, 82, re.split(r"[.;:]", here)[0])):
            yield box(x, y, 130, height, AMBER if "purgatory" in station else PAPER)
            texts = content.replace("`", "").replace(" (", "\n(").splitlines()
            wrapped = [line for text in texts for line in textwrap.wrap(text, 21)]
            yield from lines(x + 65, y + 18, wrapped, more=SMALL)
            if 0 < at < len(stations) - 1:
                yield path(f"M{x - 16} {y + 41} H{x - 2}")
        if at == len(stations) - 1:
            for y in (56, 196):
                yield path(f"M{20 + 146 * 3 + 65} {y - 18} v-6 H{x + 65} v6", dashed=True)


def failover() -> str:
    """The five moments of page 15, on the way from one generation to the next."""
    return drawing(820, 230, _failover(page(15)))


def _failover(text: str) -> Iterator[str]:
    rows = re.findall(r"^ +(\d)  (\S.+?)  +(\d+ → \d+)  +(\S.*?)  +none +none$", text, re.M)
    holds = [found_in(text, rf"^{number}\. (?:.|\n  )*?[Gg]eneration (\d+)")[1] for number, *_ in rows]
    width = 158
    for generation in dict.fromkeys(holds):
        x = 16 + width * holds.index(generation)
        yield box(x, 16, width * holds.count(generation) - 6, 28, GREEN if generation == holds[-1] else BLUE)
        yield words(x + 10, 35, f"generation {generation} is in the log, and holds", more=BOLD)
    yield path(f"M16 66 H{16 + width * len(rows)}")
    for x, (number, moment, generations, again) in zip(count(16, width), rows, strict=False):
        yield f'<circle cx="{x + 14}" cy="66" r="12" fill="{RED}"/>'
        yield words(x + 14, 71, number, anchor="middle", more=f'{BOLD} fill="#ffffff"')
        yield from lines(x, 100, textwrap.wrap(f"dies {moment}", 20), anchor="start")
        yield words(x, 186, f"generation {generations}")
        yield words(x, 206, f"joined again: {again}", more=SMALL)


#: Picture to what draws it.
DRAWINGS: Final = {
    "segments": segments,
    "replicas": replicas,
    "group-states": states,
    "request-path": request_path,
    "failover": failover,
}
