"""The packing planner: which models share which instance, for money.

Each model brings a curve: what capacity up to each level saves an hour, against whatever else would serve. A fleet
is worth what its models save together, less rents, launches and the loading of models. All three are spread over
the hours that the plan is for.

An instance has less than a second a second to give, so that requests need not wait for long: the least `most_busy`
of its tenants. They go to the tenant that saves most by the next one. What is bounded is the load of all tenants
together, in each unit: models with unlike peaks fit where the sum of their peaks would not. A tenant must fit the
memory that is left, and two models share an instance only if either's batch ends in time behind the other's
longest. A model on several instances fills them in turn, those with the fewest tenants first.

Hosts are added greedily, each time the one that is worth most, while one is worth its rent. Then a local search
moves single models: one leaves a host, joins another or a new one, or changes places with another. What every such
move gains is known from the one or two hosts that it changes, so all are looked at together. Where none gains, a
host or two are emptied and their models placed anew.

A part of some rents is paid for already, by commitments. An instance then costs what the fleet's rent rises by,
and saves what it falls by when it is given up. A plan at list prices is among the starts of the search, so that
what is found is worth as much.

What is there costs no launch and no loading. It is improved by moves, and given up for a fleet planned from
nothing where that gains more than its launches and loading cost. A plan's own result has nothing to gain by a
move, and less once it is there, so the next plan of the same state is the same. Ties go to the first by name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from mark.domain.errors import Misconfigured
from mark.domain.figures import figure
from mark.domain.fleet.placement import Host, Tenant
from mark.domain.models.objective import Slo
from mark.planner.shared.packing_kernels import (
    NOTHING,
    Floats,
    Hosts,
    Ints,
    Models,
    fill,
    may_join,
    savings_with,
    serve,
)

POINTS = 17
"""Points at which a curve is known to the search."""
LEAST_GAIN, LEAST_GAIN_THERE = 2e-4, 2e-3
"""Of the dearest rent in the fleet: a change that gains less is not made; the second once a fleet is there."""
LEAST_GAIN_MANY = 1e-3
"""Of the fleet's worth: many moves of many models that gain less together are not made."""
THOROUGH = 60
"""Of more models, no two exchange places, moves are not tried one by one, and no hosts are emptied. Of fewer, as
many starts are searched as they fit in it."""
EMPTIED, NEAR = 4, 0.97
"""So many hosts, those of least worth, are emptied alone and in pairs. What comes of it is improved by moves if it
is worth this share of the fleet before."""

Covered = Callable[[Mapping[str, int]], float]
"""Of the rents of so many instances of each offering, what is paid for already, USD an hour."""


