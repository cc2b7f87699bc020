"""Compiled parts of the packing planner: admission to one device, and shares of devices among their tenants.

Rates are in requests/s and worths in USD an hour. A model's load fills its capacity from below: the part of its
capacity between the levels a and b is busy with clip(load - a, 0, b - a) in a unit. Models are numbered in the
order of their names.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

RULES = 4
"""Orders in which tenants are admitted: by USD a mean or a peak device-second, by USD a GiB, and by USD."""
NOTHING = 1e-9
"""Shares of a device and rates are told apart down to this."""
IDLE_WEIGHT = 1e-6
"""Weight of a device-second for which nobody competes."""


class Models(NamedTuple):
    """All models; shape (models,) where not said."""

    #: Levels of capacity, rising from 0, shape (models, points).
    at: Floats
    #: What capacity up to each level saves, shape (models, points).
    saved: Floats
    #: The concave hull of `saved`.
    hull: Floats
    #: Expected rate in each unit, shape (models, units).
    load: Floats
    #: Most that one device may carry.
    limit: Floats
    #: Longest that a batch of the model may end after its request came, with the batch before it, seconds.
    leaves_s: Floats
    memory_gib: Floats
    team: Ints
    alone: Flags
    #: Share of a device that may be busy.
    most_busy: float


class Device(NamedTuple):
    """One device and who is there."""

    #: What each model gets of it alone, 0 where it does not run there, shape (models,).
    capacity: Floats
    #: Longest batch of each model, seconds, shape (models,).
    batch_s: Floats
    memory_gib: float
    tenants: Ints
    #: Models on the other devices of its instance.
    neighbours: Ints
    #: Its busy share, shape (units,).
    used: Floats


class Empty(NamedTuple):
    """An instance to fill."""

    capacity: Floats
    batch_s: Floats
    #: Of one device.
    memory_gib: float
    devices: int
    #: USD an hour.
    cost: float
    #: Price of a tenant of each model on each device, USD an hour, shape (devices, models).
    entry_usd: Floats


class Tenancies(NamedTuple):
    """Who is where: those of model m are first[m] to first[m + 1]."""

    first: Ints
    device: Ints
    #: What the model gets of that device alone.
    capacity: Floats


@njit(cache=True)
def saved_at(at: Floats, saved: Floats, level: float) -> float:  # pragma: no cover - compiled
    """Savings of one model's capacity, straight between its points."""
    if level >= at[-1]:
        return float(saved[-1])
    i = max(0, np.searchsorted(at, level, side="right") - 1)
    return float(saved[i] + (saved[i + 1] - saved[i]) * (level - at[i]) / (at[i + 1] - at[i]))


@njit(cache=True)
def _highest(
    low: float, high: float, load: Floats, used: Floats, most_busy: float, capacity: float
) -> float:  # pragma: no cover - compiled
    """The level up to `high` to which a device can serve a model from `low` on. load, used: shape (units,)."""
    for u in range(len(load)):
        room = max(0.0, most_busy - used[u]) * capacity
        if load[u] - low > room:
            high = min(high, low + room)
    return high


@njit(cache=True)
def _use(
    low: float, high: float, load: Floats, capacity: float, used: Floats
) -> None:  # pragma: no cover - compiled
    """Add what the levels from low to high take of a device."""
    for u in range(len(load)):
        used[u] += min(max(0.0, load[u] - low), high - low) / capacity


@njit(cache=True)
def _price(
    low: float, high: float, load: Floats, capacity: float, weight: Floats
) -> float:  # pragma: no cover - compiled
    """Weighed device-seconds that the levels from low to high take."""
    total = 0.0
    for u in range(len(load)):
        total += weight[u] * min(max(0.0, load[u] - low), high - low)
    return total / capacity


@njit(cache=True)
def _offer(
    m: int, low: float, models: Models, device: Device, used: Floats
) -> tuple[float, float]:  # pragma: no cover - compiled
    """The level to which a device would serve a model from `low` on, and what that saves."""
    most = min(models.limit[m], models.most_busy * device.capacity[m])
    high = min(models.at[m, -1], low + most)
    high = _highest(low, high, models.load[m], used, models.most_busy, device.capacity[m])
    at, saved = models.at[m], models.saved[m]
    return high, saved_at(at, saved, high) - saved_at(at, saved, low)


