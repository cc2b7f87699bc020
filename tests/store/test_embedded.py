"""The server of our own: its folder, its socket, its end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mark.domain.errors import Misconfigured
from mark.store.connect import connect
from mark.store.embedded import SOCKET_PATH_MAX, EmbeddedRedis
from tests.end_to_end.rig import eventually

PARENT = """
import sys, time
from pathlib import Path
from mark.store.embedded import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1]))
print(server.pid, flush=True)
time.sleep(60)
"""


def lives(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


def put_and_get(url: str, value: str | None = None) -> str | None:
    link = connect(url)
    if value is not None:
        link.call("SET", "key", value)
    found = link.call("GET", "key")
    link.close()
    return None if found is None else found.decode()


def test_it_is_ready_and_ends_when_it_is_stopped(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        assert server.running
        assert put_and_get(server.url, "value") == "value"
        pid = server.pid
    assert not lives(pid)
    assert not server.running
    assert not (folder / "redis.sock").exists()
    server.stop()


def test_its_data_outlive_a_kill_at_the_same_url(folder: Path) -> None:
    with EmbeddedRedis(folder) as first:
        put_and_get(first.url, "value")
        os.kill(first.pid, signal.SIGKILL)
        with EmbeddedRedis(folder) as second:
            assert second.url == first.url
            assert put_and_get(second.url) == "value"
            first.stop()  # too late to take anything from the second
            assert put_and_get(second.url) == "value"


def test_it_dies_with_its_parent(folder: Path) -> None:
    words = [sys.executable, "-c", PARENT, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:  # noqa: S603
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert lives(pid)
        parent.kill()
    assert ends_within(pid, 60.0)


def test_nobody_else_may_come_near(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "redis.sock").stat().st_mode) == 0o700
        sockets = Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]
        ours = {os.readlink(file) for file in Path(f"/proc/{server.pid}/fd").iterdir() if file.is_symlink()}
        assert not [line for line in sockets if f"socket:[{line.split()[9]}]" in ours]


def test_a_long_folder_gets_a_short_socket_that_stays_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    with EmbeddedRedis(folder) as server:
        path = Path(server.url.removeprefix("unix://"))
        assert len(os.fsencode(path)) <= SOCKET_PATH_MAX
        assert not path.is_relative_to(folder)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        put_and_get(server.url, "value")
    with EmbeddedRedis(folder) as again:
        assert again.url == server.url
        assert put_and_get(again.url) == "value"
    path.parent.rmdir()


def test_two_servers_cannot_share_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mark.store.embedded.LOCK_S", 0.05)
    with (
        EmbeddedRedis(folder) as server,
        pytest.raises(Misconfigured, match="another service keeps its store"),
    ):
        EmbeddedRedis(folder)
    assert not server.running


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="cannot keep a store in"):
        EmbeddedRedis(tmp_path / "file" / "folder")
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(Misconfigured, match="not a folder of this user's"):
        EmbeddedRedis(tmp_path / "link")


def test_a_setting_that_redis_refuses_is_told(folder: Path) -> None:
    with pytest.raises(Misconfigured, match="redis-server ended at once"):
        EmbeddedRedis(folder, options={"maxmemory-policy": "nonsense"})


def test_a_server_that_is_not_there_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"cannot start .*: No such file"):
        EmbeddedRedis(folder, executable=tmp_path / "redis-server")


def test_a_torn_end_of_its_file_is_cut_off(folder: Path) -> None:
    with EmbeddedRedis(folder) as server:
        put_and_get(server.url, "value")
    with (folder / "appendonly.aof").open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$3\r\nke")
    with EmbeddedRedis(folder) as server:
        assert put_and_get(server.url) == "value"


def test_its_file_is_written_anew_when_it_has_grown(tmp_path: Path) -> None:
    """What is overwritten does not stay on the disk."""
    options = {"auto-aof-rewrite-min-size": "1mb"}
    with EmbeddedRedis(tmp_path / "redis", options=options) as server:
        link = connect(server.url)
        assert link.call("CONFIG", "GET", "auto-aof-rewrite-percentage")[1] == b"100"
        written = 0

        def is_small_after_another() -> bool:
            nonlocal written
            written += 1
            link.call("SET", "key", f"{written:08}" * 65_536)
            return written > 20 and aof_bytes(tmp_path / "redis") < 2 * 1024 * 1024

        eventually(is_small_after_another, within_s=60.0)
        link.close()
    with EmbeddedRedis(tmp_path / "redis") as server:
        found = put_and_get(server.url)
        assert found is not None
        assert found[:8] == f"{written:08}"


def aof_bytes(folder: Path) -> int:
    """What is on the disk of the append-only file, in one part or several."""
    return sum(path.stat().st_size for path in folder.rglob("*.aof*") if path.is_file())