def none_covered(_counts: Mapping[str, int]) -> float:
    """Every instance costs its list price."""
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One model's part of an instance of an offering, alone on it."""

    offering: str
    #: Requests/s at which the instance is always busy.
    capacity_rps: float
    #: Seconds of its longest batch.
    full_batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Need:
    """One model that may share instances."""

    model: str
    slo: Slo
    #: On each instance that holds it.
    memory_gib: float
    #: Capacities, requests/s, rising from 0, shape (n,).
    levels: Floats
    #: What capacity up to each level saves against what else would serve, USD an hour, shape (n,), never falling.
    saved_usd_per_hour: Floats
    #: Expected rate in each unit of the plan, requests/s, shape (units,); the same units for all models.
    load_rps: Floats
    fits: tuple[Fit, ...]
    #: Share of an instance with it that may be busy.
    most_busy: float
    #: It shares with models of the same team only.
    team: str = ""
    #: It shares with no other model.
    alone: bool = False
    #: Price of loading it on an instance where it is not, USD.
    load_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """An instance that can be rented."""

    offering: str
    #: Rent and risk.
    usd_per_hour: float
    #: Infinite where a launch is refused.
    launch_usd: float
    #: For its tenants.
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Instances by offering."""

    hosts: tuple[Host, ...]
    #: Savings less rents, but what is paid for already, launches and loading.
    worth_usd_per_hour: float
    #: The same of what is there as it stands.
    unchanged_usd_per_hour: float = 0.0


class _Placed(NamedTuple):
    """An instance in the search: `kind` among the types, `slot` among what is there or -1."""

    kind: int
    tenants: tuple[int, ...]
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The input as arrays. Models and types by name; there by offering, models and name."""

    needs: tuple[Need, ...]
    types: tuple[HostType, ...]
    models: Models
    #: USD an hour, of each type.
    rent: list[float]
    launch: list[float]
    #: USD an hour, of each model.
    load_usd: Floats
    there: tuple[_Placed, ...]
    covered: Covered

    def covered_usd(self, kinds: Mapping[int, int]) -> float:
        """Of the rents of so many hosts of each kind, what is paid for already, USD an hour."""
        return self.covered({self.types[kind].offering: count for kind, count in kinds.items() if count})

    def covered_each(self, hosts: Sequence[_Placed]) -> list[float]:
        """The part of each rent that is covered since the host is there, or would be of one without tenants."""
        kinds = _kinds(hosts)
        now = self.covered_usd(kinds)
        changes = {(host.kind, -1 if host.tenants else 1) for host in hosts}
        usd = {
            (kind, more): more * (self.covered_usd({**kinds, kind: kinds[kind] + more}) - now)
            for kind, more in changes
        }
        return [usd[host.kind, -1 if host.tenants else 1] for host in hosts]

    def price(self, host: _Placed) -> float:
        """Rent and launch, USD an hour."""
        return self.rent[host.kind] + (self.launch[host.kind] if host.slot < 0 else 0.0)

    def entry_usd(self, host: _Placed) -> Floats:
        """Price of each model as a tenant, USD an hour."""
        if host.slot < 0:
            return self.load_usd
        entry = self.load_usd.copy()
        entry[[*self.there[host.slot].tenants]] = 0.0
        return entry

    def costs(self, host: _Placed) -> float:
        """Rent, launch and loading, USD an hour."""
        return self.price(host) + float(self.entry_usd(host)[[*host.tenants]].sum())


def _kinds(hosts: Sequence[_Placed]) -> Counter[int]:
    """How many there are of each kind, those without tenants left out."""
    return Counter(host.kind for host in hosts if host.tenants)


class _Change(NamedTuple):
    """A change of one host: a model leaves and a model joins, -1 for none."""

    host: int
    leaves: int
    joins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """A state of the search: hosts in the order in which they serve, and what they do."""

    hosts: tuple[_Placed, ...]
    arrays: Hosts
    #: Level to which each model is served.
    reached: Floats
    #: Capacity of each tenant, in order of hosts and models.
    carried: Floats
    #: Savings by each host less what the fleet costs more because of it.
    worth: Floats
    usd: float


def pack(
    needs: Sequence[Need],
    types: Sequence[HostType],
    *,
    there: Sequence[Host] = (),
    hours: float,
    covered: Covered = none_covered,
) -> Packing:
    """The fleet that is worth most, as far as the search finds it.

    there: instances that exist or are on their way, with what they hold. hours: the time that the plan is for,
    over which launches and loading are spread. covered: what is paid for already of rents at list prices.
    """
    names, case = _case_of(needs, types, there, hours, covered)
    fleet = _planned(replace(case, there=()))
    if not there:
        return _packing(case, fleet, names)
    fleet = _served(case, _recognised(case, fleet.hosts))
    unchanged = _served(case, _allowed(case))
    kept = _moved(case, unchanged)
    packing = _packing(case, fleet if _gains(case, fleet, kept) else kept, names)
    return replace(packing, unchanged_usd_per_hour=_packing(case, unchanged, names).worth_usd_per_hour)


