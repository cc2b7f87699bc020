"""Compiled parts of the packing planner: what models gain by sharing one instance, and who should.

Rates are in requests/s and worths in USD an hour. Models and types are numbered in the order of their names. A
model's load fills its capacity from below: the part of its capacity between the levels a and b is busy with
clip(load - a, 0, b - a) in a unit. An instance serves each of its tenants from a level up, below which other
instances serve it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOTHING = 1e-9
"""Shares of an instance and rates are told apart down to this."""
UNCONTESTED = 1e-6
"""Weight of a second of the instance for which nobody competes."""
RULES = 4
"""Orders in which an instance is filled: by USD a mean or a peak busy second, by USD a GiB, and by USD."""


class Models(NamedTuple):
    """All models and types; shape (models,) where not said."""

    #: Levels of capacity, rising from 0, shape (models, points).
    at: Floats
    #: What capacity up to each level saves, shape (models, points).
    saved: Floats
    #: The least concave curve above `saved`.
    hull: Floats
    #: Expected rate in each unit, shape (models, units).
    load: Floats
    #: The objective: two batches end within it, seconds.
    objective_s: Floats
    memory_gib: Floats
    #: A model that shares with nobody is a team of its own.
    team: Ints
    #: What each model gets of an instance alone, 0 where it does not run, shape (types, models).
    capacity: Floats
    #: Its longest batch there, seconds, shape (types, models).
    batch_s: Floats
    #: Memory of an instance for models, shape (types,).
    type_gib: Floats
    #: Share of an instance with this tenant that may be busy.
    most_busy: Floats


class Hosts(NamedTuple):
    """Instances: the tenants of host h are first[h] to first[h + 1]."""

    kind: Ints
    first: Ints
    tenants: Ints


@njit(cache=True)
def _saved(m: int, level: float, models: Models) -> float:  # pragma: no cover - compiled
    """Savings of one model's capacity, straight between its points."""
    at, saved = models.at[m], models.saved[m]
    if level >= at[-1]:
        return float(saved[-1])
    i = 0
    while at[i + 1] <= level:
        i += 1
    return float(saved[i] + (saved[i + 1] - saved[i]) * (level - at[i]) / (at[i + 1] - at[i]))


@njit(cache=True)
def _highest(
    m: int, low: float, high: float, capacity: float, most: float, used: Floats, models: Models
) -> float:  # pragma: no cover - compiled
    """The level up to `high` to which an instance can serve a model from `low` on: `most` seconds less `used`."""
    for u in range(len(used)):
        room = max(0.0, most - used[u]) * capacity
        if models.load[m, u] - low > room:
            high = min(high, low + room)
    return high


@njit(cache=True)
def _use(
    m: int, low: float, high: float, capacity: float, used: Floats, models: Models
) -> None:  # pragma: no cover - compiled
    """Add what the levels from low to high take of an instance."""
    for u in range(len(used)):
        used[u] += min(max(0.0, models.load[m, u] - low), high - low) / capacity


@njit(cache=True)
def _value(
    m: int, k: int, low: float, capacity: float, weight: Floats, models: Models
) -> float:  # pragma: no cover - compiled
    """Savings by piece k of a model's levels for a weighed second of the instance."""
    low, high, use = max(low, models.at[m, k]), models.at[m, k + 1], NOTHING * UNCONTESTED
    for u in range(len(weight)):
        use += weight[u] * min(max(0.0, models.load[m, u] - low), high - low) / capacity
    return float((models.hull[m, k + 1] - models.hull[m, k]) * (high - low) / (high - models.at[m, k]) / use)


@njit(cache=True)
def _share_out(
    kind: int, tenants: Ints, low: Floats, models: Models
) -> tuple[float, Floats]:  # pragma: no cover - compiled
    """Savings by an instance, and the level up to which it serves each tenant.

    Its next second goes to the tenant that saves most by it. A second counts by how far the demand for it exceeds
    it.
    """
    count, pieces, units = len(tenants), models.at.shape[1] - 1, models.load.shape[1]
    top, high, weight, usd, most = (
        np.empty(count),
        low.copy(),
        np.zeros(units),
        0.0,
        models.most_busy[tenants].min(),
    )
    for i in range(count):
        m, capacity = tenants[i], models.capacity[kind, tenants[i]]
        top[i] = max(low[i], min(models.at[m, -1], low[i] + most * capacity))
        _use(m, low[i], top[i], capacity, weight, models)
    contested = False
    for u in range(units):
        contested |= weight[u] > most
        weight[u] = max(0.0, weight[u] - most) + UNCONTESTED / units
    if not contested:
        for i in range(count):
            high[i] = top[i]
    else:
        piece, value, used = np.zeros(count, np.int64), np.full(count, np.inf), np.zeros(units)
        while count:
            i = 0
            for j in range(count):
                i = j if value[j] > value[i] else i
            m, k, capacity = tenants[i], piece[i], models.capacity[kind, tenants[i]]
            if value[i] <= 0.0:
                break
            if value[i] < np.inf:
                goal = min(top[i], models.at[m, k + 1])
                reached = _highest(m, high[i], goal, capacity, most, used, models)
                _use(m, high[i], reached, capacity, used, models)
                high[i] = goal if reached > goal - NOTHING else reached
                if high[i] < goal:
                    value[i] = 0.0
                    continue
            while k < pieces and models.at[m, k + 1] <= high[i] + NOTHING:
                k += 1
            more = k < pieces and top[i] > high[i] + NOTHING
            piece[i], value[i] = k, _value(m, k, low[i], capacity, weight, models) if more else 0.0
    for i in range(count):
        usd += _saved(tenants[i], high[i], models) - _saved(tenants[i], low[i], models)
    return usd, high


