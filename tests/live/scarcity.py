"""Minutes without capacity, live.

A service on this machine that has its fleet and its standbys meets InsufficientInstanceCapacity for every
CreateFleet and StartInstances, and a minute later loses 40 % of its spot instances. Meanwhile the controller has
to go on ticking, each request to be answered once, and Lambda to keep the objective for what nothing else serves.
It takes some minutes longer than the lack lasts.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from mark.config.service import OfferingSettings
from mark.config.settings import FaultSettings, InterruptSettings, Settings
from mark.config.trace import TraceSettings
from mark.controller.journal import Tick, read_journal
from mark.domain.fleet.orders import LaunchRefused, SpotWarned
from mark.domain.offerings.offering import Market
from mark.live.commands.load import LoadDocument
from mark.live.commands.rehearsal import drive
from mark.live.commands.up import service_up
from mark.live.local.emulator_client import EmulatedControls
from mark.simulator.traces.generators import constant
from mark.simulator.traces.trace import write_trace
from mark.store.connect import connect
from mark.store.service import ServiceStore

NO_CAPACITY = "InsufficientInstanceCapacity"
MODEL, TYPES = "inception-v3", ("c5.large", "c5.xlarge")
HISTORY_S = 1800.0
"""Under an hour: nothing is known of surges then, and standbys are kept for half of the load."""
CALM_MIN = 4.0
"""The load's first minutes: standbys boot, and sleep."""
TAKEN, TAKEN_AT_MIN = 0.4, 1.0
"""So long after capacity has gone."""
POLL_S = 0.5
AFTER_MIN = 2.0
"""The load goes on for so long after capacity is back."""
TARGET = 0.98
LONGEST_GAP_S = 120.0
"""Between two plans, service time: one is due each minute, and one may be late on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scarcity:
    """Arguments: minutes of the service's clock without capacity, and how fast that clock runs."""

    minutes: float = 10.0
    rps: float = 40.0
    speed: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Outcome of a rehearsal. Ticks, gaps and refusals are those of the minutes without capacity."""

    sent: int
    #: Answered by a model, and shed with 503.
    answered: int
    shed: int
    #: Sent and never answered: in flight at the end, or failed.
    lost: int
    attained: float | None
    by_lambda: int
    ticks: int
    plans: int
    #: Longest time between two plans, seconds of the service's clock.
    longest_gap_s: float
    warned: int
    refused_launches: int
    refused_wakes: int
    #: Calls that the policies do not allow.
    forbidden: int


def rehearse(asked: Scarcity) -> Figures:
    """Bring the service up, take its capacity and its spot instances away, and count."""
    with tempfile.TemporaryDirectory(prefix="mark-scarcity-") as folder:
        settings = _settings(asked, Path(folder) / "trace.csv.gz")
        with service_up(settings, hold=True) as running:
            store, controls = (
                ServiceStore(connect(running.store), running.name),
                EmulatedControls.of(running),
            )
            began_at = store.clock().service_at + CALM_MIN * 60.0
            seconds = asked.minutes * 60.0
            over = threading.Event()
            lack = threading.Thread(target=_take_capacity, args=(store, controls, began_at, seconds, over))
            lack.start()
            try:
                [load] = drive(running, [settings], show_live=False)
            finally:
                over.set()
                lack.join()
            _, ticks = read_journal(store.journal_lines(MODEL))
            inside = [tick for tick in ticks if began_at <= tick.seen.now < began_at + seconds]
            forbidden = sum(controls.state()["permissions"].get("refused", {}).values())
    return figures_of(load, inside, from_at=began_at, to_at=began_at + seconds, forbidden=forbidden)


def _take_capacity(
    store: ServiceStore, controls: EmulatedControls, at: float, seconds: float, over: threading.Event
) -> None:
    """From `at` on, service time, refuse launches and wakes for so many seconds."""
    while (left_s := store.clock().wall_time(at) - time.time()) > 0:
        if over.wait(min(left_s, POLL_S)):
            return
    controls.fault({"kind": "capacity", "action": "CreateFleet", "code": NO_CAPACITY, "seconds": seconds})
    controls.fault(
        {
            "kind": "error",
            "service": "ec2",
            "action": "StartInstances",
            "code": NO_CAPACITY,
            "status": 500,
            "seconds": seconds,
        }
    )


def figures_of(
    load: LoadDocument, ticks: Sequence[Tick], *, from_at: float, to_at: float, forbidden: int = 0
) -> Figures:
    """The figures of a load, and of the ticks from one instant to the other."""
    facts = [fact for tick in ticks for fact in tick.seen.facts]
    refused = [fact for fact in facts if isinstance(fact, LaunchRefused)]
    plans = [tick.seen.now for tick in ticks if tick.seen.forecast is not None]
    answered, shed = load["answered"], load["by"]["shed"]
    return Figures(
        sent=load["sent"],
        answered=answered,
        shed=shed,
        lost=load["sent"] - answered - shed,
        attained=load["attained"],
        by_lambda=load["by"]["lambda"],
        ticks=len(ticks),
        plans=len(plans),
        longest_gap_s=max(later - one for one, later in pairwise([from_at, *plans, to_at])),
        warned=sum(isinstance(fact, SpotWarned) for fact in facts),
        refused_launches=sum(not fact.instances for fact in refused),
        refused_wakes=sum(len(fact.instances) for fact in refused),
        forbidden=forbidden,
    )


def faults_of(found: Figures) -> Iterator[str]:
    """Findings that are not as they should be, a sentence each."""
    if found.lost:
        yield f"{found.lost} of {found.sent} requests were not answered"
    if found.attained is None or found.attained < TARGET:
        yield f"attained {found.attained}, less than {TARGET:g}"
    if found.longest_gap_s > LONGEST_GAP_S:
        yield f"no plan for {found.longest_gap_s:.0f} s"
    if not found.warned:
        yield "no spot instance was taken away: raise the rate"
    if not found.refused_launches:
        yield "no launch was refused"
    if not found.refused_wakes:
        yield "no wake was refused"
    if found.forbidden:
        yield f"{found.forbidden} calls were not allowed"


def _settings(asked: Scarcity, file: Path) -> Settings:
    """The service, and the load that it gets: history, calm minutes, the lack, and some minutes after it."""
    length_s = (CALM_MIN + asked.minutes + AFTER_MIN) * 60.0
    taken = InterruptSettings(at_min=CALM_MIN + TAKEN_AT_MIN, share=TAKEN)
    write_trace(constant(asked.rps, duration_s=HISTORY_S + length_s, seed=asked.seed), file)
    plain = Settings(seed=asked.seed)
    return plain.model_copy(
        update={
            "model": MODEL,
            "market": Market.SPOT,
            "offerings": OfferingSettings(types=TYPES),
            "forecaster": "moving-mean",
            "trace": TraceSettings(file=str(file), start_s=HISTORY_S, duration_s=length_s, speed=asked.speed),
            "faults": FaultSettings(stress=0.0, interrupts=(taken,)),
            "service": plain.service.model_copy(
                update={"name": "scarcity", "port": 0, "status_port": 0, "stress": 0.0}
            ),
        }
    )