def _case_of(
    needs: Sequence[Need],
    types: Sequence[HostType],
    there: Sequence[Host],
    hours: float,
    covered: Covered,
) -> tuple[list[str], _Case]:
    """The case, and the names of what is there. Errors: Misconfigured."""
    needs = tuple(sorted(needs, key=lambda item: item.model))
    types = tuple(sorted(types, key=lambda item: item.offering))
    _check(needs, types, hours)
    number = {item.model: m for m, item in enumerate(needs)}
    kind = {item.offering: t for t, item in enumerate(types)}
    known = sorted(
        (
            _Placed(
                kind[host.offering],
                tuple(sorted(number[item.model] for item in host.tenants if item.model in number)),
                -1,
            ),
            host.name,
        )
        for host in there
        if host.offering in kind
    )
    return [name for _, name in known], _Case(
        needs=needs,
        types=types,
        models=_models_of(needs, types),
        rent=[item.usd_per_hour for item in types],
        launch=[item.launch_usd / hours for item in types],
        load_usd=np.array([item.load_usd / hours for item in needs]),
        there=tuple(item for item, _ in known),
        covered=covered,
    )


def _check(needs: Sequence[Need], types: Sequence[HostType], hours: float) -> None:
    shares = [item.most_busy for item in needs if not 0.0 < item.most_busy <= 1.0]
    if shares or not hours > 0.0:
        raise Misconfigured(
            f"most_busy must be in (0, 1] and hours above 0, not {[*shares, hours][0]}: correct them"
        )
    for what, names in (("models", [item.model for item in needs]), ("types", [item.offering for item in types])):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise Misconfigured(f"two {what} are named {twice[0]!r}: rename one of them")
    if len({len(item.load_rps) for item in needs}) > 1:
        raise Misconfigured("the models' loads have different numbers of units: give all the same ones")
    gib = {item.offering: item.memory_gib for item in types}
    for item in needs:
        held = [gib[fit.offering] for fit in item.fits if fit.offering in gib]
        if held and item.memory_gib > max(held) + NOTHING:
            raise Misconfigured(
                f"{item.model} takes {figure(item.memory_gib)} GiB, and the largest type that can run it has "
                f"{figure(max(held))} GiB for models: allow a larger type, or leave this model to Lambda"
            )


def _models_of(needs: Sequence[Need], types: Sequence[HostType]) -> Models:
    at, saved, hull = np.zeros((3, len(needs), POINTS))
    capacity, batch_s = np.zeros((2, len(types), len(needs)))
    kind = {item.offering: t for t, item in enumerate(types)}
    for m, item in enumerate(needs):
        levels, usd = np.asarray(item.levels, np.float64), np.asarray(item.saved_usd_per_hour, np.float64)
        at[m] = _points(levels, usd)
        saved[m] = np.interp(at[m], levels, usd)
        hull[m] = _concave_hull(at[m], saved[m])
        for fit in item.fits:
            if fit.offering in kind:
                capacity[kind[fit.offering], m] = fit.capacity_rps
                batch_s[kind[fit.offering], m] = fit.full_batch_s
    teams = [(item.team, item.model if item.alone else "") for item in needs]
    return Models(
        at=at,
        saved=saved,
        hull=hull,
        load=np.array([item.load_rps for item in needs], np.float64).reshape(len(needs), -1 if needs else 0),
        objective_s=np.array([item.slo.latency_s for item in needs]),
        memory_gib=np.array([item.memory_gib for item in needs]),
        team=np.array([sorted(set(teams)).index(team) for team in teams], np.int64),
        capacity=capacity,
        batch_s=batch_s,
        type_gib=np.array([item.memory_gib for item in types]),
        most_busy=np.array([item.most_busy for item in needs]),
    )


def _points(levels: Floats, saved: Floats) -> Floats:
    """Levels of a curve up to where it rises no more: its own and middles between, or equal savings apart."""
    top = int(np.searchsorted(saved, saved[-1] * (1.0 - NOTHING))) if len(saved) else 0
    if top == 0:
        return np.linspace(0.0, 1.0, POINTS)
    if top >= POINTS:
        rising = saved[: top + 1] + np.linspace(0.0, NOTHING * saved[-1], top + 1)
        return np.interp(np.linspace(0.0, rising[-1], POINTS), rising, levels[: top + 1])
    found = levels[: top + 1]
    while len(found) < POINTS:
        widest = int(np.argmax(np.diff(found)))
        found = np.insert(found, widest + 1, (found[widest] + found[widest + 1]) / 2)
    return found