@njit(cache=True)
def may_join(kind: int, tenants: Ints, m: int, models: Models) -> bool:  # pragma: no cover - compiled
    """True where a model may be beside these tenants: memory, teams, and waits for one another's batches."""
    batch_s, gib = models.batch_s[kind], models.memory_gib[m]
    if models.capacity[kind, m] <= 0.0:
        return False
    for n in tenants:
        if n == m or models.team[n] != models.team[m]:
            return False
        if batch_s[n] + batch_s[m] > min(models.objective_s[n], models.objective_s[m]) + NOTHING:
            return False
        gib += models.memory_gib[n]
    return bool(gib <= models.type_gib[kind] + NOTHING)


@njit(cache=True)
def serve(hosts: Hosts, models: Models) -> tuple[Floats, Floats, Floats]:  # pragma: no cover - compiled
    """The level to which each model is served, the capacity of each tenant, and the savings by each host.

    Each host serves what the hosts before it leave.
    """
    reached, carried, usd = np.zeros(len(models.at)), np.zeros(len(hosts.tenants)), np.zeros(len(hosts.kind))
    for h in range(len(hosts.kind)):
        some = slice(hosts.first[h], hosts.first[h + 1])
        tenants = hosts.tenants[some]
        low = reached[tenants]
        usd[h], high = _share_out(hosts.kind[h], tenants, low, models)
        carried[some] = high - low
        reached[tenants] = high
    return reached, carried, usd


@njit(cache=True)
def savings_with(
    rows: Ints, columns: Ints, low: Floats, hosts: Hosts, models: Models
) -> Floats:  # pragma: no cover - compiled
    """Savings by each host without one tenant and with one model more; -inf where that may not be.

    rows: host and tenant that goes (its place, or -1 for none), shape (rows, 2). columns: models that join, -1 for
    none. low: level from which each tenant, then each other model, is served, as far as columns has any.
    """
    found = np.full((len(rows), len(columns)), -np.inf)
    for r in range(len(rows)):
        h, gone = rows[r]
        first, last = hosts.first[h], hosts.first[h + 1]
        size = last - first - (1 if gone >= 0 else 0)
        tenants, levels, i = np.empty(size + 1, np.int64), np.empty(size + 1), 0
        for e in range(first, last):
            if e != gone:
                tenants[i], levels[i], i = hosts.tenants[e], low[e], i + 1
        for c in range(len(columns)):
            m = columns[c]
            if m < 0:
                found[r, c] = _share_out(hosts.kind[h], tenants[:size], levels[:size], models)[0] if size else 0.0
            elif (gone < 0 or hosts.tenants[gone] != m) and may_join(hosts.kind[h], tenants[:size], m, models):
                tenants[size], levels[size] = m, low[c]
                found[r, c] = _share_out(hosts.kind[h], tenants, levels, models)[0]
    return found


@njit(cache=True)
def _scores(
    kind: int, candidates: Ints, start: Floats, entry_usd: Floats, models: Models
) -> Floats:  # pragma: no cover - compiled
    """Rank of each candidate for an empty instance, -inf for never, shape (RULES, candidates)."""
    units, count = models.load.shape[1], len(candidates)
    score, idle = np.full((RULES, count), -np.inf), np.zeros(units)
    for i in range(count):
        m, capacity = candidates[i], models.capacity[kind, candidates[i]]
        if capacity <= 0.0 or models.memory_gib[m] > models.type_gib[kind] + NOTHING:
            continue
        most = models.most_busy[m]
        high = min(models.at[m, -1], start[m] + most * capacity)
        high = _highest(m, start[m], high, capacity, most, idle, models)
        usd = _saved(m, high, models) - _saved(m, start[m], models) - entry_usd[m]
        if usd > 0.0:
            busy = np.zeros(units)
            _use(m, start[m], high, capacity, busy, models)
            mean = peak = 0.0
            for u in range(units):
                mean, peak = mean + busy[u] / units, max(peak, busy[u])
            score[0, i], score[1, i] = usd / (mean + NOTHING), usd / (peak + NOTHING)
            score[2, i], score[3, i] = usd / (models.memory_gib[m] + NOTHING), usd
    return score


@njit(cache=True)
def fill(
    kind: int, candidates: Ints, start: Floats, entry_usd: Floats, models: Models
) -> tuple[Ints, float]:  # pragma: no cover - compiled
    """Tenants for an instance that would save most beside a fleet, and how much, less `entry_usd` each.

    start: levels to which the fleet serves the models, shape (models,).
    """
    units, count = models.load.shape[1], len(candidates)
    score = _scores(kind, candidates, start, entry_usd, models)
    best, best_usd = np.empty(0, np.int64), 0.0
    tenants = np.empty(count, np.int64)
    for rule in range(RULES):
        size, used, most = 0, np.zeros(units), 1.0
        for i in np.argsort(-score[rule], kind="mergesort"):
            m, capacity = candidates[i], models.capacity[kind, candidates[i]]
            if score[rule, i] == -np.inf:
                break
            if not may_join(kind, tenants[:size], m, models):
                continue
            share = min(most, models.most_busy[m])
            high = min(models.at[m, -1], start[m] + share * capacity)
            high = _highest(m, start[m], high, capacity, share, used, models)
            if _saved(m, high, models) - _saved(m, start[m], models) - entry_usd[m] > 0.0:
                _use(m, start[m], high, capacity, used, models)
                tenants[size], size, most = m, size + 1, share
        for some in (size, min(size, 1)):
            chosen = np.sort(tenants[:some])
            if some > 0:
                usd = _share_out(kind, chosen, start[chosen], models)[0]
                for m in chosen:
                    usd -= entry_usd[m]
                if usd > best_usd + NOTHING:
                    best, best_usd = chosen, usd
    return best, best_usd
