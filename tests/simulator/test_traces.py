import errno
import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.simulator.traces.statistics import describe
from mark.simulator.traces.trace import Trace, read_trace, write_trace

DOCUMENT = Path(__file__).parents[2] / "docs" / "traces.md"
ALB = (
    "http 2024-05-01T10:00:0{answered}Z app/api/1 192.0.2.10:1 10.0.0.1:80 0.001 0.048 0.000 200 200 34 "
    '366 "GET http://a/b?q=1 HTTP/1.1" "Mozilla/5.0 (X11; Linux)" - - arn:aws:x:1 "Root=1" "-" "-" 0 {created} '
    '"forward" "-" "-" "10.0.0.1:80" "200" "-" "-"\n'
)


def rates(values, bin_s=1.0, **fields):
    return Trace(
        name="t", start_at=0.0, bin_s=bin_s, rates_rps=np.array(values, dtype=float), whole_counts=False, **fields
    )


def saved(tmp_path, content, name="trace.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


EXAMPLES = re.findall(r"```(?:csv|text|json)\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)


def example(start):
    """The document's example that begins so."""
    (found,) = (content for content in EXAMPLES if content.startswith(start))
    return found


@pytest.mark.parametrize("content", EXAMPLES, ids=[content[:20] for content in EXAMPLES])
def test_every_example_of_the_document_is_a_trace(tmp_path, content):
    assert read_trace(saved(tmp_path, content)).mean_rps > 0


# --- formats ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_the_documents_rates_are_read(tmp_path, packed):
    content = example("timestamp_s,rate_rps").encode()
    path = saved(tmp_path, gzip.compress(content) if packed else content, "load.csv.gz" if packed else "load.csv")
    trace = read_trace(path)
    assert (trace.name, trace.start_at, trace.bin_s, trace.whole_counts) == ("load", 0.0, 1.0, True)
    assert trace.rates_rps.tolist() == [52, 55, 48, 0]
    assert trace.notes == ()


@pytest.mark.parametrize("header", ["arrival_s\n", "timestamp_s\n", ""])
def test_the_documents_arrivals_are_read_with_and_without_header(tmp_path, header):
    content = header + example("arrival_s").removeprefix("arrival_s\n")
    trace = read_trace(saved(tmp_path, content))
    assert trace.start_at == 1700145380
    assert trace.rates_rps.tolist() == [3, 0, 0, 1]
    assert trace.arrivals_s == pytest.approx([0.12, 0.4, 0.4, 3.07], abs=1e-6)
    assert trace.whole_counts


def test_the_documents_access_log_is_read_by_creation_time_and_sorted(tmp_path):
    trace = read_trace(saved(tmp_path, example("https 2024"), "alb.log"))
    assert trace.start_at == 1714557601
    assert trace.arrivals_s == pytest.approx([0.151, 0.201], abs=1e-6)


def test_an_access_log_entry_without_creation_time_counts_at_its_answer(tmp_path):
    content = ALB.format(answered="2.5", created="-") + ALB.format(
        answered="3.0", created="2024-05-01T10:00:01.5Z"
    )
    assert read_trace(saved(tmp_path, content, "alb.log")).arrivals_s == pytest.approx([0.5, 1.5])


def test_joined_gzip_members_are_one_file(tmp_path):
    content = gzip.compress(b"arrival_s\n0.5\n") + gzip.compress(b"1.5\n")
    assert read_trace(saved(tmp_path, content, "a.csv.gz")).rates_rps.tolist() == [1, 1]


@pytest.mark.parametrize(
    "content",
    ["\ufefftimestamp_s,rate_rps\n0,1\n1,2\n", "timestamp_s,rate_rps\r\n0,1\r\n1,2\r\n"],
    ids=["mark", "ends"],
)
def test_byte_order_marks_and_windows_line_ends_do_not_matter(tmp_path, content):
    assert read_trace(saved(tmp_path, content)).rates_rps.tolist() == [1, 2]


def test_a_gap_of_whole_bins_becomes_zero_with_a_note(tmp_path):
    trace = read_trace(saved(tmp_path, "timestamp_s,rate_rps\n0,1\n60,2\n240,5\n300,6\n"))
    assert trace.rates_rps.tolist() == [1, 2, 0, 0, 5, 6]
    assert trace.notes == ("2 missing bins became 0 rps, the first before line 4",)


@pytest.mark.parametrize(
    ("values", "bin_s", "whole"),
    [([52, 0], 1, True), ([52.5, 1], 1, False), ([400, 1500], 0.01, True), ([60, 120], 60, False)],
)
def test_whole_counts_are_told_from_rates(tmp_path, values, bin_s, whole):
    rows = "".join(f"{at * bin_s},{value}\n" for at, value in enumerate(values))
    assert read_trace(saved(tmp_path, "timestamp_s,rate_rps\n" + rows)).whole_counts is whole


# --- errors ----------------------------------------------------------------------------------------------------

HEAD = "timestamp_s,rate_rps\n"
BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "is empty"),
    "header only": (HEAD, "a header and no rows"),
    "arrivals header only": ("arrival_s\n\n", "a header and no rows"),
    "one row": (HEAD + "0,1\n", "line 2: one row does not give the length of a bin"),
    "negative rate": (HEAD + "0,1\n1,-2\n", "line 3: rate -2 is negative"),
    "nan rate": (HEAD + "0,1\n1,nan\n", "line 3: nan is not a finite number"),
    "infinite rate": (HEAD + "0,1\n\n1,inf\n", "line 4: inf is not a finite number"),
    "huge rate": (HEAD + "0,1\n1,1e300\n", "line 3: rate 1e+300 is above 1e+07 requests/s; give rates per second"),
    "unsorted": (HEAD + "0,1\n2,1\n1,1\n", "line 4: time 1 comes after 2; sort"),
    "duplicate": (HEAD + "0,1\n1,1\n1,1\n", "line 4: time 1 stands twice"),
    "uneven": (HEAD + "0,1\n1,1\n2,1\n3.5,1\n4.5,1\n", "line 5: 1.5 s after the row before, in bins of 1 s"),
    "three columns": (HEAD + "0,1\n1,1,9\n", "line 3: 3 columns where 2 are expected"),
    "three columns throughout": (HEAD + "0,1,9\n1,1,9\n", "line 2: 3 columns where 2 are expected"),
    "one column": (HEAD + "0,1\n1\n", "line 3: 1 columns where 2 are expected"),
    "word": (HEAD + "0,1\n1,many\n", "line 3: 'many' is not a number"),
    "missing value": (HEAD + "0,1\n1,\n", "line 3: '' is not a number"),
    "milliseconds": (
        HEAD + "1700145380000,1\n1700145381000,1\n",
        "line 2: time 1700145380000 is not a time in seconds",
    ),
    "unknown header": ("when,much\n0,1\n", "line 1: 'when,much' is in no known format"),
    "three columns without a header": ("0,52,1\n1,55,1\n", "line 1: '0,52,1' is in no known format"),
    "unsorted arrivals": ("arrival_s\n2\n1\n", "line 3: time 1 comes after 2; sort"),
    "nan arrival": ("1\nnan\n", "line 2: nan is not a finite number"),
    "mixed arrivals": ("arrival_s\n1\n2,3\n", "line 3: 2 columns where 1 are expected"),
    "years of arrivals": ("0\n1e10\n", "give its times in seconds"),
    "binary": (bytes(range(256)), "is not text"),
    "zero bytes": (b"timestamp_s,rate_rps\n0,\0\n", "is not text"),
    "foreign log line": (
        ALB.format(answered="2.5", created="-") + "hello\n",
        "line 2: 'hello' is not an ALB access log",
    ),
    "bad log time": (ALB.format(answered="2.5", created="noon"), "line 1: 'noon' is no ISO 8601 time"),
}


