"""Provisioning as an integer program: how many of each offering in each unit to come (MArk section 4.3).

n[o,t] instances of offering o are rented in unit t and u[o,t] of them start in it:

    min   sum  rent[o] n[o,t] + launch[o] u[o,t]
    s.t.  sum over o of usable[o] n[o,t] >= rate[t]                 every unit from the lead on
          u[o,t] >= n[o,t] - n[o,t-1],   n[o,-1] = running[o]       what is there costs no launch, stopping nothing
          n whole, u >= 0

Reductions that keep the optimum:

- Units in a row with the same rate become one. Give all of them the fleet of the one that rents least: rent does
  not rise, and by the triangle inequality neither do launches.
- A new instance of o is never needed where k of p carry as much and rent and start for no more: any stay of one of
  them can be replaced by k stays of p. What runs of o may be kept, so it only may not grow.
- One offering alone, or beside a fixed rest, needs no search (`fleet_of_one`).

One that does not: units far ahead share a fleet that carries the highest of their rates (`in_blocks`). Its
schedules are schedules of the whole program, so they cost no less than its optimum.

Costs are whole multiples of a billionth of the dearest rent. So the program, and with it the answer, does not
depend on the currency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pulp
from numpy.typing import NDArray

GRAIN = 1e-9
"""Costs are told apart down to this share of the dearest rent."""
ROUNDING = 2.0
"""Grains that rounding may put between costs that are equal."""
SAME_CAPACITY = 1e-9
"""A fleet carries a rate that it misses by no more, requests/s."""

OFF = -2
"""A level that is off from the start; -1 is the unit before the first."""
PASSES = 2

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """Data of the program. All but `rates` and `lengths`: length offerings, in the order of their names."""

    #: Requests/s of one instance.
    usable_rps: Floats
    #: Rent of one instance for one unit, grains.
    rent: Floats
    #: Launch of one instance, grains.
    launch: Floats
    #: Instances that exist or are on their way.
    running: Ints
    #: True where more can be launched.
    starts: Flags
    #: True where the program launches any.
    grows: Flags
    #: Requests/s to carry in each block, length blocks.
    rates: Floats
    #: Units of each block.
    lengths: Ints
    #: Costs are whole multiples of this.
    usd_per_grain: float

    @property
    def candidates(self) -> Ints:
        """Indices of the offerings that a schedule may hold."""
        return np.flatnonzero(self.grows | (self.running > 0))

    def cost(self, counts: Ints) -> float:
        """Grains that a schedule costs. counts: shape (blocks, offerings)."""
        started = np.maximum(0, np.diff(counts, axis=0, prepend=self.running[None, :]))
        return float((self.lengths @ counts) @ self.rent + started.sum(axis=0) @ self.launch)

    def carries(self, counts: Ints) -> bool:
        """True where a schedule carries every rate. counts: shape (blocks, offerings)."""
        return bool((counts @ self.usable_rps >= self.rates - SAME_CAPACITY).all())


def provisioning(
    usable_rps: Floats, rent_usd: Floats, launch_usd: Floats, running: Ints, refused: Flags, *, rates: Floats
) -> Provisioning:
    """The problem unit by unit. rent_usd: of one unit; rates: length units; the others: length offerings, by name.

    A refused offering is launched only where no other can carry anything: it may be had again by then.
    """
    able = usable_rps > 0.0
    scale = float(rent_usd[able].max(initial=0.0)) * GRAIN or 1.0
    rent, launch = np.maximum(1.0, np.rint(rent_usd / scale)), np.rint(launch_usd / scale)
    starts = able & ~refused if (able & ~refused).any() else able
    return Provisioning(
        usable_rps=usable_rps,
        rent=rent,
        launch=launch,
        running=np.where(able, running, 0),
        starts=starts,
        grows=starts & ~_replaceable(usable_rps, rent, launch, starts),
        rates=rates,
        lengths=np.ones(len(rates), dtype=np.int64),
        usd_per_grain=scale,
    )


def _replaceable(usable_rps: Floats, rent: Floats, launch: Floats, starts: Flags) -> Flags:
    """Offerings of which some k of one that stays do the same for no more; of equal ones the first stays."""
    beaten = np.zeros(len(rent), dtype=np.bool_)
    for i in np.flatnonzero(starts)[::-1]:
        # Rounding to grains may put k rents up to two grains above k times as much.
        pieces = np.floor((rent[i] + ROUNDING) / rent)
        startable = np.full(len(rent), np.inf)
        np.divide(launch[i] + ROUNDING, launch, out=startable, where=launch > 0.0)
        stays = starts & ~beaten
        stays[i] = False
        beaten[i] = (stays & (np.minimum(pieces, np.floor(startable)) * usable_rps >= usable_rps[i])).any()
    return beaten


def in_blocks(given: Provisioning, *, near_units: int, growth: float) -> Provisioning:
    """The same with equal neighbours as one unit, and in blocks from `near_units` on, each `growth` x as long."""
    units = len(given.rates)
    firsts = [t for t in range(min(near_units, units)) if t == 0 or given.rates[t] != given.rates[t - 1]]
    start, size = near_units, 1.0
    while start < units:
        firsts.append(start)
        start, size = start + int(size), size * growth
    return replace(
        given, rates=np.maximum.reduceat(given.rates, firsts), lengths=np.diff(np.array(firsts), append=units)
    )


def fleet_of_one(given: Provisioning, offering: np.intp, rates: Floats) -> Ints:
    """The cheapest counts of one offering that carry `rates` unit by unit; both length units.

    Exact: the cost is a sum over levels (the first instance, the second, ...), and a level that is needed again
    after g units is kept on if its rent for them is at most its launch, or if it could not be launched again.
    """
    needed = np.ceil((rates - SAME_CAPACITY) / given.usable_rps[offering]).astype(np.int64).clip(0)
    patience = given.launch[offering] / given.rent[offering] if given.starts[offering] else np.inf
    levels = np.arange(1, needed.max(initial=0) + 1)
    last_on = np.where(levels <= given.running[offering], -1, OFF)
    changes = np.zeros(len(needed) + 1, dtype=np.int64)
    for t, need in enumerate(needed):
        before = last_on[:need]
        idle = t - 1 - before
        kept = before[(before > OFF) & (idle > 0) & (idle <= patience)]
        np.add.at(changes, kept + 1, 1)
        changes[t] -= len(kept)
        last_on[:need] = t
    counts: Ints = needed + np.cumsum(changes[:-1])
    return counts


def fleets_of_one(given: Provisioning) -> list[Ints]:
    """The cheapest schedule of each offering that can carry all alone, all others stopped; (units, offerings)."""
    enough = (given.running > 0) & (given.running * given.usable_rps >= given.rates.max())
    found = []
    for i in np.flatnonzero(given.starts | enough):
        counts = np.zeros((len(given.rates), len(given.rent)), dtype=np.int64)
        counts[:, i] = fleet_of_one(given, i, given.rates)
        found.append(counts)
    return found


def trimmed(given: Provisioning, counts: Ints) -> Ints:
    """A schedule that costs no more: offering by offering the cheapest counts beside the others, dear ones first.

    counts: shape (units, offerings), carrying every rate.
    """
    counts = counts.copy()
    dear_first = sorted(given.candidates, key=lambda i: (-given.rent[i] / given.usable_rps[i], i))
    for i in dear_first * PASSES:
        others = counts @ given.usable_rps - counts[:, i] * given.usable_rps[i]
        counts[:, i] = fleet_of_one(given, i, given.rates - others)
    return counts


def build_problem(given: Provisioning, *, whole: bool = True) -> pulp.LpProblem:
    """The program in PuLP, costs in units of the dearest rent; without `whole` instances may be fractional."""
    kind = pulp.LpInteger if whole else pulp.LpContinuous
    problem = pulp.LpProblem("provisioning", pulp.LpMinimize)
    cost: list[tuple[pulp.LpVariable, float]] = []
    carried: list[list[tuple[pulp.LpVariable, float]]] = [[] for _ in given.rates]
    for i in given.candidates:
        grows, there = bool(given.grows[i]), int(given.running[i])
        before: list[tuple[pulp.LpVariable, float]] = []
        for t, length in enumerate(given.lengths):
            count = problem.add_variable(variable_name(i, t), 0, None if grows else there, cat=kind)
            cost.append((count, float(given.rent[i] * length * GRAIN)))
            carried[t].append((count, float(given.usable_rps[i])))
            growth = [(count, 1.0), *before]
            if grows:
                started = problem.add_variable(f"u{i:03d}_{t:03d}", 0)
                cost.append((started, float(given.launch[i] * GRAIN)))
                growth.append((started, -1.0))
            problem += pulp.LpAffineExpression(growth) <= (0 if before else there)
            before = [(count, -1.0)]
    for row, rate in zip(carried, given.rates, strict=True):
        problem += pulp.LpAffineExpression(row) >= float(rate)
    problem.setObjective(pulp.LpAffineExpression(cost))
    return problem


def variable_name(offering: int, block: int) -> str:
    """The name of n[offering, block]; PuLP sorts variables by name."""
    return f"n{offering:03d}_{block:03d}"
