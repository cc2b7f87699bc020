"""The same load in every format that people have it in."""

from __future__ import annotations

import gzip
import json
import math
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.traces.formats.filters import parse_where
from mark.simulator.traces.formats.rows import RowKind, TraceOptions
from mark.simulator.traces.trace import Trace, read_trace

START = 1_714_557_600  # 2024-05-01T10:00:00Z
BERLIN = timezone(timedelta(hours=2))
GROUP = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/{}/73e2d6bc24d8a067"


def iso(at: float, *, zone: timezone = UTC, marked: str = "+00:00", between: str = "T", digits: int = 0) -> str:
    moment = datetime.fromtimestamp(START + at, zone)
    fraction = f".{round((at % 1) * 10**digits):0{digits}d}" if digits else ""
    return moment.strftime(f"%Y-%m-%d{between}%H:%M:%S") + fraction + marked


def asked(*where: str, rows: RowKind | None = None) -> TraceOptions:
    return TraceOptions(where=parse_where(where), rows=rows)


def statistics(counts: list[int], period: int) -> str:
    """`aws cloudwatch get-metric-statistics`: in no order, empty periods left out."""
    points = [
        {"Timestamp": iso(at * period), "Sum": float(count), "Unit": "Count"}
        for at, count in enumerate(counts)
        if count
    ]
    return json.dumps({"Label": "RequestCount", "Datapoints": points[::2] + points[1::2]}, indent=4)


def metric_data(counts: list[int], period: int) -> str:
    """`aws cloudwatch get-metric-data`: newest first, empty periods left out."""
    found = [(iso(at * period), float(count)) for at, count in enumerate(counts) if count][::-1]
    result = {
        "Id": "m1",
        "Label": "RequestCount",
        "Timestamps": [stamp for stamp, _ in found],
        "Values": [value for _, value in found],
        "StatusCode": "Complete",
    }
    return json.dumps({"MetricDataResults": [result], "Messages": []})


def console(counts: list[int], period: int) -> str:
    """The console's `Download as .csv`."""
    head = f"Full label,RequestCount\nLabel,RequestCount\nPeriod,{period}\nStatistic,Sum\n"
    rows = [
        f'"{iso(at * period, marked="", between=" ").replace("-", "/")}","{count}"'
        for at, count in enumerate(counts)
        if count
    ]
    return head + "\n".join(rows) + "\n"


def metric_csv(counts: list[int], period: int) -> str:
    return "timestamp,count\n" + "".join(
        f"{iso(at * period, marked='Z')},{count}\n" for at, count in enumerate(counts)
    )


