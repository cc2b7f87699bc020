"""Instances of a model by type of GPU: HetSev's program, its heuristic, and Kubernetes' autoscaler.

H. Mo, L. Zhu, S. Shi, S. Tan, S. Wang, "HetSev", Electronics 2023, 12, 240, section 4.1. X_i instances of type i
are added to the N_i that run (fewer if negative):

    min   sum  C_i (X_i + lambda O_i max(X_i, 0))
    s.t.  sum  T_i (N_i + X_i) >= W                    (1) the arrival rate is carried
          sum  R_i X_i <= what is left                 (2) of each resource
          N_i + X_i >= 0                               (3)
          L_i <= S                                     (4) for types that grow

A launch thus weighs lambda C_i O_i.

The heuristic grows one type at a time and never moves a running instance to cheaper hardware. What the paper
leaves open is read so: the rate is sized for the threshold that triggered (W / 0.8), else the next interval
triggers again; an instance goes if the rest would have carried every rate of the cool-down; if no type alone
carries the rate, the one that costs least for what it carries takes all of its room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

ROUNDING = 1e-9
"""Excess of a rate over a capacity that is rounding: requests/s below one, else a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One model on one type of GPU. `cost` is C in any currency per second, `capacity_rps` T, `running` N."""

    name: str
    cost: float
    capacity_rps: float
    launch_s: float
    latency_s: float
    running: int
    #: R of one instance by resource. A resource is whatever can run out: memory, cores, GPUs without this model.
    needs: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Input of a decision: one model's kinds by name, what is left of each resource, W and S."""

    kinds: tuple[Kind, ...]
    left: Mapping[str, float]
    rate_rps: float
    slo_s: float
    #: lambda, 1/s.
    launch_weight: float

    @property
    def capacity_rps(self) -> float:
        """The rate that running instances carry."""
        return math.fsum(kind.capacity_rps * kind.running for kind in self.kinds)

    def room(self, kind: Kind) -> int:
        """Instances of that kind alone that constraint (2) leaves room for."""
        rooms = (
            math.floor(self.left.get(name, 0.0) / need + ROUNDING) for name, need in kind.needs.items() if need > 0
        )
        return max(0, min(rooms, default=10**6))

    def objective(self, actions: Mapping[str, int]) -> float:
        """The objective of X by kind."""
        return math.fsum(
            kind.cost * (x + self.launch_weight * kind.launch_s * max(x, 0))
            for kind in self.kinds
            if (x := actions.get(kind.name, 0))
        )

    def carries(self, actions: Mapping[str, int]) -> bool:
        """Constraint (1)."""
        carried = math.fsum(kind.capacity_rps * (kind.running + actions.get(kind.name, 0)) for kind in self.kinds)
        return carried >= self.rate_rps - ROUNDING * max(1.0, self.rate_rps)


def grow(state: Scaling) -> dict[str, int]:
    """Scale out by the cheapest kind that carries the rate alone, else by all of the cheapest's room."""
    if state.carries({}):
        return {}
    lacking = state.rate_rps - state.capacity_rps
    able = [
        (kind, room)
        for kind in state.kinds
        if kind.latency_s <= state.slo_s and kind.capacity_rps > 0 and (room := state.room(kind))
    ]
    needs = [(kind, math.ceil(lacking / kind.capacity_rps - ROUNDING), room) for kind, room in able]
    enough = [(state.objective({kind.name: need}), kind.name, need) for kind, need, room in needs if need <= room]
    if enough:
        _, name, need = min(enough)
        return {name: need}
    cheapest = [(state.objective({kind.name: 1}) / kind.capacity_rps, kind.name, room) for kind, room in able]
    return {min(cheapest)[1]: min(cheapest)[2]} if cheapest else {}


def shrink(state: Scaling) -> dict[str, int]:
    """Scale in by one instance, the dearest that the rate can spare. Empty: none; the last instance stays."""
    if sum(kind.running for kind in state.kinds) <= 1:
        return {}
    spare = [
        (state.objective({kind.name: -1}), kind.name)
        for kind in state.kinds
        if kind.running and state.carries({kind.name: -1})
    ]
    return {min(spare)[1]: -1} if spare else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerPolicy:
    """Times and threshold of both autoscalers. The paper gives the threshold alone.

    15 s is the step of the paper's rate windows; 300 s is Kubernetes' scale-in window, to which HetSev is aligned.
    """

    threshold: float = 0.8
    interval_s: float = 15.0
    over_s: float = 60.0
    cool_s: float = 300.0
    launch_weight: float = 1 / 60
    #: Size for W, as the paper's formula says, and not for W / threshold.
    literal: bool = False

    @property
    def headroom(self) -> float:
        """By what a rate is multiplied before it is sized for."""
        return 1.0 if self.literal else 1 / self.threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerState:
    """Since when saturation is over the threshold, and the rates (or counts) of the cool-down, oldest first."""

    over_since: float | None = None
    recent: tuple[tuple[float, float], ...] = ()
    since: float | None = None

    def seen(self, at: float, value: float, *, over: bool, window_s: float) -> ScalerState:
        """With one interval more."""
        kept = (*(item for item in self.recent if item[0] > at - window_s), (at, value))
        since = at if self.since is None else self.since
        over_since = (at if self.over_since is None else self.over_since) if over else None
        return replace(self, over_since=over_since, recent=kept, since=since)

    def cooled(self, at: float, window_s: float) -> bool:
        """True when the whole cool-down was seen."""
        return self.since is not None and at - self.since >= window_s


def scale(
    state: ScalerState, at: float, seen: Scaling, policy: ScalerPolicy
) -> tuple[ScalerState, dict[str, int]]:
    """One control interval of HetSev."""
    over = seen.rate_rps > policy.threshold * seen.capacity_rps
    after = state.seen(at, seen.rate_rps, over=over, window_s=policy.cool_s)
    if over and after.over_since is not None and at - after.over_since >= policy.over_s:
        return replace(after, over_since=None), grow(replace(seen, rate_rps=seen.rate_rps * policy.headroom))
    if not over and after.cooled(at, policy.cool_s):
        peak_rps = max(rate for _, rate in after.recent)
        return after, shrink(replace(seen, rate_rps=peak_rps / policy.threshold))
    return after, {}


def scale_kubernetes(
    state: ScalerState, at: float, seen: Scaling, policy: ScalerPolicy
) -> tuple[ScalerState, int]:
    """One interval of the horizontal pod autoscaler: instances to add or remove, of whatever type.

    It wants ceil(instances x saturation / threshold), and goes down to the most that it wanted in the cool-down.
    The windows are HetSev's, as in the paper.
    """
    count = sum(kind.running for kind in seen.kinds)
    saturation = seen.rate_rps / seen.capacity_rps if seen.capacity_rps else math.inf
    wanted = max(1, math.ceil(count * saturation / policy.threshold - ROUNDING)) if count else 1
    over = saturation > policy.threshold
    after = state.seen(at, float(wanted), over=over, window_s=policy.cool_s)
    if over and after.over_since is not None and at - after.over_since >= policy.over_s:
        return replace(after, over_since=None), wanted - count
    if not over and after.cooled(at, policy.cool_s):
        return after, min(0, int(max(value for _, value in after.recent)) - count)
    return after, 0