@njit(cache=True)
def _score(
    rule: int, m: int, low: float, high: float, usd: float, models: Models, capacity: float
) -> float:  # pragma: no cover - compiled
    """How early a model is admitted."""
    if rule == 2:
        return usd / (models.memory_gib[m] + NOTHING)
    if rule == 3:
        return usd
    mean = peak = 0.0
    for u in range(models.load.shape[1]):
        busy = min(max(0.0, models.load[m, u] - low), high - low) / capacity
        mean += busy / models.load.shape[1]
        peak = max(peak, busy)
    return usd / ((mean if rule == 0 else peak) + NOTHING)


@njit(cache=True)
def _in_time(
    m: int, longest_s: float, shortest_s: float, models: Models, device: Device
) -> bool:  # pragma: no cover - compiled
    """Whether a model and each tenant end in time one after the other.

    longest_s: longest batch of a tenant; shortest_s: shortest time that a tenant leaves to a batch before its own.
    """
    if longest_s == 0.0:
        return True
    own_s = device.batch_s[m]
    return longest_s + own_s <= models.leaves_s[m] + NOTHING and own_s <= shortest_s + NOTHING


@njit(cache=True)
def _may_join(m: int, other: int, only: int, models: Models) -> bool:  # pragma: no cover - compiled
    """Whether a model may be on an instance. other: a model there, or -1; only: one that is there alone, or -1."""
    if other < 0 or (other == m and only < 0):
        return True
    if only >= 0 or models.alone[m]:
        return only == m
    return bool(models.team[other] == models.team[m])


@njit(cache=True)
def admit(
    candidates: Ints, rule: int, start: Floats, entry_usd: Floats, models: Models, device: Device
) -> tuple[Ints, float]:  # pragma: no cover - compiled
    """Tenants to add to one device, with what they save beyond `entry_usd` each.

    start: levels to which models are served elsewhere, shape (models,).
    """
    used, score = device.used.copy(), np.full(len(candidates), -np.inf)
    for i, m in enumerate(candidates):
        if device.capacity[m] > 0.0:
            high, usd = _offer(m, start[m], models, device, used)
            usd -= entry_usd[m]
            if high > start[m] + NOTHING and usd > 0.0:
                score[i] = _score(rule, m, start[m], high, usd, models, device.capacity[m])
    longest_s, shortest_s, left_gib = 0.0, np.inf, device.memory_gib
    for m in device.tenants:
        longest_s = max(longest_s, device.batch_s[m])
        shortest_s = min(shortest_s, models.leaves_s[m] - device.batch_s[m])
        left_gib -= models.memory_gib[m]
    other, only = -1, -1
    for there in (device.tenants, device.neighbours):
        for m in there:
            other = m
            only = m if models.alone[m] else only
    taken, total = np.empty(len(candidates), np.int64), 0.0
    size = 0
    for i in np.argsort(-score, kind="mergesort"):
        m = candidates[i]
        if score[i] == -np.inf:
            break
        if models.memory_gib[m] > left_gib + NOTHING or not _may_join(m, other, only, models):
            continue
        if not _in_time(m, longest_s, shortest_s, models, device):
            continue
        high, usd = _offer(m, start[m], models, device, used)
        usd -= entry_usd[m]
        if high <= start[m] + NOTHING or usd <= 0.0:
            continue
        _use(start[m], high, models.load[m], device.capacity[m], used)
        taken[size], size, total = m, size + 1, total + usd
        longest_s = max(longest_s, device.batch_s[m])
        shortest_s = min(shortest_s, models.leaves_s[m] - device.batch_s[m])
        left_gib -= models.memory_gib[m]
        other = m
        only = m if models.alone[m] else only
    return taken[:size], total


