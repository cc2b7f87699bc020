"""At night the acting controller replays the day that is over, in a process of its own; reports find it done."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from mark.adapters import adapter_of
from mark.config.settings import Settings
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.live.background import nightly_replays
from mark.live.background.nightly_replays import NightlyReplays, Task
from mark.live.local.running import Running
from mark.live.processes import replayer
from mark.report.cost.read import read_cost_report
from mark.report.cost.replays import replayed_days
from mark.report.mail.message import render
from mark.store.embedded import EmbeddedRedis
from mark.store.published_status import COMPARED, NIGHTLY, FailedReplay, NightlyStatus
from mark.store.service import ServiceStore
from tests.live.served_day import BEGAN, DAY_S, MODEL, NOW, RPS, SERVICE, write_service
from tests.waiting import PATIENCE_S, is_gone, until

POLICIES = ("sagemaker", "static-peak")
DAY = datetime.fromtimestamp(BEGAN, UTC).date()
HANGS = """
import os, pathlib, signal
place = pathlib.Path(os.environ["SAYS_PID"])
place.with_suffix(".new").write_text(str(os.getpid()))
place.with_suffix(".new").rename(place)
signal.pause()
"""


def settings(*policies: str) -> Settings:
    return Settings.model_validate(
        {
            "service": {
                "name": SERVICE,
                "serve": [
                    {
                        "model": MODEL,
                        "offerings": {"types": ["c5.large"]},
                        "forecaster": "last-value",
                        "policy_name": "mark",
                    }
                ],
                "report": {"policies": policies},
            }
        }
    )


@pytest.fixture(scope="module")
def written(redis: EmbeddedRedis) -> ServiceStore:
    return write_service(redis.url)


@pytest.fixture
def store(written: ServiceStore) -> ServiceStore:
    """The service's, of which no day was replayed at night."""
    written.put_clock(ClockAnchor(wall_at=0.0, service_at=NOW, speed=0.0))
    NIGHTLY.write(written, NightlyStatus())
    return written


def nights(redis: EmbeddedRedis, store: ServiceStore, *policies: str, **more: Any) -> NightlyReplays:
    given = {"slot": threading.Lock(), "pause": lambda _took_s: 0.0, **more}
    running = Running(name=SERVICE, pid=0, store=redis.url)
    return NightlyReplays(settings(*policies), running, store=store, **given)


def told(store: ServiceStore) -> NightlyStatus:
    return NIGHTLY.read(store) or NightlyStatus()


