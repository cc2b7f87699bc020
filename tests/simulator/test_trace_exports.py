"""Logs and exports as other tools write them: the same load in each, read right or refused with a way out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.bins import spread
from mark.simulator.traces.formats.filters import parse_where
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.formats.times import DayOrder, localised, seconds_of
from mark.simulator.traces.trace import Trace, read_trace

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


LOGS = {
    "API Gateway": json_lines(
        lambda at: {
            "requestId": "c6af9ac6",
            "requestTime": f"{at:%d/%b/%Y:%H:%M:%S +0000}",
            "requestTimeEpoch": epoch_ms(at),
            "httpMethod": "POST",
            "status": "200",
        }
    ),
    "Istio by kubectl": json_lines(
        lambda at: {
            "start_time": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
            "method": "POST",
            "response_code": 200,
            "duration": 3,
        },
        prefix="[pod/eta-7d/istio-proxy] ",
    ),
    "nginx JSON": json_lines(
        lambda at: {
            "msec": f"{at.timestamp():.3f}",
            "time_local": f"{at:%d/%b/%Y:%H:%M:%S +0000}",
            "status": "200",
        }
    ),
    "an application's": json_lines(lambda at: {"level": "info", "ts": at.isoformat(), "http": {"path": "/infer"}}),
    "Envoy text": "".join(
        f'[{at:%Y-%m-%dT%H:%M:%S}.310Z] "POST /v2/models/eta/infer HTTP/1.1" 200 - 154 0 226 100 "-" "-"\n'
        for at in MOMENTS
    ),
    "HAProxy": "".join(
        f"May  1 10:00:00 lb haproxy[9]: 10.0.1.2:3331 [{at:%d/%b/%Y:%H:%M:%S}.655] http-in eta/s1 10/0/30/69/109 "
        f'200 2750 - - ---- 1/1/1/1/0 0/0 {{}} {{}} "POST /infer HTTP/1.1"\n'
        for at in MOMENTS
    ),
    "CloudFront": "#Version: 1.0\n#Fields: date time x-edge-location cs-method sc-status\n"
    + "".join(f"{at:%Y-%m-%d}\t{at:%H:%M:%S}\tFRA2\tPOST\t200\n" for at in MOMENTS),
    "IIS": "#Software: IIS\n#Fields: date time cs-method sc-status\n"
    + "".join(f"{at:%Y-%m-%d} {at:%H:%M:%S} POST 200\n" for at in MOMENTS),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    begins, count = requests(read(tmp_path, LOGS[name]))
    assert (begins, count) == (START.timestamp(), len(MOMENTS))


COUNTS = {
    "Excel, German": "Zeit;Anfragen;Latenz\n" + "".join(f"{at:%d.%m.%Y %H:%M};1.234;0,57\n" for at in MINUTES),
    "Excel, American": "Date Time,Total Requests\n"
    + "".join(f'{at:%m/%d/%Y %I:%M %p},"1,234"\n' for at in [at + timedelta(days=19) for at in MINUTES]),
    "date and hour apart": "date,hour,count\n"
    + "".join(f"{at:%Y-%m-%d},{at.hour},1234\n" for at in [START + timedelta(hours=n) for n in range(20)]),
    "date and time apart": "date,time,count\n" + "".join(f"{at:%Y-%m-%d},{at:%H:%M:%S},1234\n" for at in MINUTES),
    "own names": "wann,anfragen,fehler\n" + "".join(f"{at:%Y-%m-%dT%H:%M:%SZ},1234,0\n" for at in MINUTES),
    "JSON of counts": "".join(f'{{"at": "{at:%Y-%m-%dT%H:%M:%SZ}", "load": {{"n": 1234}}}}\n' for at in MINUTES),
}
SAID = {
    "Excel, German": {"value": "anfragen", "rows": RowKind.COUNT},
    "own names": {"time": "wann", "value": "anfragen", "rows": RowKind.COUNT},
    "JSON of counts": {"time": "at", "value": "load.n", "rows": RowKind.COUNT},
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_table_is_read_with_the_columns_that_are_named(tmp_path: Path, name: str) -> None:
    trace = read(tmp_path, COUNTS[name], **SAID.get(name, {}))
    assert len(trace.rates_rps) == 20
    assert trace.rates_rps * trace.bin_s == pytest.approx(1234)
    assert trace.start_at % 86400 == 10 * 3600


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Excel, German", "--value anfragen --rows counts reads the first row as 1.234 requests a bin"),
        (
            "own names",
            "--value anfragen --rows counts reads the first row as 1234 requests a bin",
        ),
    ],
)
def test_what_is_unsure_names_the_flags_that_read_it(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(Misconfigured, match="do not show which of them holds the load") as error:
        read(tmp_path, COUNTS[name])
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
        ('{"ts": 1714557600}\n{"ts": 17145\n' * 30, {}, "is no object of JSON"),
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
    points = [
        {
            "type": "Point",
            "metric": metric,
            "data": {"time": at.isoformat(), "value": 1, "tags": {"status": "200"}},
        }
        for at in MOMENTS
        for metric in ("http_reqs", "http_req_duration")
    ]
    text = "".join(f"{json.dumps(point)}\n" for point in points)
    with pytest.raises(Misconfigured, match=r"--where metric=http_reqs takes one of each"):
        read(tmp_path, text)
    assert requests(read(tmp_path, text, where=parse_where(["metric=http_reqs"])))[1] == len(MOMENTS)


def test_locust_s_row_of_all_endpoints_is_not_added_to_theirs(tmp_path: Path) -> None:
    head = "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,99%,Total Request Count,Total Failure Count\n"
    rows = "".join(
        f"{at + START.timestamp():.0f},8,{kind},{name},{rate:.6f},0.000000,N/A,N/A,{int(rate * at)},0\n"
        for at in range(60)
        for kind, name, rate in (("POST", "/a", 3), ("POST", "/b", 5), ("", "Aggregated", 8))
    )
    trace = read(tmp_path, head + rows)
    assert (set(trace.rates_rps), len(trace.rates_rps)) == ({8.0}, 60)
    assert any("rows Aggregated are taken" in note for note in trace.notes)
    one = read(tmp_path, head + rows, where=parse_where(["name=/a"]))
    assert set(one.rates_rps) == {3.0}
    assert not any("Aggregated" in note for note in one.notes)
    with pytest.raises(Misconfigured, match="leave out --rows"):
        read(tmp_path, head + rows, rows=RowKind.REQUEST)


def test_requests_are_chosen_by_any_key(tmp_path: Path) -> None:
    text = json_lines(lambda at: {"ts": at.isoformat(), "http": {"ok": at.second % 2 == 0, "path": "/a"}})
    even = sum(at.second % 2 == 0 for at in MOMENTS)
    assert requests(read(tmp_path, text, where=parse_where(["http.ok=true", "http.path=/a*"])))[1] == even


def test_a_line_that_breaks_off_is_left_out_and_said(tmp_path: Path) -> None:
    trace = read(tmp_path, LOGS["API Gateway"] + '{"requestTimeEpoch": 17')
    assert requests(trace)[1] == len(MOMENTS)
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
    (folder / "access.json").write_text(LOGS["nginx JSON"])
    (folder / "access.json.gz").write_bytes(gzip.compress(LOGS["nginx JSON"].encode()))
    (folder / "later.json").write_text(LOGS["nginx JSON"].replace('"17145', '"17155'))
    trace = read_trace(folder)
    assert requests(trace)[1] == 2 * len(MOMENTS)
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
