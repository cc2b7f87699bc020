"""The ports: what the cores ask of the world. Adapters live in the shells, forecasters in `predictors`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mark.domain.demand import Demand, DemandUnit, Forecast
from mark.domain.fleet import FleetView
from mark.domain.orders import Fact, Order, SloWindow


class Clock(Protocol):
    """Epoch seconds; never goes back."""

    def now(self) -> float: ...


class Cloud(Protocol):
    """Where instances live: the simulator, the emulated AWS, or AWS."""

    def observe(self) -> FleetView:
        """All instances that are not gone."""
        ...

    def facts(self) -> Sequence[Fact]:
        """What happened since the last call (interruption notices, refused launches)."""
        ...

    def submit(self, order: Order) -> None:
        """Ask; the result is seen by a later `observe` or `facts`."""
        ...


class DataPlane(Protocol):
    """What the gateways and agents report to the controller."""

    def demand(self) -> DemandUnit | None:
        """Arrivals of the unit that has just ended; None between units."""
        ...

    def slo_window(self) -> SloWindow | None:
        """The monitor's window that closed since the last call, if one did."""
        ...

    def lambda_warm(self) -> int:
        """Lambda environments believed to be warm."""
        ...

    def recent_rps(self) -> tuple[float, ...]:
        """Rates of the last windows of 5 s, at most twelve, oldest first."""
        ...


class Forecaster(Protocol):
    """Rates to come, from the rates that were. A user's own class needs no more than this."""

    def forecast(self, history: Demand, horizon: int) -> Forecast: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecasterSetup:
    """What a forecaster's factory is given: the history to learn from, a seed, a place for what it learned.

    `truth` is the load to come, known in a replay only and None to all forecasters but an oracle. `progress` is
    called while something long runs, with its label and the share of it that is done, in [0, 1].
    """

    history: Demand
    seed: int
    cache_dir: Path | None = None
    truth: Demand | None = None
    progress: Callable[[str, float], None] | None = None


class ForecasterFactory(Protocol):
    """What a forecaster's name loads: an entry point of `mark.forecasters`, or `module:attribute`."""

    def __call__(self, setup: ForecasterSetup) -> Forecaster: ...