@pytest.mark.parametrize("case", sorted(BAD))
@pytest.mark.parametrize("packed", [False, True])
def test_bad_input_is_one_line_that_names_file_and_line(tmp_path, case, packed):
    content, expected = BAD[case]
    raw = content if isinstance(content, bytes) else content.encode()
    path = saved(tmp_path, gzip.compress(raw) if packed else raw, "trace.csv.gz" if packed else "trace.csv")
    with pytest.raises(Misconfigured, match=re.escape(expected)) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
    assert "trace" in str(caught.value)


@pytest.mark.parametrize("kept", [2, 12, -1, -9])
def test_truncated_gzip_is_said(tmp_path, kept):
    content = gzip.compress((HEAD + "".join(f"{at},{at % 7}\n" for at in range(500))).encode())
    with pytest.raises(Misconfigured, match="truncated gzip; fetch it again"):
        read_trace(saved(tmp_path, content[:kept], "a.csv.gz"))


def test_damaged_gzip_is_said(tmp_path):
    content = bytearray(gzip.compress((HEAD + "0,1\n1,2\n").encode()))
    content[-6] ^= 0xFF  # the checksum
    with pytest.raises(Misconfigured, match="damaged gzip"):
        read_trace(saved(tmp_path, bytes(content), "a.csv.gz"))