def _concave_hull(at: Floats, saved: Floats) -> Floats:
    """The least concave curve above the points."""
    corners = [0]
    for i in range(1, len(at)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (saved[b] - saved[a]) * (at[i] - at[b]) > (saved[i] - saved[b]) * (at[b] - at[a]):
                break
            corners.pop()
        corners.append(i)
    return np.interp(at, at[corners], saved[corners])


def _arrays(hosts: Sequence[_Placed]) -> Hosts:
    return Hosts(
        kind=np.array([host.kind for host in hosts], np.int64),
        first=np.cumsum([0, *(len(host.tenants) for host in hosts)], dtype=np.int64),
        tenants=np.array([m for host in hosts for m in host.tenants], np.int64),
    )


def _served(case: _Case, hosts: Sequence[_Placed]) -> _Fleet:
    """The fleet with its load shared out; tenants that carry nothing and hosts without any are left out."""
    while True:
        hosts = sorted((host for host in hosts if host.tenants), key=lambda host: (len(host.tenants), host))
        arrays = _arrays(hosts)
        reached, carried, usd = serve(arrays, case.models)
        if carried.all():
            break
        rates = np.split(carried, arrays.first[1:-1])
        hosts = [
            host._replace(tenants=tuple(m for m, rps in zip(host.tenants, some, strict=True) if rps > 0.0))
            for host, some in zip(hosts, rates, strict=True)
        ]
    usd -= np.array([case.costs(host) for host in hosts])
    return _Fleet(
        hosts=tuple(hosts),
        arrays=arrays,
        reached=reached,
        carried=carried,
        worth=usd + case.covered_each(hosts),
        usd=float(usd.sum()) + case.covered_usd(_kinds(hosts)),
    )


def _planned(case: _Case) -> _Fleet:
    """The best fleet found from nothing."""
    none = _served(case, [])
    starts = [_grown(case, none), _grown(case, none, per_usd=True)]
    searched = THOROUGH // max(1, len(case.needs))
    if searched:
        starts += [none, *(_grown(case, none, kind=kind) for kind in range(len(case.types)))]
    if case.covered is not none_covered:
        starts.append(_served(case, _planned(replace(case, covered=none_covered)).hosts))
    fleets = sorted((_moved(case, start) for start in starts), key=lambda item: -item.usd)
    return max([fleets[0], *(_rebuilt(case, fleet) for fleet in fleets[:searched])], key=lambda item: item.usd)


def _rebuilt(case: _Case, fleet: _Fleet) -> _Fleet:
    """The fleet with hosts emptied and filled anew while that gains."""
    while found := next((item for item in _emptied(case, fleet) if _gains(case, item, fleet)), None):
        fleet = found
    return fleet


def _gains(case: _Case, found: _Fleet, before: _Fleet) -> bool:
    return found.usd > before.usd + _least_gain(case, before)


def _least_gain(case: _Case, fleet: _Fleet) -> float:
    share = LEAST_GAIN_THERE if case.there else LEAST_GAIN
    return share * max((case.rent[host.kind] for host in fleet.hosts), default=0.0) + NOTHING


def _allowed(case: _Case) -> list[_Placed]:
    """The instances that are there, without tenants that may not be where they are."""
    hosts = []
    for slot, item in enumerate(case.there):
        tenants: list[int] = []
        for m in item.tenants:
            if may_join(item.kind, np.array(tenants, np.int64), m, case.models):
                tenants.append(m)
        hosts.append(_Placed(item.kind, tuple(tenants), slot))
    return hosts


def _recognised(case: _Case, hosts: Sequence[_Placed]) -> list[_Placed]:
    """New hosts, in the slots of those there that hold most of their models."""
    free, found = dict(enumerate(case.there)), []
    for host in hosts:
        alike = [slot for slot, item in free.items() if item.kind == host.kind]
        slot = max(alike, key=lambda s: len({*free[s].tenants} & {*host.tenants}), default=-1)
        free.pop(slot, None)
        found.append(host._replace(slot=slot))
    return found


def _empties(case: _Case, fleet: _Fleet) -> list[_Placed]:
    """Hosts that may be added: one of each type, of what is there before a new one."""
    taken = {host.slot for host in fleet.hosts}
    slots = {item.kind: s for s, item in reversed([*enumerate(case.there)]) if s not in taken}
    return [
        _Placed(kind, (), slots.get(kind, -1))
        for kind, usd in enumerate(case.launch)
        if kind in slots or math.isfinite(usd)
    ]


def _unserved(case: _Case, fleet: _Fleet) -> Ints:
    """Models for which more capacity would save something."""
    return np.flatnonzero(fleet.reached < case.models.at[:, -1] - NOTHING)


def _grown(case: _Case, fleet: _Fleet, *, per_usd: bool = False, kind: int | None = None) -> _Fleet:
    """The fleet with hosts of one type or any added, each time the one worth most, or most for its price."""
    while options := [item for item in _filled(case, fleet) if kind is None or item[2].kind == kind]:
        usd, _, host = max(options, key=lambda item: item[0] / (item[1] + NOTHING) if per_usd else item[0])
        found = _served(case, [*fleet.hosts, host])
        if usd <= NOTHING or found.usd <= fleet.usd + NOTHING:
            break
        fleet = found
    return fleet


def _filled(case: _Case, fleet: _Fleet) -> list[tuple[float, float, _Placed]]:
    """Worth and price of the hosts that may be added, with the tenants that save most there."""
    found, unserved, empties = [], _unserved(case, fleet), _empties(case, fleet)
    team = case.models.team[unserved]
    covered = case.covered_each([*fleet.hosts, *empties])[len(fleet.hosts) :]
    for (host, paid), one in product(zip(empties, covered, strict=True), np.unique(team)):
        tenants, usd = fill(host.kind, unserved[team == one], fleet.reached, case.entry_usd(host), case.models)
        if len(tenants):
            price = case.price(host) - paid
            found.append((usd - price, price, host._replace(tenants=tuple(tenants.tolist()))))
    return found


def _emptied(case: _Case, fleet: _Fleet) -> Iterator[_Fleet]:
    """Fleets with a host or two, of those of least worth, emptied, and a host or none in their place."""
    least = np.argsort(fleet.worth, kind="stable")[:EMPTIED].tolist()
    tried: set[tuple[_Placed, ...]] = set()
    for gone in (*((i,) for i in least), *combinations(least, 2)):
        rest = _served(case, [host for i, host in enumerate(fleet.hosts) if i not in gone])
        for more in ([], *([host] for *_, host in _filled(case, rest))):
            start = _grown(case, _served(case, [*rest.hosts, *more]))
            if start.usd > NEAR * fleet.usd and start.hosts not in tried:
                tried.add(start.hosts)
                yield _moved(case, start)


def _moved(case: _Case, fleet: _Fleet) -> _Fleet:
    """The fleet with models moved and hosts added while that gains."""
    least = LEAST_GAIN_MANY if len(case.needs) > THOROUGH else 0.0
    while True:
        found = _grown(case, _swept(case, fleet))
        if not _gains(case, found, fleet) or found.usd < fleet.usd * (1.0 + least):
            return fleet
        fleet = found


def _swept(case: _Case, fleet: _Fleet) -> _Fleet:
    """The fleet after moves that gain, the largest gain first, each of hosts that no other has changed."""
    hosts, touched = [*fleet.hosts, *_empties(case, fleet)], set[int]()
    old, few = len(fleet.hosts), len(case.needs) <= THOROUGH
    for move in _moves(case, fleet, hosts) if hosts else ():
        if touched.intersection(change.host for change in move):
            continue
        changed = _changed(hosts, move, old)
        if few:
            found = _served(case, changed)
            if not _gains(case, found, fleet):
                continue
            fleet = found
        touched.update(change.host for change in move if changed[change.host] != hosts[change.host])
        hosts = changed
    return fleet if few else _served(case, hosts)


def _changed(hosts: Sequence[_Placed], move: tuple[_Change, ...], old: int) -> list[_Placed]:
    """The hosts after a move. Any number of new hosts may be had: the empty one, behind the old ones, stays."""
    changed = list(hosts)
    for h, leaves, joins in move:
        host = hosts[h]._replace(tenants=tuple(sorted({*hosts[h].tenants, joins} - {leaves, -1})))
        if h < old or host.slot >= 0:
            changed[h] = host
        else:
            changed.append(host)
    return changed


def _moves(case: _Case, fleet: _Fleet, hosts: Sequence[_Placed]) -> Iterator[tuple[_Change, ...]]:
    """Changes that seem to gain, by their gain. hosts: those of the fleet, and empty ones.

    A model leaves, joins a host that may serve more of it, takes another's place or moves, or two change places.
    The gain is exact but for models on several hosts.
    """
    arrays, least = _arrays(hosts), _least_gain(case, fleet)
    model, unserved, size = arrays.tenants, _unserved(case, fleet), np.diff(arrays.first)
    host, count = np.repeat(np.arange(len(hosts)), size), len(arrays.tenants)
    # rows: each tenant leaves its host, or nobody leaves; columns: each tenant, unserved model or nobody joins
    nobody = np.full(len(hosts), -1)
    rows = np.stack([np.append(host, np.arange(len(hosts))), np.append(np.arange(count), nobody)], 1)
    columns = np.concatenate([model, unserved, [-1]])
    low = np.concatenate([fleet.reached[model] - fleet.carried, fleet.reached[unserved], [0.0]])
    worth = np.full((len(rows), len(columns)), -np.inf)
    if len(case.needs) <= THOROUGH:
        worth[:] = savings_with(rows, columns, low, arrays, case.models)
    else:
        worth[count:] = savings_with(rows[count:], columns, low, arrays, case.models)
        worth[:count, -1] = savings_with(rows[:count], columns[-1:], low, arrays, case.models)[:, 0]
    entry = np.array([np.append(case.entry_usd(item), 0.0) for item in hosts])
    costs = np.array([case.costs(item) for item in hosts]) - case.covered_each(hosts)
    worth -= entry[rows[:, 0]][:, columns] + costs[rows[:, 0], None]
    worth[:count] += entry[host, model][:, None]
    worth[:, -1][np.concatenate([size[host] == 1, size == 0])] = 0.0
    gain = worth - worth[count + rows[:, 0], -1:]
    joins, swaps = gain[count:, :count].T, gain[:count, :count]
    options = [
        gain[:, count:],
        np.where(host[:, None] != np.arange(len(hosts)), gain[:count, -1:] + joins, -np.inf),
        np.where(host[:, None] < host, swaps + swaps.T, -np.inf),
    ]
    found = [
        (-option[i, j], which, i, j)
        for which, option in enumerate(options)
        for i, j in np.argwhere(option > least)
    ]
    leaves = np.append(model, nobody)
    for _, which, i, j in sorted(found):
        if which == 0:
            yield (_Change(int(rows[i, 0]), int(leaves[i]), int(columns[count + j])),)
        elif which == 1:
            yield _Change(int(host[i]), int(model[i]), -1), _Change(int(j), -1, int(model[i]))
        else:
            yield (
                _Change(int(host[i]), int(model[i]), int(model[j])),
                _Change(int(host[j]), int(model[j]), int(model[i])),
            )


def _packing(case: _Case, fleet: _Fleet, names: Sequence[str]) -> Packing:
    """The fleet in words, worth what the whole curves say."""
    hosts, carried = [], iter(fleet.carried.tolist())
    total: Counter[int] = Counter()
    for host in fleet.hosts:
        tenants = []
        for m in host.tenants:
            rps = next(carried)
            total[m] += rps
            tenants.append(Tenant(model=case.needs[m].model, capacity_rps=rps))
        name = names[host.slot] if host.slot >= 0 else ""
        hosts.append(Host(offering=case.types[host.kind].offering, tenants=tuple(tenants), name=name))
    saved = sum(
        float(np.interp(total[m], item.levels, item.saved_usd_per_hour)) for m, item in enumerate(case.needs)
    )
    worth = saved - sum(map(case.costs, fleet.hosts)) + case.covered_usd(_kinds(fleet.hosts))
    return Packing(hosts=tuple(hosts), worth_usd_per_hour=worth)