@njit(cache=True)
def _weights(
    start: Floats, models: Models, tenancies: Tenancies, devices: int
) -> Floats:  # pragma: no cover - compiled
    """What a device-second counts: by how far the demand for it exceeds it. Shape (devices, units)."""
    units = models.load.shape[1]
    weight = np.zeros((devices, units))
    for m in range(len(start)):
        count = tenancies.first[m + 1] - tenancies.first[m]
        for e in range(tenancies.first[m], tenancies.first[m + 1]):
            most = min(models.limit[m], models.most_busy * tenancies.capacity[e])
            high = min(models.at[m, -1], start[m] + most)
            _use(start[m], high, models.load[m], tenancies.capacity[e] * count, weight[tenancies.device[e]])
    for d in range(devices):
        for u in range(units):
            weight[d, u] = max(0.0, weight[d, u] - models.most_busy) + IDLE_WEIGHT / units
    return weight


@njit(cache=True)
def _order(
    start: Floats, models: Models, tenancies: Tenancies, weight: Floats
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Models and pieces of their levels, those first that save most for a weighed device-second."""
    pieces = models.at.shape[1] - 1
    total = 0
    for m in range(len(start)):
        if tenancies.first[m + 1] > tenancies.first[m]:
            total += pieces
    score, model, piece = np.empty(total), np.empty(total, np.int64), np.empty(total, np.int64)
    i = 0
    for m in range(len(start)):
        count = tenancies.first[m + 1] - tenancies.first[m]
        least = np.inf  # a piece is not before the one below it
        for k in range(pieces if count else 0):
            low, high, use = max(start[m], models.at[m, k]), models.at[m, k + 1], 0.0
            for e in range(tenancies.first[m], tenancies.first[m + 1]):
                capacity = tenancies.capacity[e] * count
                use += _price(low, high, models.load[m], capacity, weight[tenancies.device[e]])
            if high > low:
                rise = (models.hull[m, k + 1] - models.hull[m, k]) / (high - models.at[m, k])
                least = min(least, rise * (high - low) / (use + NOTHING * IDLE_WEIGHT))
            score[i], model[i], piece[i] = least, m, k
            i += 1
    order = np.argsort(-score, kind="mergesort")
    return model[order], piece[order]


@njit(cache=True)
def share_out(
    start: Floats, models: Models, tenancies: Tenancies, devices: int
) -> tuple[Floats, Floats, Floats]:  # pragma: no cover - compiled
    """Water-filling: the next device-second to the model that saves most by it.

    start: levels to which models are served elsewhere. Returns the level to which each model is served, shape
    (models,), the capacity of each tenant, and the busy shares, shape (devices, units).
    """
    used, weight = np.zeros((devices, models.load.shape[1])), _weights(start, models, tenancies, devices)
    reached, carried = start.copy(), np.zeros(len(tenancies.device))
    order = _order(start, models, tenancies, weight)
    for m, k in zip(order[0], order[1]):  # noqa: B905 - compiled
        top = models.at[m, k + 1]
        while reached[m] >= models.at[m, k] and top > reached[m] + NOTHING:
            best, furthest, least = -1, reached[m], np.inf
            for e in range(tenancies.first[m], tenancies.first[m + 1]):
                capacity, d = tenancies.capacity[e], tenancies.device[e]
                most = min(models.limit[m], models.most_busy * capacity) - carried[e]
                high = min(top, reached[m] + most)
                high = _highest(reached[m], high, models.load[m], used[d], models.most_busy, capacity)
                price = _price(reached[m], high, models.load[m], capacity, weight[d])
                further = high > furthest + NOTHING
                if further or (best >= 0 and high > furthest - NOTHING and price < least):
                    best, furthest, least = e, high, price
            if best < 0:
                break
            furthest = top if furthest > top - NOTHING else furthest
            _use(reached[m], furthest, models.load[m], tenancies.capacity[best], used[tenancies.device[best]])
            carried[best] += furthest - reached[m]
            reached[m] = furthest
    return reached, carried, used


@njit(cache=True)
def savings(reached: Floats, models: Models) -> float:  # pragma: no cover - compiled
    """USD an hour of all models."""
    total = 0.0
    for m in range(len(reached)):
        total += saved_at(models.at[m], models.saved[m], reached[m])
    return total


@njit(cache=True)
def _filled(
    rule: int, start: Floats, candidates: Ints, models: Models, empty: Empty, spread: Flags
) -> tuple[Ints, Ints, float]:  # pragma: no cover - compiled
    """Tenants of an instance, their devices, and what it is worth. With rule RULES it has one tenant a device."""
    model, device = np.empty(0, np.int64), np.empty(0, np.int64)
    used = np.zeros((empty.devices, models.load.shape[1]))
    reached, entries = start, 0.0
    for d in range(empty.devices):
        barred = np.zeros(len(start), np.bool_)
        for m in model:
            barred[m] = spread[m]
        may = candidates[~barred[candidates]]
        one = Device(
            empty.capacity, empty.batch_s, empty.memory_gib, model[device == d], model[device != d], used[d]
        )
        taken, _ = admit(may, min(rule, RULES - 1), reached, empty.entry_usd[d], models, one)
        if rule == RULES:
            taken = taken[:1]
        if len(taken) == 0:
            break
        for m in taken:
            entries += empty.entry_usd[d, m]
        model, device = np.append(model, taken), np.append(device, np.full(len(taken), d))
        order = np.argsort(model, kind="mergesort")
        model, device = model[order], device[order]
        first = np.searchsorted(model, np.arange(len(start) + 1))
        reached, _, used = share_out(start, models, Tenancies(first, device, empty.capacity[model]), empty.devices)
    usd = -empty.cost - entries
    for i, m in enumerate(model):
        if i == 0 or model[i - 1] != m:
            usd += saved_at(models.at[m], models.saved[m], reached[m])
            usd -= saved_at(models.at[m], models.saved[m], start[m])
    return model, device, usd


@njit(cache=True)
def fill(
    start: Floats, candidates: Ints, models: Models, empty: Empty, spread: Flags
) -> tuple[Ints, Ints, float]:  # pragma: no cover - compiled
    """The tenants of an instance that is worth most beside a fleet, their devices, and what it is worth.

    start: levels to which the fleet serves the models. spread: models that may be on one device of it only.
    """
    best = _filled(0, start, candidates, models, empty, spread)
    for rule in range(1, RULES + 1):
        found = _filled(rule, start, candidates, models, empty, spread)
        if found[2] > best[2] + NOTHING:
            best = found
    return best


@njit(cache=True)
def points(levels: Floats, saved: Floats, count: int) -> Floats:  # pragma: no cover - compiled
    """Levels of a curve up to where it rises no more: its own and middles between, or equal savings apart."""
    top = np.searchsorted(saved, saved[-1] * (1.0 - NOTHING)) if len(saved) else 0
    if top == 0:
        return np.linspace(0.0, 1.0, count)
    found = np.empty(count)
    if top >= count:
        rising = saved[: top + 1] + np.linspace(0.0, NOTHING * saved[-1], top + 1)
        return np.interp(np.linspace(0.0, rising[-1], count), rising, levels[: top + 1])
    found[: top + 1] = levels[: top + 1]
    for size in range(top + 1, count):
        widest = np.argmax(np.diff(found[:size]))
        middle = (found[widest] + found[widest + 1]) / 2
        found[widest + 2 : size + 1] = found[widest + 1 : size].copy()
        found[widest + 1] = middle
    return found


@njit(cache=True)
def concave_hull(at: Floats, saved: Floats) -> Floats:  # pragma: no cover - compiled
    """The least concave curve above the points."""
    corners, size = np.zeros(len(at), np.int64), 1
    for i in range(1, len(at)):
        while size > 1:
            a, b = corners[size - 2], corners[size - 1]
            if (saved[b] - saved[a]) * (at[i] - at[b]) > (saved[i] - saved[b]) * (at[b] - at[a]):
                break
            size -= 1
        corners[size] = i
        size += 1
    return np.interp(at, at[corners[:size]], saved[corners[:size]])