def test_a_name_that_promises_gzip_is_held_to_it(tmp_path):
    with pytest.raises(Misconfigured, match=r"not gzip although its name ends in \.gz"):
        read_trace(saved(tmp_path, HEAD + "0,1\n1,2\n", "a.csv.gz"))


def test_missing_files_and_directories_are_said(tmp_path):
    with pytest.raises(Misconfigured, match=r"no\.csv: no such trace file"):
        read_trace(tmp_path / "no.csv")
    with pytest.raises(Misconfigured, match="no file is there; check the path"):
        read_trace(tmp_path)


def test_an_unreadable_file_is_said(tmp_path, monkeypatch):
    def refuse(_self, _mode):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = saved(tmp_path, HEAD)
    monkeypatch.setattr(Path, "open", refuse)  # a test that runs as root may read everything
    with pytest.raises(Misconfigured, match="cannot be read: Permission denied; check its permissions"):
        read_trace(path)


def is_read_or_refused(path):
    """Whether the file is a trace of sane rates, or its refusal is one line."""
    try:
        trace = read_trace(path)
    except Misconfigured as error:
        return "\n" not in str(error)
    return bool((trace.rates_rps >= 0).all())


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_rubbish_is_a_trace_or_one_line(tmp_path, content):
    assert is_read_or_refused(saved(tmp_path, content))


