"""Logs are put aside while their processes write, and are bounded in size and number."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mark.live.local import log_files
from mark.live.local.log_files import KEEP_OLD, keep_logs, rotate
from tests.end_to_end.rig import eventually

WRITER = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_a_log_is_put_aside_under_its_writer_and_goes_on_at_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "gateway-0.log"
    with path.open("ab") as out:
        writer = subprocess.Popen([sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=out)  # noqa: S603
    assert writer.stdin is not None
    try:
        for part in range(KEEP_OLD + 2):
            writer.stdin.write(f"part {part}\n".encode())
            writer.stdin.flush()
            eventually(lambda: path.stat().st_size > 0)
            keep_logs(tmp_path, log_bytes=3)
            assert path.stat().st_size == 0
    finally:
        writer.stdin.close()
        writer.wait()
    kept = {item.name: item.read_text() for item in tmp_path.iterdir()}
    assert kept == {
        "gateway-0.log": "",
        **{f"gateway-0.log.{n}": f"part {KEEP_OLD + 2 - n}\n" for n in range(1, KEEP_OLD + 1)},
    }


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "aws.log").write_text("short")
    keep_logs(tmp_path, log_bytes=5)
    assert [item.name for item in tmp_path.iterdir()] == ["aws.log"]


def test_a_log_that_is_written_to_is_put_aside_in_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "busy.log"
    over = threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as out:
            while not over.is_set():
                out.write(b"x" * 63 + b"\n")

    path.touch()
    thread = threading.Thread(target=write)
    thread.start()
    try:
        eventually(lambda: path.stat().st_size > 100_000)
        rotate(path)
    finally:
        over.set()
        thread.join()
    put_aside = (tmp_path / "busy.log.1").read_bytes()
    assert len(put_aside) > 100_000
    assert {len(found) % 64 for found in (put_aside, path.read_bytes())} == {0}  # whole lines


def test_a_full_disk_costs_the_copy_and_not_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.log"
    path.write_text("long")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_files.shutil, "copyfileobj", full)
    rotate(path)
    assert [(item.name, item.stat().st_size) for item in tmp_path.iterdir()] == [("agent.log", 0)]


def test_logs_of_ended_instances_go_oldest_first_and_open_ones_stay(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"i-{number}.log"
        path.write_text("x")
        (tmp_path / f"i-{number}.log.1").write_text("x")
        os.utime(path, (1000.0 + number, 1000.0 + number))
    with (tmp_path / "i-0.log").open("ab"):
        keep_logs(tmp_path, keep_files=4)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["i-0.log", "i-7.log", "i-8.log", "i-9.log"]
    assert len(list(tmp_path.glob("*.log.1"))) == 4


def test_all_logs_together_are_bounded(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"a-{number}.log").write_bytes(b"x" * 10)
        part = tmp_path / f"a-{number}.log.1"
        part.write_bytes(b"x" * 100)
        os.utime(part, (1000.0 + number, 1000.0 + number))
    keep_logs(tmp_path, total_bytes=60 + 250)
    assert sorted(path.name for path in tmp_path.glob("*.log.1")) == ["a-4.log.1", "a-5.log.1"]