def failure(store: ServiceStore) -> FailedReplay:
    failed = told(store).failed
    assert failed is not None
    return failed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The days that would have been replayed."""
    found: list[Task] = []
    monkeypatch.setattr(nightly_replays, "replay_apart", lambda task, _over: found.append(task))
    return found


def test_a_day_that_is_over_is_replayed_apart_and_stands_in_the_mail(
    redis: EmbeddedRedis, store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly_replays, "POLL_EACH_S", 0.05)
    before_midnight = ClockAnchor(wall_at=time.time(), service_at=BEGAN + DAY_S - 900.0, speed=600.0)
    store.put_clock(before_midnight)
    over = threading.Event()
    run = threading.Thread(target=nights(redis, store, "static-peak").run, args=(over,), daemon=True)
    run.start()
    try:
        assert replayed_days(store, MODEL) == ()
        until(lambda: told(store).days)
    finally:
        over.set()
        run.join(5.0)
    compared = COMPARED.read(store)
    assert compared is not None
    assert compared.policy == "static-peak"
    assert compared.usd > 0
    assert compared.replayed_s > DAY_S / 2

    (kept,) = replayed_days(store, MODEL)
    assert (kept.day, [*kept.policies]) == (DAY, ["static-peak"])
    assert kept.policies["static-peak"].requests == round(DAY_S * RPS)
    assert told(store) == NightlyStatus(days={DAY.isoformat(): ("static-peak",)})

    morning = ClockAnchor(wall_at=0.0, service_at=BEGAN + DAY_S + 1200.0, speed=0.0)
    store.put_clock(morning)
    report = read_cost_report(store, period_s=DAY_S, wall_at=0.0)  # as the function makes it, the day cut
    text = render(report).text
    assert [one.policy for one in report.models[0].baselines] == ["static-peak"]
    assert "static-peak" in text.partition("What other policies would have cost".upper())[2]


def test_the_latest_day_comes_first_and_each_is_done_once(
    redis: EmbeddedRedis, store: ServiceStore, asked: list[Task]
) -> None:
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=BEGAN + 2.5 * DAY_S, speed=0.0))
    one, over = nights(redis, store, *POLICIES), threading.Event()
    for _ in range(4):
        one.poll(over)
    nights(redis, store, *POLICIES).poll(over)  # whoever acts next goes on where it stopped
    assert [(task.since, task.until) for task in asked] == [
        (BEGAN + DAY_S, BEGAN + 2 * DAY_S),
        (BEGAN, BEGAN + DAY_S),
    ]

    nights(redis, store, *POLICIES, "reactive").poll(over)
    assert asked[-1].policies == (*POLICIES, "reactive")


def test_the_last_minutes_of_a_day_are_waited_for(
    redis: EmbeddedRedis, store: ServiceStore, asked: list[Task]
) -> None:
    one, over = nights(redis, store, *POLICIES), threading.Event()
    for after_s, done in ((200.0, 0), (400.0, 1)):
        store.put_clock(ClockAnchor(wall_at=0.0, service_at=BEGAN + DAY_S + after_s, speed=0.0))
        one.poll(over)
        assert len(asked) == done


def test_it_waits_while_a_forecaster_is_trained_and_after_a_start(
    redis: EmbeddedRedis, store: ServiceStore, asked: list[Task]
) -> None:
    slot, over = threading.Lock(), threading.Event()
    one = nights(redis, store, *POLICIES, slot=slot)
    with slot:
        one.poll(over)
    assert asked == []
    one.poll(over)
    assert len(asked) == 1
    assert slot.acquire(blocking=False)

    nights(redis, store, "reactive", pause=lambda _took_s: 600.0).poll(over)
    assert len(asked) == 1


def test_a_failure_is_told_and_does_not_keep_other_days_waiting(
    redis: EmbeddedRedis, store: ServiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_clock(ClockAnchor(wall_at=0.0, service_at=BEGAN + 2.5 * DAY_S, speed=0.0))
    one, over = nights(redis, store, *POLICIES), threading.Event()
    tried: list[float] = []
    really = nightly_replays.replay_apart
    (tmp_path / "refuses.py").write_text(
        "print('a line')\nprint('no store at 127.0.0.1:1')\nraise SystemExit(2)\n"
    )
    monkeypatch.setattr(nightly_replays, "MODULE", "refuses")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def fail(task: Task, over: threading.Event) -> None:
        tried.append(task.since)
        if task.since > BEGAN:
            really(task, over)

    monkeypatch.setattr(nightly_replays, "replay_apart", fail)
    one.poll(over)
    failed = failure(store)
    assert failed.day == datetime.fromtimestamp(BEGAN + DAY_S, UTC).date().isoformat()
    assert failed.error == "no store at 127.0.0.1:1"
    one.poll(over)
    assert tried == [BEGAN + DAY_S, BEGAN]
    assert set(told(store).days) == {DAY.isoformat()}


def test_a_replayer_without_its_store_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"NICE": 0, "FIRST_TO_GO": Path("/proc/self/oom_score_adj").read_text()}  # this process goes on
    for name, value in kept.items():
        monkeypatch.setattr(replayer, name, value)
    task = Task(
        service=SERVICE,
        store_url="redis://127.0.0.1:1",
        settings=settings(*POLICIES),
        since=BEGAN,
        until=BEGAN + DAY_S,
        policies=POLICIES,
    )
    said = adapter_of(Task).dump_json(task)
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(said)))

    assert replayer.main() == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_the_end_of_a_term_ends_its_child_at_once_and_is_no_failure(
    redis: EmbeddedRedis, store: ServiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    monkeypatch.setattr(nightly_replays, "MODULE", "hangs")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SAYS_PID", str(tmp_path / "pid"))
    over = threading.Event()
    poll = threading.Thread(target=nights(redis, store, *POLICIES).poll, args=(over,), daemon=True)
    poll.start()
    until((tmp_path / "pid").exists)
    over.set()
    poll.join(PATIENCE_S)
    assert not poll.is_alive()
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert told(store) == NightlyStatus()


def test_a_child_that_lacks_memory_or_time_is_told_so(
    redis: EmbeddedRedis, store: ServiceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr(nightly_replays, "MODULE", "dies")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    nights(redis, store, *POLICIES).poll(threading.Event())
    assert "memory" in failure(store).error


def test_without_policies_nothing_is_looked_at_and_the_term_goes_on(redis: EmbeddedRedis) -> None:
    class Untouched:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(name)

    class Term(threading.Event):
        """Says once somebody waits for its end."""

        def __init__(self) -> None:
            super().__init__()
            self.waited_for = threading.Event()

        def wait(self, timeout: float | None = None) -> bool:
            self.waited_for.set()
            return super().wait(timeout)

    over = Term()
    run = threading.Thread(target=nights(redis, Untouched()).run, args=(over,), daemon=True)  # type: ignore[arg-type]
    run.start()
    assert over.waited_for.wait(PATIENCE_S)
    assert run.is_alive()
    over.set()
    run.join(PATIENCE_S)
    assert not run.is_alive()


def test_a_store_that_is_away_ends_nothing(redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    class Away:
        def clock(self) -> ClockAnchor:
            looks.append(1)
            raise RetryLater("away")

    monkeypatch.setattr(nightly_replays, "POLL_EACH_S", 0.01)
    over = threading.Event()
    run = threading.Thread(target=nights(redis, Away(), *POLICIES).run, args=(over,), daemon=True)  # type: ignore[arg-type]
    run.start()
    until(lambda: len(looks) > 2)
    over.set()
    run.join(5.0)
    assert not run.is_alive()


def test_policies_of_the_settings_are_known_ones() -> None:
    with pytest.raises(ValueError, match="no policy best; known: hedged"):
        settings("best")
