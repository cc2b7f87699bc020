"""A forecaster is trained anew in a process of its own: nobody waits for it, and what fails changes nothing."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from mark.config.service import RetrainSettings
from mark.config.settings import Settings
from mark.controller.journal import Header, Tick, entry_line, header_line, read_journal
from mark.controller.state import Decision, Note, NoteKind, Observation, State
from mark.controller.step import NO_PLAN, step
from mark.domain.demand import UNIT_S, Demand, DemandUnit, point_forecast
from mark.domain.errors import MarkError, Misconfigured, RetryLater
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.lease import LeaseTimes
from mark.live.background.failures import BackgroundFailures
from mark.live.control.leadership import leader_election
from mark.live.forecasting.retraining import FollowedJournal, Retraining, pause_after
from mark.offline.explanation.explain import explain_journal
from mark.ports import ForecasterSetup
from mark.report.live.status_table import status_table
from mark.store.published_status import FailedTraining, RunningTraining
from tests.controller.builders import POLICY
from tests.report.live.fakes import busy_model, status
from tests.waiting import is_gone, until

TIMES = LeaseTimes(ttl_s=3.0, renew_s=0.75, retry_s=0.001)
BEGAN_AT = 1_800_000_000.0
HOUR_S = 3600.0
DAY_MIN = 24 * 60
EVERY_DAY = RetrainSettings(drift=None)
FACTORY = '''
import json, os, time
from pathlib import Path
from mark.domain.demand import point_forecast
from mark.domain.errors import Misconfigured

class Learner:
    """Learns for a while when its history ended; `mode` in its file's folder says how that goes."""

    def __init__(self, setup):
        learned = setup.cache_dir / f"learned-{setup.history.end_at:.0f}-{setup.seed}.json"
        mode = Path(__file__).with_name("mode")
        self.mode = mode.read_text() if mode.exists() else ""
        if not learned.exists():
            about = {"nice": os.nice(0), "threads": os.environ.get("OMP_NUM_THREADS")}
            mode.with_name(f"trains-{os.getpid()}").write_text(json.dumps(about))
            if self.mode == "refuse":
                raise Misconfigured("nothing to\\nlearn from")
            if self.mode == "die":
                os.kill(os.getpid(), 9)
            if self.mode == "hang":
                time.sleep(600)
            learned.write_text(json.dumps(setup.history.end_at))
        self.rate = json.loads(learned.read_text()) / 1e6

    def forecast(self, history, horizon):
        if self.mode == "mute":
            raise ValueError("cannot speak")
        return point_forecast(
            history.end_at, mean_rps=(self.rate,) * horizon, max_rps=(self.rate,) * horizon, source="learner"
        )