@given(rows=st.text(alphabet="0123456789.,-+e\nani \r", max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
def test_rubbish_under_a_header_is_a_trace_or_one_line(tmp_path, rows):
    assert is_read_or_refused(saved(tmp_path, HEAD + rows))


# --- write -----------------------------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(0, 1e6), min_size=2, max_size=30),
    bin_s=st.sampled_from([0.01, 0.5, 1.0, 57.0, 60.0, 300.0]),
    packed=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_reads_back_the_same(tmp_path, values, bin_s, packed):
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    write_trace(rates(values, bin_s), path)
    read = read_trace(path)
    assert read.rates_rps.tolist() == values
    assert read.bin_s == pytest.approx(bin_s, rel=1e-6)
    assert path.read_bytes().startswith(b"\x1f\x8b") is packed


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        write_trace(rates([1, 2, 3]), tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_full_disk_leaves_what_stood_there(tmp_path, monkeypatch):
    path = saved(tmp_path, HEAD + "0,1\n1,2\n")

    def full(_handle, _mode):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(Misconfigured, match="cannot be written: No space left on device; free space there or"):
        write_trace(rates([9, 9]), path)
    assert read_trace(path).rates_rps.tolist() == [1, 2]
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_said(tmp_path):
    with pytest.raises(Misconfigured, match="cannot be written: No such file or directory; name another file"):
        write_trace(rates([1, 2]), tmp_path / "no" / "t.csv")
    with pytest.raises(Misconfigured, match=r"is a folder; name a file in it, such as .*load\.csv\.gz"):
        write_trace(rates([1, 2]), tmp_path)


# --- windows and scale -----------------------------------------------------------------------------------------


def test_a_start_beyond_the_end_says_how_long_the_trace_is():
    with pytest.raises(Misconfigured, match="trace t is 180 s long; a start at 200 s is beyond its end"):
        rates([1, 2, 3], 60).window(200)


@pytest.mark.parametrize(
    ("start_s", "duration_s"), [(-1, None), (float("nan"), None), (0, 0), (0, -5), (0, float("nan"))]
)
def test_impossible_windows_are_refused(start_s, duration_s):
    with pytest.raises(Misconfigured, match="must be"):
        rates([1, 2, 3]).span(start_s, duration_s)


def test_a_duration_beyond_the_end_is_cut_with_a_note():
    window = rates([1, 2, 3], 60).window(60, 600)
    assert window.rates_rps.tolist() == [2, 3]
    assert window.start_at == 60
    assert window.notes == ("the trace ends 120 s after the start: the 600 s asked for were cut",)


def test_a_window_takes_whole_bins_and_its_own_arrivals():
    window = rates([1, 2, 0], arrivals_s=np.array([0.5, 1.25, 1.5])).window(1.2, 0.5)
    assert window.rates_rps.tolist() == [2]
    assert window.arrivals_s.tolist() == [0.25, 0.5]
    assert "widened to whole bins" in window.notes[0]


@given(
    values=st.lists(st.floats(0.1, 1e4), min_size=2, max_size=20),
    mean_rps=st.floats(0.1, 1e4),
    bin_s=st.sampled_from([0.5, 1.0, 60.0]),
    part=st.tuples(st.floats(0, 0.9), st.floats(0.01, 1)),
)
def test_scaling_gives_the_mean_over_the_window(values, mean_rps, bin_s, part):
    trace = rates(values, bin_s)
    start_s, duration_s = part[0] * trace.duration_s, part[1] * trace.duration_s
    scaled = trace.scaled(mean_rps, start_s, duration_s)
    from_s, to_s, _ = trace.span(start_s, duration_s)
    assert scaled.mean_between(from_s, to_s) == pytest.approx(mean_rps)
    assert scaled.rates_rps / trace.rates_rps == pytest.approx(scaled.rates_rps[0] / trace.rates_rps[0])
    assert not scaled.whole_counts


def test_a_multiple_of_a_load_is_drawn_anew_and_says_so():
    trace = rates([1, 2, 3])
    twice = trace.times(2.0)
    assert (twice.rates_rps == 2 * trace.rates_rps).all()
    assert (twice.notes[-1], twice.whole_counts, twice.arrivals_s) == ("rates times 2", False, None)
    assert trace.times(1.0) is trace
    after = trace.scaled(5.0).times(2.0, after_rps=5.0)
    assert after.mean_rps == pytest.approx(10.0)
    assert after.notes[-1] == "rates times 2, which makes the mean over the replay 10 rps"


def test_scaling_silence_and_to_nothing_is_refused():
    with pytest.raises(Misconfigured, match="is 0 rps from 0 to 2 s"):
        rates([0, 0, 5]).scaled(10, 0, 2)
    for mean_rps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(Misconfigured, match="mean rate must be above 0"):
            rates([1, 2]).scaled(mean_rps)


def test_rates_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        rates([1, 2]).rates_rps[0] = 5


# --- statistics ------------------------------------------------------------------------------------------------


def test_statistics_of_a_small_trace():
    seconds = np.tile([0.0, 2.0], 60)
    trace = Trace(name="t", start_at=0, bin_s=1, rates_rps=seconds, whole_counts=True)
    found = describe(trace)
    assert (found.mean_rps, found.p50_rps, found.peak_rps, found.peak_over_mean, found.cv) == (1, 1, 2, 2, 1)
    assert (found.burstiness_p50, found.burstiness_p99) == (1, 1)
    assert found.day_autocorrelation is None
    assert found.requests == 120


@pytest.mark.parametrize(("short_s", "known"), [(3, True), (3600, True), (4 * 3600, False)])
def test_a_log_that_ends_a_little_before_two_days_has_a_daily_rhythm(short_s, known):
    day = 5 + 2 * np.sin(np.arange(86_400) / 86_400 * 2 * np.pi)
    found = describe(rates(np.tile(day, 2)[: 2 * 86_400 - short_s]))
    assert found.day_autocorrelation == (pytest.approx(1, abs=1e-3) if known else None)


def test_a_daily_rhythm_has_autocorrelation_one():
    day = 50 + 20 * np.sin(np.arange(288) / 288 * 2 * np.pi)
    assert describe(rates(np.tile(day, 3), 300)).day_autocorrelation == pytest.approx(1)
    assert describe(rates(np.tile(day, 3), 300)).burstiness_p50 is None


# The figures of the traces' README: mean, p99, peak, CV, autocorrelation, burstiness p50 and p99.
PUBLISHED = {
    "twitter_2021_08_d01_07_1s": (64.7, 243, 338, 0.62, 0.42, 1.1, 8.9),
    "azure_llm_2023_code_1s": (2.57, 27.7, 67, 2.27, None, 7.2, 22),
    "wikipedia_2007_09_18_1h_10ms": (2935, 4100, 6100, 0.17, None, 1.3, 3.6),
    "worldcup98_1min": (180, 1832, 3824, 1.78, 0.62, None, None),
    "alibaba_genai_qps_57s": (1.53, 5.94, 6.84, 1.20, None, None, None),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_statistics_of_the_real_traces_are_the_published_ones(name, data_dir):
    found = describe(read_trace(data_dir / "traces" / f"{name}.csv.gz"))
    ours = (found.mean_rps, found.p99_rps, found.peak_rps, found.cv, found.day_autocorrelation)
    ours += (found.burstiness_p50, found.burstiness_p99)
    for mine, published in zip(ours, PUBLISHED[name], strict=True):
        assert mine is None if published is None else mine == pytest.approx(published, rel=0.02)


def test_a_day_of_seconds_is_read_whole(tmp_path):
    counts = np.arange(86_400) % 300
    rows = "".join(f"{at},{count}\n" for at, count in enumerate(counts.tolist()))
    assert np.array_equal(read_trace(saved(tmp_path, HEAD + rows)).rates_rps, counts)