def prometheus(series: list[tuple[dict[str, str], list[float]]], period: int) -> str:
    result = [
        {
            "metric": metric,
            "values": [[START + (at + 1) * period, f"{value:.17g}"] for at, value in enumerate(values)],
        }
        for metric, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def rate_query(counts: list[int], period: int) -> str:
    return prometheus([({}, [count / period for count in counts])], period)


def counter_query(counts: list[int], period: int) -> str:
    """A counter of two replicas, of which one begins anew in between."""
    name = {"__name__": "http_requests_total"}
    half = [count // 2 for count in counts]
    rest = [count - part for count, part in zip(counts, half, strict=True)]
    first = np.cumsum([7, *half])
    second = np.cumsum([10**7, *rest])
    reset = len(counts) // 2 + 1
    second[reset:] -= second[reset - 1]
    document = json.loads(
        prometheus([({**name, "pod": "a"}, first.tolist()), ({**name, "pod": "b"}, second.tolist())], period)
    )
    for one in document["data"]["result"]:
        one["values"] = [[at - period, value] for at, value in one["values"]]
    return json.dumps(document)


def epoch(unit: int) -> object:
    def written(counts: list[int], period: int) -> str:
        return "time,requests\n" + "".join(
            f"{(START + at * period) * unit},{count}\n" for at, count in enumerate(counts)
        )

    return written


def newest_first(counts: list[int], period: int) -> str:
    """CloudWatch Logs Insights' `stats count(*) by bin(5m)`."""
    rows = [f"{iso(at * period, marked='.000', between=' ')},{count}\n" for at, count in enumerate(counts)]
    return "bin(5m),count(*)\n" + "".join(rows[::-1])


def own_rates(counts: list[int], period: int) -> str:
    rows = "".join(f"{START + at * period},{count / period!r}\n" for at, count in enumerate(counts))
    return "timestamp_s,rate_rps\n" + rows


def no_header(counts: list[int], period: int) -> str:
    return "".join(f"{iso(at * period, zone=BERLIN, marked='+0200')};{count}\n" for at, count in enumerate(counts))


BINNED = {
    "get-metric-statistics": statistics,
    "get-metric-data": metric_data,
    "console": console,
    "CSV with Z": metric_csv,
    "query_range of rates": rate_query,
    "query_range of counters": counter_query,
    "epoch s": epoch(1),
    "epoch ms": epoch(1000),
    "epoch us": epoch(10**6),
    "epoch ns": epoch(10**9),
    "newest first": newest_first,
    "own": own_rates,
    "no header, a zone, semicolons": no_header,
}


@pytest.mark.parametrize("name", BINNED)
@given(
    counts=st.lists(st.integers(0, 100_000), min_size=1, max_size=30),
    period=st.sampled_from([60, 300, 3600]),
    packed=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
def test_every_export_of_a_metric_reads_back_to_the_same_counts(tmp_path, name, counts, period, packed):
    counts = [3, 1, *counts, 2]  # neighbours tell the period; a metric has no datapoint before the first request
    path = tmp_path / ("load.txt.gz" if packed else "load.txt")
    content = BINNED[name](counts, period).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    trace = read_trace(path)
    assert (trace.start_at, trace.bin_s) == (START, period)
    assert (trace.rates_rps * period).tolist() == pytest.approx(counts)


# --- requests --------------------------------------------------------------------------------------------------


def alb(
    at: float,
    *,
    path: str = "/v2/models/a/infer?x=1",
    status: int = 200,
    group: str = "api",
    agent: str = "curl/8.5.0",
) -> str:
    return (
        f"https {iso(at + 0.048, marked='Z', digits=6)} app/api/50dc6c495c0c9188 192.0.2.10:28 10.0.0.1:80 0.001 "
        f'0.048 0.000 {status} 200 34 366 "POST https://api.example.com:443{path} HTTP/1.1" "{agent}" '
        f'ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 {GROUP.format(group)} "Root=1-58337262-36d228ad5d99923122bbe354" '
        f'"api.example.com" "session-reused" 0 {iso(at, marked="Z", digits=6)} "forward" "-" "-" '
        '"10.0.0.1:80" "200" "-" "-"\n'
    )


def combined(at: float, *, path: str = "/v2/models/a/infer?x=1", status: int = 200, host: str = "") -> str:
    stamp = datetime.fromtimestamp(START + int(at), BERLIN).strftime("%d/%b/%Y:%H:%M:%S %z")
    agent = 'Mozilla/5.0 (X11; \\"q\\")'
    return f'{host}2001:db8::1 - ann lee [{stamp}] "POST {path} HTTP/1.1" {status} 612 "-" "{agent}"\n'


REQUESTS = {
    "ALB": lambda times: "".join(alb(at) for at in times),
    "nginx": lambda times: "".join(combined(at) for at in times),
    "ISO": lambda times: "".join(iso(at, marked="Z", digits=6) + "\n" for at in times),
    "ISO with a header": lambda times: "time\n" + "".join(iso(at, marked="", digits=3) + "\n" for at in times),
    "epoch": lambda times: "arrival_s\n" + "".join(f"{START + at!r}\n" for at in sorted(times)),
    "epoch ms": lambda times: "".join(f"{round((START + at) * 1000)}\n" for at in times),
}


@pytest.mark.parametrize("name", REQUESTS)
@given(
    eighths=st.lists(st.integers(0, 8 * 200), min_size=1, max_size=40),
    packed=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12, deadline=None)
def test_every_list_of_requests_reads_back_to_the_same_counts(tmp_path, name, eighths, packed):
    times = [0.5, *(eighth / 8 for eighth in eighths)]
    path = tmp_path / ("load.txt.gz" if packed else "load.txt")
    content = REQUESTS[name](times).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    trace = read_trace(path)
    assert (trace.start_at, trace.bin_s, trace.whole_counts) == (START, 1, True)
    assert trace.rates_rps.tolist() == np.bincount(np.floor(times).astype(int)).tolist()
    if name != "nginx" and any(time % 1 for time in times):
        assert trace.arrivals_s == pytest.approx(sorted(times), abs=1e-3)


def test_a_log_of_whole_seconds_is_spread_over_them(tmp_path):
    trace = read_trace(saved(tmp_path, combined(0) + combined(0) + combined(2)))
    assert trace.arrivals_s is None
    assert trace.rates_rps.tolist() == [2, 0, 1]
    assert "whole seconds" in trace.notes[0]


def test_a_last_line_that_is_cut_off_is_left_out_and_said(tmp_path):
    trace = read_trace(saved(tmp_path, combined(0) + combined(2) + combined(4).strip()[:30]))
    assert trace.rates_rps.tolist() == [1, 0, 1]
    assert any("its last line, 3, is cut off" in note for note in trace.notes)
    with pytest.raises(Misconfigured, match=r"line 2: .* entry; remove the line"):
        read_trace(saved(tmp_path, combined(0) + combined(2).strip()[:30] + "\n" + combined(4)))


@pytest.mark.parametrize("half", ["half of an entry", "[01/Jan/2026:12:00:00 +0000] half", "{half of an entry"])
@pytest.mark.parametrize("entry", [alb, combined])
def test_a_log_that_was_cut_off_at_its_beginning_is_read(tmp_path, entry, half):
    trace = read_trace(saved(tmp_path, f"{half}\n" + "".join(entry(at) for at in range(2_000))))
    assert trace.rates_rps.tolist() == [1] * 2_000
    assert any("1 of 2,001 lines left out: " in note and f"line 1: '{half[:9]}" in note for note in trace.notes)


@pytest.mark.parametrize("cut", range(5, 205, 50))
def test_a_first_line_whose_fields_are_shifted_by_a_cut_is_left_out(tmp_path, cut):
    trace = read_trace(saved(tmp_path, alb(0)[cut:] + "".join(alb(at) for at in range(2_000))))
    assert trace.rates_rps.tolist() == [1] * 2_000
    assert any("1 of 2,001 lines left out: " in note for note in trace.notes)


def test_few_odd_lines_of_a_log_are_left_out_and_counted_and_many_are_refused(tmp_path):
    entries = [alb(at) for at in range(2_000)]
    trace = read_trace(saved(tmp_path, "".join([*entries[:10], "oops\n", *entries[10:]])))
    assert trace.rates_rps.tolist() == [1] * 2_000
    assert any(
        "1 of 2,001 lines left out: " in note and "line 11: 'oops' is not an ALB" in note for note in trace.notes
    )
    with pytest.raises(Misconfigured, match=r"line 11: 'oops' is not an ALB access log entry; remove the line"):
        read_trace(saved(tmp_path, "".join([*entries[:10], *["oops\n"] * 3, *entries[10:]])))


def test_a_client_s_name_may_hold_quotes(tmp_path):
    log = alb(0) + alb(1, agent='Mozilla/5.0 (\\"odd\\" \\\\)') + alb(2, agent='\\"nlp research\\"')
    assert read_trace(saved(tmp_path, log)).rates_rps.tolist() == [1, 1, 1]


def saved(folder, content, name: str = "load.txt"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- filters ---------------------------------------------------------------------------------------------------

MIXED_ALB = alb(0.5) + alb(1.5, path="/health", status=503) + alb(2.5, group="web", path="/v2/repository/index")
MIXED_NGINX = combined(0) + combined(1, path="/health", status=503) + combined(2, path="http://b.example/v2/x?y")


@pytest.mark.parametrize(
    ("content", "where", "counts"),
    [
        (MIXED_ALB, ["path=/v2/*"], [1, 0, 1]),
        (MIXED_ALB, ["path!=/health"], [1, 0, 1]),
        (MIXED_ALB, ["path=/v2/*", "target-group=api"], [1]),
        (MIXED_ALB, ["path=/health", "path=*/infer"], [1, 1]),
        (MIXED_ALB, ["status=5??", "method=POST", "host=api.example.com"], [1]),
        (MIXED_NGINX, ["path=/v2/*"], [1, 0, 1]),
        (MIXED_NGINX, ["status!=5*"], [1, 0, 1]),
        (MIXED_NGINX, ["host=b.example"], [1]),
        (combined(0, host="a.example:443 ") + combined(1, host="b.example:443 "), ["host=b*"], [1]),
    ],
)
def test_requests_are_chosen_by_what_the_log_says_of_them(tmp_path, content, where, counts):
    assert read_trace(saved(tmp_path, content), asked(*where)).rates_rps.tolist() == counts


def test_rows_of_a_csv_are_chosen_by_its_columns(tmp_path):
    content = "timestamp,path\n2024-05-01T10:00:00.5Z,/a\n2024-05-01T10:00:01.5Z,/b\n"
    trace = read_trace(saved(tmp_path, content), asked("path=/b", rows=RowKind.REQUEST))
    assert (trace.start_at, trace.rates_rps.tolist()) == (START + 1, [1])


def test_a_log_of_several_target_groups_says_so(tmp_path):
    (note,) = read_trace(saved(tmp_path, MIXED_ALB)).notes
    assert note == "requests of 2 target groups: api 2, web 1; --where target-group=api takes one"


TWO_RESULTS = json.dumps(
    {
        "MetricDataResults": [
            {
                "Id": name,
                "Label": label,
                "Timestamps": [iso(0), iso(60)],
                "Values": values,
                "StatusCode": "Complete",
            }
            for name, label, values in (("m1", "api", [60, 120]), ("m2", "web", [6, 12]))
        ]
    }
)
TWO_COLUMNS = (
    "Full label,app/a RequestCount,app/b RequestCount\nLabel,api,web\n"
    '"2024/05/01 10:00:00","60","6"\n"2024/05/01 10:01:00","120",""\n"2024/05/01 10:02:00","60","12"\n'
)
TWO_SERIES = prometheus([({"pod": "a"}, [1.0, 2.0]), ({"pod": "b"}, [0.5, 0.25])], 60)


@pytest.mark.parametrize(
    ("content", "where", "rates"),
    [
        (TWO_RESULTS, ["id=m2"], [0.1, 0.2]),
        (TWO_RESULTS, ["label=a*"], [1, 2]),
        (TWO_COLUMNS, ["label=api"], [1, 2, 1]),
        (TWO_COLUMNS, ["label=web"], None),
        (TWO_SERIES, [], [1.5, 2.25]),
        (TWO_SERIES, ["pod=b"], [0.5, 0.25]),
    ],
)
def test_one_series_of_several_is_chosen_or_their_sum(tmp_path, content, where, rates):
    trace = read_trace(saved(tmp_path, content), asked(*where))
    if rates is None:  # only every other period has a datapoint: they tell a longer period
        assert (trace.bin_s, trace.rates_rps.tolist()) == (120, [0.05, 0.1])
    else:
        assert trace.rates_rps.tolist() == pytest.approx(rates)


def test_a_sum_of_series_and_what_values_are_taken_for_is_said(tmp_path):
    notes = read_trace(saved(tmp_path, TWO_SERIES)).notes
    assert notes[0] == "the values are taken as requests per second"
    assert notes[1].startswith('2 series are summed: {pod="a"}, {pod="b"}; --where')


# --- what a number means ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "rows", "rates"),
    [
        ("0,60\n60,120\n", None, [1, 2]),
        ("0,60.5\n60,120\n", None, [60.5, 120]),
        ("0,60\n60,120\n", RowKind.RATE, [60, 120]),
        ("timestamp,value\n2014-04-10 00:04:00,94.0\n2014-04-10 00:05:00,56.0\n", None, [94 / 60, 56 / 60]),
        ("time,rps\n0,60\n60,120\n", None, [60, 120]),
        ("time,requests per second\n0,60\n60,120\n", None, [60, 120]),
        ("Time,Requests,p99 ms\n0,60,8\n60,120,9\n", None, [1, 2]),
        ("time,load\n0,60\n60,120\n", RowKind.COUNT, [1, 2]),
    ],
)
def test_counts_and_rates_are_told_apart(tmp_path, content, rows, rates):
    assert read_trace(saved(tmp_path, content), asked(rows=rows)).rates_rps.tolist() == pytest.approx(rates)


def test_a_number_that_nothing_names_is_said_to_be_taken_for_a_count(tmp_path):
    (note,) = read_trace(saved(tmp_path, "0,60\n60,120\n")).notes
    assert note.startswith("no header names the numbers: they are taken as requests per bin of 60 s")


def test_a_row_a_request_of_a_wide_csv(tmp_path):
    content = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    content += "2023-11-16 18:17:05.5,3180,8\n"
    trace = read_trace(saved(tmp_path, content), asked(rows=RowKind.REQUEST))
    assert trace.arrivals_s == pytest.approx([0.97996, 2.5], abs=1e-5)


def test_latency_counts_its_samples(tmp_path):
    points = [
        {"Timestamp": iso(at * 60), "SampleCount": 60.0 * (at + 1), "Sum": 0.3, "Unit": "Seconds"}
        for at in range(2)
    ]
    content = json.dumps({"Label": "TargetResponseTime", "Datapoints": points})
    assert read_trace(saved(tmp_path, content)).rates_rps.tolist() == [1, 2]


def test_missing_samples_of_a_counter_are_spread_evenly(tmp_path):
    document = json.loads(prometheus([({"__name__": "requests_total"}, [0, 60, 9, 240, 300])], 60))
    del document["data"]["result"][0]["values"][2]
    assert read_trace(saved(tmp_path, json.dumps(document))).rates_rps.tolist() == [1, 1.5, 1.5, 1]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_sample_that_is_no_number_is_left_out_and_its_bin_missing(tmp_path, odd):
    trace = read_trace(saved(tmp_path, prometheus([({}, [1.0, odd, 3.0, 4.0])], 60)))
    assert trace.rates_rps.tolist() == [1, 0, 3, 4]
    notes = " ".join(trace.notes)
    assert "1 samples that are NaN or infinite are left out" in notes
    assert "1 missing bins became 0 rps" in notes


def test_a_bin_of_which_one_series_has_no_number_is_what_the_others_say(tmp_path):
    both = [({"pod": "a"}, [1.0, math.nan, 3.0]), ({"pod": "b"}, [0.5, 0.5, 0.5])]
    assert read_trace(saved(tmp_path, prometheus(both, 60))).rates_rps.tolist() == [1.5, 0.5, 3.5]


def test_a_counter_spreads_its_increase_over_samples_that_are_no_numbers(tmp_path):
    counter = prometheus([({"__name__": "requests_total"}, [0, 60, math.nan, 240, 300])], 60)
    assert read_trace(saved(tmp_path, counter)).rates_rps.tolist() == [1, 1.5, 1.5, 1]


# --- many files ------------------------------------------------------------------------------------------------


def logs(folder) -> None:
    saved(folder, gzip.compress(alb(3.5).encode()), "2024/05/02/b.log.gz")
    saved(folder, alb(0.5) + alb(2.5), "2024/05/01/a.log")
    saved(folder, gzip.compress((alb(1.5) + alb(1.75)).encode()), "2024/05/01/c.log.gz")
    saved(folder, "", "2024/05/01/empty.log")
    saved(folder, "Enable AccessLog for ELB: api", "ELBAccessLogTestFile")
    saved(folder, "x", ".DS_Store")


@pytest.mark.parametrize("place", ["logs", "logs/**/*.log*", "logs/2024/05/0?/*"])
def test_a_folder_and_a_pattern_are_one_trace_in_time_order(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    logs(tmp_path / "logs")
    trace = read_trace(place)
    assert trace.arrivals_s == pytest.approx([0.5, 1.5, 1.75, 2.5, 3.5])
    assert trace.start_at == START


def test_days_of_counts_are_one_trace(tmp_path):
    saved(tmp_path, metric_csv([3, 4], 60), "b.csv")
    saved(tmp_path, "timestamp,count\n" + f"{iso(-120, marked='Z')},1\n{iso(-60, marked='Z')},2\n", "c.csv")
    trace = read_trace(tmp_path)
    assert (trace.start_at, (trace.rates_rps * 60).tolist()) == (START - 120, [1, 2, 3, 4])


def test_files_of_different_periods_are_refused(tmp_path):
    saved(tmp_path, statistics([60] * 12, 60), "today.json")
    content = json.loads(statistics([300] * 12, 300))
    for at, point in enumerate(content["Datapoints"]):
        point["Timestamp"] = iso(-300 * (at + 1))
    saved(tmp_path, json.dumps(content), "last-month.json")
    said = error_of(tmp_path)
    assert "last-month.json has bins of 300 s" in said
    assert "export all with one period" in said


def test_a_day_without_a_request_is_left_out_and_said(tmp_path):
    saved(tmp_path, statistics([60, 120], 60), "a.json")
    saved(tmp_path, statistics([], 60), "b.json")
    trace = read_trace(tmp_path)
    assert trace.rates_rps.tolist() == [1, 2]
    assert trace.notes == ("1 of 2 files hold nothing",)


class Bucket:
    """Objects of one bucket, as `mark.aws` reads them."""

    def __init__(self, held: dict[str, bytes]) -> None:
        self.held = held

    def names(self, bucket: str, prefix: str) -> Iterator[str]:
        assert bucket == "logs"
        return (key for key in sorted(self.held) if key.startswith(prefix))

    def read(self, bucket: str, key: str) -> Iterator[bytes]:
        data = self.held[key]
        return (data[at : at + 7] for at in range(0, len(data), 7))


BUCKET = Bucket(
    {
        "api/": b"",
        "api/1.log.gz": gzip.compress((alb(1.5) + alb(2.5)).encode()),
        "api/2.log": alb(0.5).encode(),
        "other/3.log": b"?",
    }
)


@pytest.mark.parametrize(
    ("place", "arrivals", "name"),
    [
        ("s3://logs/api/", [0.5, 1.5, 2.5], "api"),
        ("s3://logs/api/2.log", [0.5], "2"),
        ("s3://logs/api/*.gz", [0.5, 1.5], "api"),
    ],
)
def test_a_prefix_of_s3_is_one_trace(place, arrivals, name):
    trace = read_trace(place, objects=BUCKET)
    assert trace.name == name
    assert trace.arrivals_s == pytest.approx(arrivals)


# --- errors ----------------------------------------------------------------------------------------------------


def error_of(path, *where: str, rows: RowKind | None = None) -> str:
    with pytest.raises(Misconfigured) as caught:
        read_trace(path, asked(*where, rows=rows))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "where", "expected"),
    [
        ('{"level":"info","msg":"GET /"}\n{"level":"info"}\n', [], "keys level, msg seems to hold a time"),
        ('{"level":"info",\n"msg" "GET /"}\n', [], "begins like JSON but is not valid JSON"),
        ('{"spans": [], "id": 3}', [], "is JSON with the keys spans, id, no known export; understood are a CSV"),
        ("[1, 2]", [], "is JSON with a list, no known export"),
        ("May  1 10:00:00 host app: GET /\n", [], "is in no known format; MArk reads a CSV of rates"),
        ('{"Label": "RequestCount", "Datapoints": []}', [], "holds no datapoint; check the metric's dimensions"),
        (
            '{"Label": "RequestCount", "Datapoints": [{"Timestamp": "2024-05-01T10:00:00Z", "Average": 1.0}]}',
            [],
            "holds Average of RequestCount; export it with --statistics Sum",
        ),
        (statistics([5], 60), [], "one row does not give the length of a bin"),
        (TWO_RESULTS, [], "holds 2 results: m1 (api), m2 (web); choose one with --where id=m1"),
        (TWO_RESULTS, ["id=m3"], "fits --where id=m3; correct the pattern"),
        (TWO_COLUMNS, [], "holds 2 metrics: api, web; choose one with --where label=api"),
        (statistics([1, 2], 60), ["id=m1"], "get-metric-statistics holds nothing to choose by; leave it out"),
        (TWO_COLUMNS.replace("Label,api,web", "Statistic,Average,Sum"), [], "holds 2 metrics"),
        (console([5, 6], 60).replace("Statistic,Sum", "Statistic,Average"), [], "holds the statistic Average"),
        ('{"status":"error","errorType":"bad_data","error":"parse error"}', [], "Prometheus answered parse error"),
        (
            '{"status":"success","data":{"resultType":"vector","result":[]}}',
            [],
            "holds a vector, one instant; ask /api/v1/query_range",
        ),
        ('{"status":"success","data":{"resultType":"matrix","result":[]}}', [], "holds no sample"),
        (prometheus([({}, [float("nan"), float("inf")])], 60), [], "no rate but NaN or infinite ones"),
        (prometheus([({}, [1.0, 2.0])], 60).replace(str(START + 60), '"NaN"'), [], "time is not an epoch second"),
        (prometheus([({"a": "b"}, [1.0])], 60), [], "one sample of each series"),
        (prometheus([({}, [1.0, 2.0])], 60).replace(str(START + 60), "1e308"), [], "time is not an epoch second"),
        ('{"Label": "x", "Datapoints": [{"Timestamp": 1e30, "Sum": 1.0}]}', [], "1e+30 is not an epoch second"),
        ("Label,x\n2024/05/01 10:00:00\n", [], "holds times without a number"),
        (TWO_SERIES, ["pid=1"], "in an answer of Prometheus's query_range 'pid'; did you mean 'pod'"),
        (MIXED_ALB, ["path=/v9/*"], "nothing in an ALB access log fits --where path=/v9/*"),
        (MIXED_ALB, ["url=/v9/*"], "unknown key of --where in an ALB access log 'url'; known: host, method, path"),
        (MIXED_NGINX, ["target-group=a"], "known: host, method, path, status"),
        (metric_csv([1, 2], 60), ["path=/v2/*"], "a CSV of counts holds nothing to choose by; leave it out"),
        (own_rates([1, 2], 60), ["path=/v2/*"], "a CSV of rates holds nothing to choose by"),
        (MIXED_NGINX + "oops\n", [], "line 4: 'oops' is not an nginx or Apache access log entry; remove the line"),
        (combined(0).replace("/May/", "/Mai/"), [], "line 1: '01/Mai/2024:12:00:00 +0200' is not a time; correct"),
        (combined(0) + combined(0).replace("01/May", "41/May"), [], "line 2: '41/May/2024"),
        ("time,requests\n2024-05-01,1\n2024-02-30,2\n", [], "line 3: '2024-02-30' is not a time; correct the row"),
        ("time,requests\n2024-05-01,1\n2024-05-02,-2\n", [], "line 3: count -2 is negative; counts are 0 or more"),
        ("time,requests\n2024-05-02,1\n2024-05-01,2\n2024-05-02,3\n", [], "line 4: time 1714608000 stands twice"),
        ("time,latency_ms\n0,60\n60,120\n", [], "the columns time, latency_ms do not show which of"),
        ("time,requests\n0,60\n1714557600000,120\n", [], "line 3: time 1714557600000 is in no unit that fits"),
        ("time,requests\n2024-05-01T10:00:00Z\n", [], "line 2: 1 columns where 2 are expected"),
        ("time,requests\n2024-05-01T10:00:00Z,many\n", [], "line 2: 'many' is not a number"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_line_that_says_what_was_seen(tmp_path, content, where, expected):
    assert expected in error_of(saved(tmp_path, content), *where)


@pytest.mark.parametrize("content", [statistics([1, 2], 60), console([1, 2], 60), TWO_SERIES])
def test_a_metric_holds_no_row_a_request(tmp_path, content):
    assert "use --rows counts or rates" in error_of(saved(tmp_path, content), rows=RowKind.REQUEST)


@pytest.mark.parametrize("text", ["path", "=x", "path=", "path>3"])
def test_a_filter_that_is_none_is_refused(text):
    with pytest.raises(Misconfigured, match="must read KEY=PATTERN"):
        parse_where([text])


def test_two_formats_in_a_folder_are_refused(tmp_path):
    saved(tmp_path, alb(0.5), "a.log")
    saved(tmp_path, metric_csv([1, 2], 60), "b.csv")
    said = error_of(tmp_path)
    assert "holds two formats" in said
    assert "a.log is an ALB access log" in said
    assert "b.csv is a CSV of counts; read one of them at a time" in said


def test_a_pattern_without_a_file_and_a_bucket_without_an_object_are_said(tmp_path):
    assert "no file is there; check the path" in error_of(str(tmp_path / "*.log"))
    assert "cannot be read from here" in error_of("s3://logs/api/")
    with pytest.raises(Misconfigured, match="no object is there; check bucket and prefix"):
        read_trace("s3://logs/none/", objects=BUCKET)


def test_what_powershell_writes_is_read(tmp_path):
    content = statistics([60, 120], 60).encode("utf-16")
    assert read_trace(saved(tmp_path, content)).rates_rps.tolist() == [1, 2]


def test_a_log_is_not_held_in_memory(tmp_path):
    """Blocks go as they are read: what is kept of a line is its instant."""
    lines = "".join(alb(at / 100) for at in range(1000))
    path = saved(tmp_path, gzip.compress((lines * 40).encode()), "big.log.gz")
    tracemalloc.start()
    trace: Trace = read_trace(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert trace.arrivals_s is not None
    assert len(trace.arrivals_s) == 40_000
    assert peak < 0.8 * len(lines) * 40  # 18 MB of text; a block and its entries take about 8 MiB


def test_a_file_that_unpacks_beyond_any_log_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.simulator.traces.formats.sources.UNPACKED_BYTES", 1024**2)
    path = saved(tmp_path, gzip.compress(b"5\n" * 2**21), "rows.csv.gz")
    with pytest.raises(Misconfigured, match="unpacks to more than 200 times its size"):
        read_trace(path)