'''


class Store:
    """Status documents, as the store keeps them; unreachable while it is told so."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.unreachable = False

    def status(self, name: str) -> Any:
        return json.loads(self.kept[name]) if name in self.kept else None

    def put_status(self, name: str, document: Any) -> None:
        if self.unreachable:
            raise RetryLater("unreachable")
        self.kept[name] = json.dumps(document)


class World:
    """A model's service: its ticks are followed an hour of service time at a time."""

    def __init__(self, folder: Path, store: Any, **changes: Any) -> None:
        self.store, self.folder = store, folder
        self.at = BEGAN_AT
        own = {
            "settings": EVERY_DAY,
            "slot": threading.Lock(),
            "pause": lambda _took_s: 0.0,
            "seed": 0,
            "name": "served",
            "past_min": 60,
        }
        given = {**own, **changes}
        self.model: Any = _model(folder, given["name"], given["seed"], given["past_min"])
        self.history = self.model.history(BEGAN_AT)
        self.retraining = Retraining(
            self.model,
            given["settings"],
            slot=given["slot"],
            service="mine",
            pause=given["pause"],
            elsewhere=given.get("elsewhere"),
        )

    def tick(self, hours: float = 1 / 60, *, rate: float = 5.0, said: float | None = None) -> None:
        self.at += hours * HOUR_S
        seen = observation(self.at, rate, said)
        self.history = self.history.followed_by(seen.demand, 20_000)
        self.retraining.follow(seen, self.history, self.store)

    def tick_until(self, check: Callable[[], object], hours: float = 1 / 60) -> None:
        def ticked() -> object:
            self.tick(hours)
            return check()

        until(ticked)

    def catch_up(self) -> None:
        until(lambda: self.retraining.keep_up(self.store))

    def speaks_of(self) -> float:
        """The end of the history that the forecaster in use learned from."""
        return 1e6 * self.retraining.forecast(self.history, 60).max_rps[0][0]

    @property
    def told(self) -> Any:
        return self.retraining.told()


def _model(folder: Path, name: str, seed: int, past_min: int = 15) -> Any:
    file = folder / "learner.py"
    file.write_text(FACTORY)
    past = Demand(end_at=900.0, mean_rps=(5.0,) * past_min, max_rps=(6.0,) * past_min)
    policy = SimpleNamespace(lead_units=5, horizon=60)
    return SimpleNamespace(
        name=name,
        bundle=SimpleNamespace(forecaster=f"{file}:Learner", controller=policy),
        setup=ForecasterSetup(history=past, seed=seed, cache_dir=folder),
        history=lambda end_at: replace(past, end_at=end_at),
    )


def observation(at: float, rate: float, said: float | None) -> Observation:
    unit = DemandUnit(start_at=at - UNIT_S, count=0, mean_rps=rate, max_rps=rate)
    rates = (said or 0.0,) * 60
    forecast = None if said is None else point_forecast(at, mean_rps=rates, max_rps=rates, source="test")
    return Observation(now=at, fleet=FleetView(), demand=unit, forecast=forecast)


def trainers(folder: Path) -> dict[int, dict[str, Any]]:
    """Who trains or trained, by process, but for ourselves."""
    found = {int(file.name.partition("-")[2]): file for file in folder.glob("trains-*") if file.stat().st_size}
    return {pid: json.loads(file.read_text()) for pid, file in found.items() if pid != os.getpid()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def world(folder: Path) -> World:
    made = World(folder, Store())
    made.retraining.begin(made.store, BEGAN_AT)
    return made


def training_note(text: str) -> Note:
    return Note(kind=NoteKind.TRAINING, text=f"forecaster: {text}")


def test_each_day_it_is_trained_in_a_process_of_low_priority_and_then_used(world: World) -> None:
    assert (world.told.why, world.told.until, world.told.training) == ("first", BEGAN_AT, None)
    world.tick(23.9)
    assert world.told.training is None
    world.tick(0.2)
    due_at, learned_until = world.at, world.history.end_at

    assert world.told.training == RunningTraining(why="schedule", since=due_at)
    assert world.retraining.notes == [training_note("training begins (schedule) on 62 min, 60 min at most")]
    assert world.speaks_of() == 900.0
    world.tick_until(lambda: world.told.training is None)

    told = world.told
    note = f"training (schedule) on 62 min is done after {told.took_s} s: it is in use from now on"
    assert world.retraining.notes[1:] == [training_note(note)]
    assert world.speaks_of() == pytest.approx(learned_until)
    assert (told.why, told.at, told.failed) == ("schedule", world.at, None)
    assert (told.until, told.until - told.from_) == (
        learned_until,
        len(world.model.setup.history) * 60 + 120,
    )
    ((pid, about),) = trainers(world.folder).items()
    assert about == {"nice": min(19, os.nice(0) + 10), "threads": "1"}
    assert is_gone(pid)

    world.tick(23.9)
    assert world.told.training is None
    ends = [learned_until]
    for hours in (0.2, 24.5):
        world.tick(hours)
        ends.append(world.history.end_at)
        world.tick_until(lambda: world.told.until == ends[-1])
    kept = world.folder / "services" / "mine" / "served"
    assert {folder.name for folder in kept.iterdir()} == {f"{end:.0f}" for end in ends[1:]}, "the last two"


def test_it_is_trained_when_its_forecasts_get_worse_and_not_at_once_again(folder: Path) -> None:
    settings = RetrainSettings(every_h=None, drift=1.5, at_least_h=100.0)
    world = World(folder, Store(), settings=settings)
    world.retraining.begin(world.store, BEGAN_AT)
    for _ in range(1000):
        world.tick(rate=100.0, said=90.0)
    assert world.told.drift == pytest.approx(1.0)
    for _ in range(181):
        world.tick(rate=100.0, said=80.0)
    assert world.told.drift == pytest.approx(2.0, rel=0.05)
    assert world.told.training is None

    world.tick(100.0, rate=100.0, said=80.0)
    assert world.told.training.why == "drift"
    world.tick_until(lambda: world.told.training is None)
    assert world.told.why == "drift"
    world.tick()
    assert world.told.training is None


def test_a_new_process_learns_from_the_journal_how_forecasts_did(world: World) -> None:
    ticks = [observation(BEGAN_AT + 60.0 * n, 100.0, 90.0 if n < 1000 else 80.0) for n in range(1100)]
    for seen in ticks:
        world.retraining.follow(seen, world.history, world.store)
    other = World(world.folder, world.store)
    journal = [Tick(seen=seen, orders=(), notes=()) for seen in ticks]

    assert list(other.retraining.read(journal)) == journal
    other.retraining.begin(other.store, BEGAN_AT)
    assert other.told.drift == world.told.drift > 1.0


@pytest.mark.parametrize(
    ("mode", "said"),
    [("refuse", "nothing to learn from"), ("mute", "cannot speak"), ("hang", "not done within 1 s")],
)
def test_what_fails_or_is_late_leaves_the_old_one_and_the_status_says_so(
    folder: Path, mode: str, said: str
) -> None:
    settings = RetrainSettings(limit_min=1 / 60 if mode == "hang" else 60.0, at_least_h=3.0)
    world = World(folder, Store(), settings=settings)
    world.retraining.begin(world.store, BEGAN_AT)
    (folder / "mode").write_text(mode)
    world.tick(24.5)
    due_at = world.at
    world.tick_until(lambda: world.told.training is None, hours=0.0)

    assert said in world.told.failed.error
    [_, note] = world.retraining.notes
    assert re.match(
        rf"forecaster: training \(schedule\) on \d+ min failed after \d+\.\d s: .*{said}.*; the", note.text
    )
    assert world.told.failed.why == "schedule"
    assert world.told.why == "first"
    assert world.speaks_of() == 900.0
    assert all(map(is_gone, trainers(folder)))
    world.tick(2.9)
    assert world.told.training is None
    if mode == "hang":  # what is not done within seconds on an idle machine is not on a busy one
        return
    (folder / "mode").unlink()
    world.tick(3.1 - (world.at - due_at) / HOUR_S)
    world.tick_until(lambda: world.told.training is None)
    assert world.told.failed is None
    assert world.told.why == "schedule"


def test_the_first_forecaster_of_a_days_history_learns_in_a_process_that_ends(folder: Path) -> None:
    world = World(folder, Store(), past_min=DAY_MIN)

    [trainer] = folder.glob("trains-*")
    assert trainer.name != f"trains-{os.getpid()}"
    assert all(map(is_gone, trainers(folder)))
    world.retraining.begin(world.store, BEGAN_AT)
    assert world.speaks_of() == 900.0

    World(folder, Store(), past_min=DAY_MIN)
    assert [*folder.glob("trains-*")] == [trainer], "the next process finds what was learned"


@pytest.mark.parametrize(("mode", "said"), [("die", "ended with status -9"), ("hang", "not done within")])
def test_a_first_training_that_dies_or_hangs_leaves_the_fallback_and_is_tried_again(
    folder: Path, mode: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "mode").write_text(mode)
    settings = RetrainSettings(limit_min=(1 if mode == "hang" else 3600) / 60, at_least_h=3.0)
    world = World(folder, Store(), past_min=DAY_MIN, settings=settings)
    world.retraining.begin(world.store, BEGAN_AT)

    [line] = caplog.records
    assert said in line.why
    assert all(map(is_gone, trainers(folder)))
    with pytest.raises(MarkError, match=said):
        world.retraining.forecast(world.history, 60)

    world.tick()  # the cause goes on: the next try fails as well, and then the least pause holds
    world.tick_until(lambda: world.told.training is None, hours=0.0)
    assert world.told.failed.why == "first"
    world.tick(2.9)
    assert world.told.training is None
    if mode == "hang":  # as above
        return
    (folder / "mode").unlink()
    world.tick(0.2)
    world.tick_until(lambda: world.told.training is None, hours=0.0)
    assert world.told.failed is None
    assert world.retraining.forecast(world.history, 60).source == "learner"


def test_a_first_forecaster_that_refuses_its_history_refuses_to_start(folder: Path) -> None:
    (folder / "mode").write_text("refuse")

    with pytest.raises(Misconfigured, match=r"nothing to\s+learn from"):
        World(folder, Store(), past_min=DAY_MIN)


def test_an_unreachable_store_delays_the_new_one_and_loses_nothing(world: World) -> None:
    world.tick(24.5)
    world.store.unreachable = True
    with pytest.raises(RetryLater):
        world.tick_until(lambda: False)
    assert world.speaks_of() == 900.0
    world.store.unreachable = False
    world.tick()
    assert world.told.why == "schedule"


def test_in_a_hurried_rehearsal_real_minutes_lie_between_two_trainings(folder: Path) -> None:
    world = World(folder, Store(), pause=pause_after)
    world.retraining.begin(world.store, BEGAN_AT)
    assert pause_after(1.0) == 600.0
    assert pause_after(3600.0) == 4 * 3600.0
    for _ in range(5):
        world.tick(100.0)
    assert world.told.training is None


def test_one_at_a_time_is_trained(folder: Path) -> None:
    slot = threading.Lock()
    both = [World(folder, Store(), slot=slot, name=name) for name in ("a", "b")]
    for world in both:
        world.retraining.begin(world.store, BEGAN_AT)
        world.tick(24.5)
    one, other = both
    assert one.told.training
    assert other.told.training is None
    one.tick_until(lambda: one.told.training is None)
    other.tick()
    assert other.told.training
    other.retraining.stop()
    assert not slot.locked()


def test_a_controller_that_takes_over_or_restarts_uses_what_was_trained_last(world: World) -> None:
    waiting = World(world.folder, world.store)
    assert waiting.retraining.keep_up(waiting.store)
    world.tick(24.5)
    world.tick_until(lambda: world.told.why == "schedule")

    for late in (waiting, World(world.folder, world.store)):
        late.catch_up()
        late.retraining.begin(late.store, BEGAN_AT)
        assert late.retraining.forecast(world.history, 60) == world.retraining.forecast(world.history, 60)
        assert late.told == replace(world.told, drift=None)
    assert len(trainers(world.folder)) == 1  # the others found it in the cache

    other = World(world.folder, world.store, seed=1)
    assert other.retraining.keep_up(other.store)
    assert other.speaks_of() == 900.0, "what another seed learned is left alone"
    world.store.kept["trained-on:served"] = '{"version": "another"}'
    other = World(world.folder, world.store)
    assert other.retraining.keep_up(other.store)
    assert other.speaks_of() == 900.0


def test_what_cannot_be_made_again_is_tried_once(world: World) -> None:
    world.tick(24.5)
    world.tick_until(lambda: world.told.why == "schedule")
    late = World(world.folder, world.store)
    for learned in world.folder.rglob("learned-18*"):
        learned.unlink()
    (world.folder / "mode").write_text("refuse")
    late.catch_up()
    late.retraining.begin(late.store, BEGAN_AT)

    assert late.told.training is None
    assert late.told.failed.error == "nothing to learn from"


def test_when_it_is_stopped_its_process_ends(world: World) -> None:
    (world.folder / "mode").write_text("hang")
    world.tick(24.5)
    until(lambda: trainers(world.folder))
    world.retraining.stop()

    assert all(map(is_gone, trainers(world.folder)))
    assert world.told.training is None


def test_its_process_ends_when_its_parent_is_killed(folder: Path) -> None:
    (folder / "mode").write_text("hang")
    model = _model(folder, "served", 0)
    arguments = (model.bundle.forecaster, str(BEGAN_AT), str(folder))
    with subprocess.Popen([sys.executable, "-c", HANG, *arguments], cwd=Path(__file__).parents[3]) as parent:  # noqa: S603
        try:
            until(lambda: trainers(folder))
        finally:
            parent.send_signal(signal.SIGKILL)
    (pid,) = trainers(folder)
    until(lambda: is_gone(pid))


HANG = """
import sys, threading, time
from pathlib import Path
from mark.domain.demand import Demand
from mark.live.forecasting.forecaster_training import Task, Training
forecaster, end_at, folder = sys.argv[1:]
history = Demand(end_at=float(end_at), mean_rps=(5.0,), max_rps=(6.0,))
task = Task(forecaster=forecaster, history=history, seed=0, cache_dir=Path(folder))
training = Training(task, limit_s=600.0, prove=lambda _made: None, slot=threading.Lock())
time.sleep(600)
"""


def test_a_followed_journal_is_written_before_it_is_told_of() -> None:
    said: list[str] = []

    class Journal:
        def append(self, *_: object) -> None:
            said.append("written")
            if len(said) > 2:
                raise RetryLater("unreachable")

    notes: list[Note] = []
    journal = FollowedJournal(Journal(), lambda _seen: said.append("told"), notes)
    anything: Any = None
    journal.append(anything, anything, anything)
    notes.append(training_note("kept until it is written"))
    decision = Decision(state=State(), notes=(training_note("a"),))
    with pytest.raises(RetryLater):
        journal.append(anything, anything, decision)
    assert said == ["written", "told", "written"]
    assert notes


def test_the_journal_tells_what_became_of_trainings_and_folds_as_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header = Header(policy=POLICY, catalogue="c", seed=1, history=Demand(end_at=0.0, mean_rps=(), max_rps=()))
    lines = [header_line(header)]
    begun = training_note("training begins (drift) on 99 min")
    notes: list[Note] = []
    state = State()

    class Journal:
        def append(self, before: FleetView, seen: Observation, decision: Decision) -> None:
            lines.append(entry_line(before, seen, decision))

    journal = FollowedJournal(Journal(), lambda _seen: None, notes)
    for at in (0.0, 60.0, 90.0, 120.0):
        seen = Observation(now=at, fleet=FleetView())
        decision = step(state, seen, POLICY)
        state = decision.state
        if at == 90.0:
            notes.append(begun)
        journal.append(FleetView(), seen, decision)
    assert notes == []
    _, ticks = read_journal(lines)
    assert [tick.notes for tick in ticks][2] == (NO_PLAN, begun)

    explain_journal(lambda: lines, minute=None, as_json=False)
    told = capsys.readouterr().out
    assert "gives the same plans and orders at every tick" in told
    assert "minute 2, forecaster: training begins (drift) on 99 min" in told
    explain_journal(lambda: lines, minute=1, as_json=False)
    assert "training begins (drift) on 99 min" in capsys.readouterr().out


def test_status_says_what_it_was_trained_on_and_why(world: World) -> None:
    (world.folder / "mode").write_text("hang")
    world.tick(24.5)
    failed = FailedTraining(at=BEGAN_AT, why="drift", error="no [memory]")
    trained = replace(world.told, forecaster="mixture", drift=1.234, failed=failed)
    out = io.StringIO()
    for part in status_table(status(replace(busy_model(), trained=trained))):
        Console(file=out, width=100).print(part, highlight=False)
    world.retraining.stop()

    said = " ".join(out.getvalue().split())
    assert (
        "forecast mixture, trained on 60 min until 08:00 (first); losses of late 1.23x the usual; "
        "being trained since 08:30 (on schedule); could not be trained at 08:00: no [memory]"
    ) in said


class Kept:
    """A retraining that is caught up after some looks, and says what is asked of it."""

    def __init__(self, said: list[str], looks: int) -> None:
        self._said, self._looks = said, looks

    def keep_up(self, _store: object) -> bool:
        self._said.append("catch up")
        self._looks -= 1
        return self._looks <= 0

    def stop(self) -> None:
        self._said.append("stop")


def led(monkeypatch: pytest.MonkeyPatch, looks: int, *, free: bool) -> list[str]:
    """What a controller's process does whose lease is free, or held by another, until it has waited a little."""
    said: list[str] = []
    over = threading.Event()

    def acquire(_holder: str, _ttl_s: float) -> object:
        said.append("acquire")
        if said.count("acquire") > 1 or free:
            over.set()
        return SimpleNamespace(epoch=1) if free else None

    leases = SimpleNamespace(times=TIMES, acquire=acquire, release=lambda _lease: said.append("release"))
    store: Any = SimpleNamespace(leases=leases, take_over=lambda _lease, _models: None)
    monkeypatch.setattr(leader_election, "aws_of", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(leader_election, "read_pause", lambda *_: None)
    monkeypatch.setattr(leader_election, "TRY_EACH_S", 0.001)
    kept: Any = (Kept(said, looks), None)
    leader_election.Leader(
        Settings(),
        SimpleNamespace(name="test"),  # type: ignore[arg-type]
        (),
        store=store,
        holder="test",
        failures=BackgroundFailures(store, "test"),
        forecasters=leader_election.Forecasters(by_model={"served": kept}),
    ).run(over)
    return said


def test_who_starts_looks_what_was_trained_before_it_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert led(monkeypatch, 3, free=True) == [
        "catch up",
        "catch up",
        "catch up",
        "acquire",
        "release",
        "stop",
        "stop",
    ]


def test_who_starts_does_not_wait_for_ever_to_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_election, "CATCH_UP_S", 0.0)
    assert led(monkeypatch, 1000, free=True)[:2] == ["catch up", "acquire"]


def test_who_waits_keeps_looking_what_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_election, "KEEP_UP_EACH_S", -1.0)
    assert led(monkeypatch, 1, free=False) == ["catch up", "acquire", "catch up", "acquire", "catch up", "stop"]
