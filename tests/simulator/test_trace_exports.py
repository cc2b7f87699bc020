"""Logs and exports as other tools write them: the same load in each, read right or refused with a way out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.offline.trace_source import TraceReading
from mark.simulator.traces.formats.bins import spread
from mark.simulator.traces.formats.filters import parse_where
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.formats.times import DayOrder, localised, seconds_of
from mark.simulator.traces.trace import Trace, read_trace
from scripts.trace_formats import FILES, formats

START = datetime(2024, 5, 1, 10, tzinfo=UTC)
MOMENTS = [START + timedelta(seconds=7 * number) for number in range(60)]
BERLIN = ZoneInfo("Europe/Berlin")
MINUTES = [START + timedelta(minutes=number) for number in range(20)]


def read(tmp_path: Path, text: str, **options: object) -> Trace:
    path = tmp_path / "load.txt"
    path.write_text(text)
    return read_trace(path, TraceOptions(**options))  # type: ignore[arg-type]


def requests(trace: Trace) -> tuple[float, int]:
    """When it begins, and how many requests it has."""
    return trace.start_at, round(float(trace.rates_rps.sum() * trace.bin_s))


def json_lines(make: Callable[[datetime], dict], prefix: str = "") -> str:
    return "".join(f"{prefix}{json.dumps(make(at))}\n" for at in MOMENTS)


def epoch_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def file(name: str) -> str:
    """A file of a format."""
    return (FILES / name).read_text()


@pytest.mark.parametrize("entry", formats(), ids=lambda entry: entry["file"])
def test_every_format_of_the_docs_is_read(entry: dict[str, Any]) -> None:
    settings = Settings.model_validate({"trace": entry.get("trace", {})})
    trace = read_trace(FILES / entry["file"], TraceReading.of(settings).options)
    if trace.bin_s == 1 and trace.rates_rps.max() == 1:
        assert requests(trace) == (START.timestamp(), 12)
    else:
        assert trace.rates_rps * trace.bin_s == pytest.approx([1234] * 12)
    assert trace.start_at % 86400 == 10 * 3600


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("excel-german.csv", "--value anfragen --rows counts reads the first row as 1.234 requests a bin"),
        (
            "own-header.csv",
            "--value anfragen --rows counts reads the first row as 1234 requests a bin",
        ),
    ],
)
def test_what_is_unsure_names_the_flags_that_read_it(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(Misconfigured, match="do not show which of them holds the load") as error:
        read(tmp_path, file(name))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("time,count\n1/2/2026 10:00,5\n1/2/2026 10:01,5\n", {}, "add --dates dmy or --dates mdy"),
        ('{"a": 1}\n{"a": 2}\n', {"time": "b"}, "unknown key of --time 'b'"),
        (
            '{"level": "x"}\n{"level": "y"}\n',
            {},
            "level seems to hold a time; name it with --time",
        ),
        ('{"ts": 1714557600}\n{"ts": 17145\n' * 30, {}, "is not a JSON object"),
        (
            '{"ts": 1714557600, "n": 1}\n{"ts": 1714557660, "n": "x"}\n',
            {"value": "n"},
            "line 2: n 'x' is not a number",
        ),
        ("a,count\n2024-05-01,5\n", {"time": "b"}, "unknown column of --time 'b'"),
        ("timestamp,metric_name,metric_value\n1714557600,http_reqs,1\n", {}, "--where metric_name=http_reqs"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path: Path, text: str, options: dict, told: str) -> None:
    with pytest.raises(Misconfigured) as error:
        read(tmp_path, text, **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_dates_with_slashes_are_read_as_they_are_said_to_be(tmp_path: Path) -> None:
    text = "time,count\n1/2/2026 10:00,5\n1/2/2026 10:01,5\n"
    february, january = (read(tmp_path, text, dates=order).start_at for order in DayOrder)
    assert february - january == 30 * 86400


def test_k6_writes_many_lines_a_request_and_one_of_each_is_taken(tmp_path: Path) -> None:
    text = file("k6.jsonl")
    with pytest.raises(Misconfigured, match=r"--where metric=http_reqs takes one of each"):
        read(tmp_path, text)


def test_locust_s_row_of_all_endpoints_is_not_added_to_theirs(tmp_path: Path) -> None:
    text = file("locust.csv")
    trace = read(tmp_path, text)
    assert (set(trace.rates_rps), len(trace.rates_rps)) == ({1234.0}, 12)
    assert any("rows Aggregated are taken" in note for note in trace.notes)
    one = read(tmp_path, text, where=parse_where(["name=/a"]))
    assert set(one.rates_rps) == {1000.0}
    assert not any("Aggregated" in note for note in one.notes)
    with pytest.raises(Misconfigured, match="leave out --rows"):
        read(tmp_path, text, rows=RowKind.REQUEST)


def test_requests_are_chosen_by_any_key(tmp_path: Path) -> None:
    text = json_lines(lambda at: {"ts": at.isoformat(), "http": {"ok": at.second % 2 == 0, "path": "/a"}})
    even = sum(at.second % 2 == 0 for at in MOMENTS)
    assert requests(read(tmp_path, text, where=parse_where(["http.ok=true", "http.path=/a*"])))[1] == even


def test_a_line_that_breaks_off_is_left_out_and_said(tmp_path: Path) -> None:
    trace = read(tmp_path, file("api-gateway.jsonl") + '{"requestTimeEpoch": 17')
    assert requests(trace)[1] == 12
    assert any("is cut off and left out" in note for note in trace.notes)


def local(begins: datetime, steps: int, step_s: int) -> list[str]:
    moments = (begins + timedelta(seconds=step_s * number) for number in range(steps))
    return [f"{moment.astimezone(BERLIN):%Y-%m-%d %H:%M:%S}" for moment in moments]


CHANGES = {
    "autumn": (datetime(2024, 10, 26, 22, tzinfo=UTC), 25, "an hour stands twice on 2024-10-27"),
    "spring": (datetime(2024, 3, 30, 23, tzinfo=UTC), 23, "an hour is missing on 2024-03-31"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["bins", "requests"])
def test_local_times_are_right_with_their_zone_and_doubted_without(tmp_path: Path, change: str, kind: str) -> None:
    begins, hours, hint = CHANGES[change]
    step_s = 60 if kind == "bins" else 6
    stamps = local(begins, hours * 3600 // step_s, step_s)
    rows = "".join(f"{stamp},60\n" for stamp in stamps) if kind == "bins" else "\n".join(stamps)
    text = ("time,count\n" if kind == "bins" else "time\n") + rows
    trace = read(tmp_path, text, zone=BERLIN)
    assert trace.start_at == begins.timestamp()
    assert trace.duration_s == pytest.approx(hours * 3600, abs=step_s)
    assert not any("missing" in note for note in trace.notes)
    said = f"{hint}, when clocks change: --tz Europe/Berlin, or yours"
    if (change, kind) == ("autumn", "bins"):
        with pytest.raises(Misconfigured) as error:
            read(tmp_path, text)
        assert said in str(error.value)
    else:
        assert any(said in note for note in read(tmp_path, text).notes)


@given(st.integers(0, 400 * 24), st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"]))
def test_clocks_that_change_lose_no_hour(hour: int, name: str) -> None:
    zone = ZoneInfo(name)
    moments = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=hour, minutes=5 * n) for n in range(60)]
    stamps = [f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}" for moment in moments]
    found = localised(seconds_of(stamps), zone)
    first = moments[0].astimezone(zone)
    if first.fold == 0:  # a file that begins within the second of two like hours cannot say so
        assert np.array_equal(found, [moment.timestamp() for moment in moments])


def test_a_log_beside_its_copy_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    nginx = file("nginx.jsonl")
    (folder / "access.json").write_text(nginx)
    (folder / "access.json.gz").write_bytes(gzip.compress(nginx.encode()))
    (folder / "later.json").write_text(nginx.replace('"17145', '"17155'))
    trace = read_trace(folder)
    assert requests(trace)[1] == 24
    assert any("access.json.gz is a copy of" in note for note in trace.notes)


def test_a_counter_without_its_name_is_told_by_rising(tmp_path: Path) -> None:
    def answer(values: list[float]) -> str:
        samples = [[START.timestamp() + 60 * number, str(value)] for number, value in enumerate(values)]
        result = [{"metric": {"job": "a"}, "values": samples}]
        return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})

    counter = [1000.0 + 60 * number for number in range(15)] + [60.0 * number for number in range(1, 15)]
    assert read(tmp_path, answer(counter)).rates_rps == pytest.approx(1.0)
    as_said = read(tmp_path, answer(counter), rows=RowKind.RATE)
    assert as_said.rates_rps.max() > 1000
    wavy = [5.0 + number % 3 for number in range(30)]
    assert read(tmp_path, answer(wavy)).rates_rps.max() == 7.0


@given(
    st.lists(
        st.tuples(st.floats(45, 75) | st.integers(2, 4).map((60.0).__mul__), st.integers(0, 10**6)), min_size=30
    )
)
def test_an_uneven_grid_keeps_its_requests(rows: list[tuple[float, int]]) -> None:
    steps, counts = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    times = np.concatenate(([0.0], np.cumsum(steps[:-1])))
    lasts_s = np.minimum(steps, 75.0)
    rates = spread(times, lasts_s, counts / lasts_s, 60.0)
    assert rates.sum() * 60 == pytest.approx(counts.sum())
    assert (rates >= -1e-6).all()
    assert rates.max() <= (counts / lasts_s).max() * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["count", "rate"])
def test_an_export_whose_clock_was_uneven_is_resampled(tmp_path: Path, kind: str) -> None:
    steps = [60, 61, 59, 120, 60, 58, 62] * 20
    times = np.concatenate(([0], np.cumsum(steps)))
    value = [2 * min(step, 60 if step == 120 else step) for step in (*steps, 60)] if kind == "count" else [2] * 141
    rows = "".join(f"{START.timestamp() + at:.0f},{one}\n" for at, one in zip(times.tolist(), value, strict=True))
    trace = read(tmp_path, f"time,{kind}\n{rows}")
    assert (trace.start_at, trace.bin_s) == (START.timestamp(), 60)
    assert trace.rates_rps.sum() * 60 == pytest.approx(2 * (sum(steps) - 20 * 60 + 60))
    assert trace.rates_rps.max() == pytest.approx(2)
    assert trace.notes[-2:] == (
        "its rows are 58 to 62 s apart: their requests are spread over even bins of 60 s",
        "20 missing bins became 0 rps, the first before line 6",
    )


def test_rows_on_no_grid_are_refused(tmp_path: Path) -> None:
    times = np.cumsum(np.arange(1, 40) ** 2)
    with pytest.raises(Misconfigured, match="use bins of equal width"):
        read(tmp_path, "time,count\n" + "".join(f"{START.timestamp() + at:.0f},5\n" for at in times))
