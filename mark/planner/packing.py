"""The packing planner: which models share which instance, for money.

Each model brings a curve: what capacity up to each level saves an hour, against whatever else would serve. A fleet
is worth what its models save together, less rents, launches and the loading of models. All three are spread over
the hours that the plan is for.

A device has `most_busy` seconds a second to give, less than one, so that requests need not wait for long. They go
to the model that saves most by the next one (`share_out`). What is bounded is the load of all tenants together, in
each unit: models with unlike peaks fit where the sum of their peaks would not. A tenant must fit the memory that
is left, and two models share a device only if either's batch ends in time behind the other's longest.

Hosts are added greedily, each time the one that is worth most, while one is worth its rent. Then a local search
drops, replaces and merges hosts and moves models. It starts from what is there as well, and what is there costs no
launch and no loading: a change must gain more than that. A plan is planned again from its own result until nothing
changes, so that the next plan of the same state is the same. Ties go to the first by name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np

from mark.domain.errors import Misconfigured
from mark.domain.figures import figure
from mark.domain.objective import Slo
from mark.planner.packing_kernels import (
    NOTHING,
    Device,
    Empty,
    Flags,
    Floats,
    Ints,
    Models,
    Tenancies,
    admit,
    concave_hull,
    fill,
    points,
    savings,
    share_out,
)

POINTS = 17
"""Points at which a curve is known to the search."""
BATCHES_SHARE = 1.0
"""Of the objective: a request's own batch and the one before it end within it."""
LEAST_GAIN = 2e-3
"""Of the dearest rent in the fleet: a change that gains less is not made."""
NEAR = 0.02
"""Of the rents: a change that looks worse by more is not worked out."""
SMALL = 12
"""Up to so many models are moved one by one, and from several starts."""
IDLEST, FEW_IDLEST = 8, 4
"""So many of the idlest hosts are replaced, one by one and in pairs; the second where models are many."""
MOST_CHANGES, FEW_CHANGES = 200, 4
"""Changes made by one search."""
MOST_REPLANS, FEW_REPLANS = 20, 1
"""Times that a plan is planned again. Of many models it may still change a little after the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What one model gets of one device of an offering, alone on it."""

    offering: str
    #: Requests/s at which the device is always busy.
    capacity_rps: float
    #: Seconds of its longest batch.
    full_batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Need:
    """One model that may share instances."""

    model: str
    slo: Slo
    #: Of each device that holds it.
    memory_gib: float
    #: Capacities, requests/s, rising from 0, shape (n,).
    levels: Floats
    #: What capacity up to each level saves against what else would serve, USD an hour, shape (n,), never falling.
    saved_usd_per_hour: Floats
    #: Expected rate in each unit of the plan, requests/s, shape (units,); the same units for all models.
    load_rps: Floats
    fits: tuple[Fit, ...]
    #: It shares with models of the same team only.
    team: str = ""
    #: It shares with no other model.
    alone: bool = False
    #: Price of loading it on a device where it is not, USD.
    load_usd: float = 0.0
    #: Instances that hold it at least, worth their rent or not.
    min_hosts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """An instance that can be rented."""

    offering: str
    #: Rent and risk.
    usd_per_hour: float
    #: Infinite where a launch is refused.
    launch_usd: float
    #: Of one device, for its tenants.
    memory_gib: float
    devices: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Tenant:
    """One model on one device of an instance."""

    device: int = 0
    model: str
    #: Requests/s that it is planned to carry there.
    capacity_rps: float


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Host:
    """An instance with its tenants, by device and name."""

    offering: str
    tenants: tuple[Tenant, ...]
    #: Names the instance that is there; empty for one to launch.
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Instances by offering. `worth_usd_per_hour`: savings less rents, launches and loading."""

    hosts: tuple[Host, ...]
    worth_usd_per_hour: float


class _Placed(NamedTuple):
    """An instance in the search: `kind` among the types, models by device, `slot` among what is there or -1."""

    kind: int
    models: tuple[tuple[int, ...], ...]
    slot: int


class _Option(NamedTuple):
    """A host that may be added: what it is worth and costs, USD an hour."""

    usd: float
    cost: float
    host: _Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The input as arrays. Models and types by name; there by offering, models and name."""

    needs: tuple[Need, ...]
    types: tuple[HostType, ...]
    models: Models
    #: Shape (types, models).
    capacity: Floats
    batch_s: Floats
    #: USD an hour; of each type.
    rent: list[float]
    launch: list[float]
    #: USD an hour, of each model.
    load_usd: Floats
    min_hosts: Ints
    #: Models that must be on several hosts.
    spread: Flags
    #: What an instance is worth that a model must have: more than any fleet.
    must_usd: float
    there: tuple[_Placed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleet:
    """A state of the search. reached: level of each model; used: shape (devices, units) in order of hosts."""

    hosts: tuple[_Placed, ...]
    reached: Floats
    used: Floats
    #: Capacity of each tenant, in order of hosts, devices and models.
    carried: tuple[float, ...]
    usd: float


def pack(
    needs: Sequence[Need],
    types: Sequence[HostType],
    *,
    there: Sequence[Host] = (),
    most_busy: float,
    hours: float,
) -> Packing:
    """The fleet that is worth most, as far as the search finds it.

    there: instances that exist or are on their way, with what they hold. most_busy: share of a device that may be
    busy. hours: the time that the plan is for, over which launches and loading are spread.
    """
    names, case = _case_of(needs, types, there, most_busy, hours)
    fleet = _planned(case)
    for _ in range(MOST_REPLANS if len(needs) <= SMALL else FEW_REPLANS):
        again = _planned(replace(case, there=fleet.hosts))
        slots = [fleet.hosts[item.slot].slot if item.slot >= 0 else -1 for item in again.hosts]
        found = _evaluated(case, [item._replace(slot=slot) for item, slot in zip(again.hosts, slots, strict=True)])
        if found.hosts == fleet.hosts or found.usd <= fleet.usd:
            break
        fleet = found
    return _packing(case, fleet, names)


def _case_of(
    needs: Sequence[Need], types: Sequence[HostType], there: Sequence[Host], most_busy: float, hours: float
) -> tuple[list[str], _Case]:
    """The case, and the names of what is there. Errors: Misconfigured."""
    needs = tuple(sorted(needs, key=lambda item: item.model))
    types = tuple(sorted(types, key=lambda item: item.offering))
    _check(needs, types, most_busy, hours)
    number = {item.model: m for m, item in enumerate(needs)}
    kind = {item.offering: t for t, item in enumerate(types)}
    capacity, batch_s = np.zeros((2, len(types), len(needs)))
    for m, item in enumerate(needs):
        for fit in item.fits:
            if fit.offering in kind and item.memory_gib <= types[kind[fit.offering]].memory_gib + NOTHING:
                capacity[kind[fit.offering], m] = fit.capacity_rps
                batch_s[kind[fit.offering], m] = fit.full_batch_s
    known = sorted(
        (_Placed(kind[host.offering], _models_on(host, number, types[kind[host.offering]].devices), -1), host.name)
        for host in there
        if host.offering in kind
    )
    rent = [item.usd_per_hour for item in types]
    launch = [item.launch_usd / hours for item in types]
    load_usd = np.array([item.load_usd / hours for item in needs])
    finite = [usd for usd in launch if math.isfinite(usd)]
    models = _models_of(needs, most_busy)
    return [name for _, name in known], _Case(
        needs=needs,
        types=types,
        models=models,
        capacity=capacity,
        batch_s=batch_s,
        rent=rent,
        launch=launch,
        load_usd=load_usd,
        min_hosts=np.array([item.min_hosts for item in needs], np.int64),
        spread=np.array([item.min_hosts > 1 for item in needs], np.bool_),
        must_usd=2.0 * (max(rent, default=0.0) + max(finite, default=0.0) + float(load_usd.max(initial=0.0)))
        + float(models.saved[:, -1].sum()),
        there=tuple(item for item, _ in known),
    )


def _check(needs: Sequence[Need], types: Sequence[HostType], most_busy: float, hours: float) -> None:
    if not 0.0 < most_busy <= 1.0 or not hours > 0.0:
        raise Misconfigured(
            f"most_busy must be in (0, 1] and hours above 0, not {most_busy} and {hours}: correct them"
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


def _models_on(host: Host, number: dict[str, int], devices: int) -> tuple[tuple[int, ...], ...]:
    """Models by device; those that are not known are left out."""
    held: list[set[int]] = [set() for _ in range(devices)]
    for tenant in host.tenants:
        if tenant.model in number and tenant.device < devices:
            held[tenant.device].add(number[tenant.model])
    return tuple(tuple(sorted(models)) for models in held)


def _models_of(needs: Sequence[Need], most_busy: float) -> Models:
    count = len(needs)
    at, saved, hull = np.zeros((3, count, POINTS))
    for m, item in enumerate(needs):
        levels = np.asarray(item.levels, np.float64)
        usd = np.asarray(item.saved_usd_per_hour, np.float64)
        at[m] = points(levels, usd, POINTS)
        saved[m] = np.interp(at[m], levels, usd)
        hull[m] = concave_hull(at[m], saved[m])
    teams = sorted({item.team for item in needs})
    return Models(
        at=at,
        saved=saved,
        hull=hull,
        load=np.array([item.load_rps for item in needs], np.float64).reshape(
            count, len(needs[0].load_rps) if needs else 0
        ),
        limit=np.array([at[m, -1] / max(1, item.min_hosts) for m, item in enumerate(needs)]),
        leaves_s=np.array([item.slo.latency_s * BATCHES_SHARE for item in needs]),
        memory_gib=np.array([item.memory_gib for item in needs]),
        team=np.array([teams.index(item.team) for item in needs], np.int64),
        alone=np.array([item.alone for item in needs], np.bool_),
        most_busy=most_busy,
    )


def _evaluated(case: _Case, hosts: Sequence[_Placed]) -> _Fleet:
    """The fleet with its devices shared out; tenants that carry nothing and hosts without any are left out."""
    while True:
        hosts = sorted(hosts)
        tenancies, order, devices = _tenancies(case, hosts)
        reached, shares, used = share_out(np.zeros(len(case.needs)), case.models, tenancies, devices)
        carried = np.empty_like(shares)
        carried[order] = shares
        if carried.all():
            break
        hosts = _without_idle(hosts, carried)
    return _Fleet(
        hosts=tuple(hosts),
        reached=reached,
        used=used,
        carried=tuple(map(float, carried)),
        usd=savings(reached, case.models) - _costs(case, hosts),
    )


def _tenancies(case: _Case, hosts: Sequence[_Placed]) -> tuple[Tenancies, Ints, int]:
    """Tenants by model, their places in order of hosts, and the number of devices."""
    model, device, kind, count = [], [], [], 0
    for host in hosts:
        for models in host.models:
            model += models
            device += [count] * len(models)
            kind += [host.kind] * len(models)
            count += 1
    found = np.array(model, np.int64)
    order = np.argsort(found, kind="stable")
    tenancies = Tenancies(
        first=np.searchsorted(found[order], np.arange(len(case.needs) + 1)),
        device=np.array(device, np.int64)[order],
        capacity=case.capacity[np.array(kind, np.int64)[order], found[order]],
    )
    return tenancies, order, count


def _without_idle(hosts: Sequence[_Placed], carried: Floats) -> list[_Placed]:
    left, i = [], 0
    for host in hosts:
        devices = []
        for models in host.models:
            devices.append(tuple(m for k, m in enumerate(models) if carried[i + k] > 0.0))
            i += len(models)
        if any(devices):
            left.append(host._replace(models=tuple(devices)))
    return left


def _costs(case: _Case, hosts: Sequence[_Placed]) -> float:
    """Rents, launches and loading, USD an hour, less what models are worth that must be there."""
    total = 0.0
    held: Counter[int] = Counter()
    for host in hosts:
        total += case.rent[host.kind] + (case.launch[host.kind] if host.slot < 0 else 0.0)
        total += _loading_usd(case, host)
        held.update({m for models in host.models for m in models})
    for m in np.flatnonzero(case.min_hosts):
        total -= case.must_usd * min(held[int(m)], int(case.min_hosts[m]))
    return total


def _loading_usd(case: _Case, host: _Placed) -> float:
    """USD an hour for tenants that are not there yet."""
    loaded = case.there[host.slot].models if host.slot >= 0 else ((),) * len(host.models)
    return sum(
        float(case.load_usd[m])
        for models, known in zip(host.models, loaded, strict=True)
        for m in models
        if m not in known
    )


def _planned(case: _Case) -> _Fleet:
    """The best fleet found; what is there where no other gains more than LEAST_GAIN."""
    kept = _rebuilt(case, _allowed_there(case))
    few = len(case.needs) <= SMALL
    starts = [kept, *(_grown(case, _evaluated(case, []), per_usd=each) for each in (False, True)[: 1 + few])]
    if few:
        starts.append(_evaluated(case, _apart(case)))
    else:
        starts = starts[1:] if _gains(case, starts[1], kept) else starts[:1]
    best = _improved(case, starts[0])
    for start in starts[1:]:
        found = _improved(case, start)
        if _gains(case, found, best):
            best = found
    return best


def _apart(case: _Case) -> list[_Placed]:
    """New hosts for each model as if it were the only one."""
    hosts: list[_Placed] = []
    for m in range(len(case.needs)):
        only = np.zeros_like(case.capacity)
        only[:, m] = case.capacity[:, m]
        lone = replace(case, capacity=only, there=())
        hosts += _improved(lone, _grown(lone, _evaluated(lone, []))).hosts
    return hosts


def _allowed_there(case: _Case) -> list[_Placed]:
    """What is there, without tenants that may not be where they are."""
    hosts = []
    for slot, item in enumerate(case.there):
        host = _Placed(item.kind, tuple(() for _ in item.models), slot)
        for d, models in enumerate(item.models):
            for m in models:
                host = _with(case, host, d, m) or host
        hosts.append(host)
    return hosts


def _gains(case: _Case, found: _Fleet, before: _Fleet) -> bool:
    dearest = max((case.rent[host.kind] for host in before.hosts), default=0.0)
    return found.usd > before.usd + LEAST_GAIN * dearest + NOTHING


def _improved(case: _Case, fleet: _Fleet) -> _Fleet:
    """Local search: the first change that gains, until none does."""
    for _ in range(MOST_CHANGES if len(case.needs) <= SMALL else FEW_CHANGES):
        for found in _changed(case, fleet):
            if _gains(case, found, fleet):
                fleet = _grown(case, found)
                break
        else:
            break
    return fleet


def _changed(case: _Case, fleet: _Fleet) -> Iterator[_Fleet]:
    """Fleets near to this one: hosts dropped, replaced, merged; of few models also tenants moved and exchanged."""
    yield from _without_hosts(case, fleet)
    if len(case.needs) <= SMALL and len(fleet.hosts) <= IDLEST:
        for hosts in chain(_with_lone(case, fleet), _moved(case, fleet.hosts), _exchanged(case, fleet.hosts)):
            yield _topped_up(case, _evaluated(case, hosts))


def _without_hosts(case: _Case, fleet: _Fleet) -> Iterator[_Fleet]:
    """One host or two gone, with one of any type in their place."""
    devices = np.array([len(host.models) for host in fleet.hosts], np.int64)
    busy = fleet.used.mean(axis=1)
    idlest = sorted(range(len(devices)), key=lambda i: float(busy[devices[:i].sum()]))
    few = len(case.needs) <= SMALL and len(fleet.hosts) <= IDLEST
    slack = NEAR * sum(case.rent[host.kind] for host in fleet.hosts)
    some = idlest[: IDLEST if few else FEW_IDLEST]
    for gone in (*((i,) for i in some), *combinations(some, 2)):
        rest = [host for i, host in enumerate(fleet.hosts) if i not in gone]
        without = _evaluated(case, rest)
        lost = {m for i in gone for models in fleet.hosts[i].models for m in models}
        if len(gone) == 1:
            yield _topped_up(case, without, lost)
        for kind in range(len(case.types)):
            option = _best_host(case, without, kind)
            if option is not None and without.usd + option.usd > fleet.usd - slack:
                found = _topped_up(case, _evaluated(case, [*without.hosts, option.host]), lost)
                yield _grown(case, found) if few else found


def _with_lone(case: _Case, fleet: _Fleet) -> Iterator[list[_Placed]]:
    """A host more, for one model that has too little."""
    for m in map(int, _unserved(case, fleet)):
        for kind, item in enumerate(case.types):
            empty = _Placed(kind, ((),) * item.devices, -1)
            if math.isfinite(case.launch[kind]) and (host := _with(case, empty, 0, m)):
                yield [*fleet.hosts, host]


def _moved(case: _Case, hosts: tuple[_Placed, ...]) -> Iterator[list[_Placed]]:
    """A tenant gone, moved, or on another host as well."""
    places = [(i, d) for i, host in enumerate(hosts) for d in range(len(host.models))]
    for i, d in places:
        for m in hosts[i].models[d]:
            left = _replaced(hosts, {i: _without(hosts[i], d, m)})
            yield left
            for j, e in places:
                if (i, d) != (j, e) and (moved := _with(case, left[j], e, m)):
                    yield _replaced(left, {j: moved})
                if added := _with(case, hosts[j], e, m):
                    yield _replaced(hosts, {j: added})


def _exchanged(case: _Case, hosts: tuple[_Placed, ...]) -> Iterator[list[_Placed]]:
    """Two tenants of two hosts, each where the other was."""
    for i, j in combinations(range(len(hosts)), 2):
        for (d, ms), (e, ns) in product(enumerate(hosts[i].models), enumerate(hosts[j].models)):
            for m, n in product(ms, ns):
                one = _with(case, _without(hosts[i], d, m), d, n)
                other = _with(case, _without(hosts[j], e, n), e, m)
                if one and other:
                    yield _replaced(hosts, {i: one, j: other})


def _replaced(hosts: Sequence[_Placed], new: dict[int, _Placed]) -> list[_Placed]:
    return [new.get(i, host) for i, host in enumerate(hosts)]


def _without(host: _Placed, device: int, model: int) -> _Placed:
    return host._replace(
        models=tuple(
            tuple(m for m in models if m != model) if d == device else models
            for d, models in enumerate(host.models)
        )
    )


def _with(case: _Case, host: _Placed, device: int, model: int) -> _Placed | None:
    """The host with another tenant, or None where that may not be."""
    known, tenants, kind = case.models, host.models[device], host.kind
    others = {m for models in host.models for m in models} - {model}
    batch_s, leaves_s = case.batch_s[kind], known.leaves_s
    if (
        model in tenants
        or case.capacity[kind, model] <= 0.0
        or known.memory_gib[[*tenants, model]].sum() > case.types[kind].memory_gib + NOTHING
        or any(known.team[m] != known.team[model] or known.alone[m] or known.alone[model] for m in others)
        or any(batch_s[m] + batch_s[model] > min(leaves_s[m], leaves_s[model]) + NOTHING for m in tenants)
        or (case.min_hosts[model] > 1 and any(model in models for models in host.models))
    ):
        return None
    joined = tuple(sorted((*tenants, model)))
    return host._replace(models=tuple(joined if d == device else models for d, models in enumerate(host.models)))


def _rebuilt(case: _Case, hosts: Sequence[_Placed]) -> _Fleet:
    """The fleet with its room used by models that have too little, and hosts added while they are worth it."""
    return _grown(case, _topped_up(case, _evaluated(case, hosts)))


def _unserved(case: _Case, fleet: _Fleet) -> Ints:
    """Models for which more capacity would save something."""
    return np.flatnonzero(_unserved_of(case, fleet, np.arange(len(case.needs))))


def _unserved_of(case: _Case, fleet: _Fleet, models: Ints) -> Flags:
    found: Flags = fleet.reached[models] < case.models.at[models, -1] - NOTHING
    return found


def _entry_usd(case: _Case, hosts: Sequence[_Placed]) -> Floats:
    """Price of a new tenant of each model, USD an hour; below 0 for one that must be on more hosts."""
    entry = case.load_usd.copy()
    for m in np.flatnonzero(case.min_hosts):
        if sum(any(m in models for models in host.models) for host in hosts) < case.min_hosts[m]:
            entry[m] -= case.must_usd
    return entry


def _topped_up(case: _Case, fleet: _Fleet, only: set[int] | None = None) -> _Fleet:
    """The fleet with more tenants, of some models only, on hosts that are there, where that gains."""
    tried: set[_Placed] = set()
    some = np.array(sorted(only or ()), np.int64)
    while len(unserved := _unserved(case, fleet) if only is None else some[_unserved_of(case, fleet, some)]):
        i = next((i for i, host in enumerate(fleet.hosts) if host not in tried), None)
        if i is None:
            break
        host = fleet.hosts[i]
        tried.add(host)
        first = sum(len(item.models) for item in fleet.hosts[:i])
        joined = _joined(case, host, unserved, _entry_usd(case, fleet.hosts), fleet.reached, fleet.used[first:])
        if joined != host:
            found = _evaluated(case, _replaced(fleet.hosts, {i: joined}))
            if found.usd > fleet.usd + NOTHING:
                fleet = found
    return fleet


def _joined(
    case: _Case, host: _Placed, candidates: Ints, entry_usd: Floats, reached: Floats, used: Floats
) -> _Placed:
    """The host with tenants admitted to the first of its devices that any may join. used: of its devices first."""
    loaded = case.there[host.slot].models if host.slot >= 0 else None
    for d, tenants in enumerate(host.models):
        entry = entry_usd
        if loaded and loaded[d]:
            entry = entry_usd.copy()
            entry[[*loaded[d]]] -= case.load_usd[[*loaded[d]]]
        neighbours = [m for e, models in enumerate(host.models) if e != d for m in models]
        barred = {*tenants, *(m for m in neighbours if case.min_hosts[m] > 1)}
        device = Device(
            capacity=case.capacity[host.kind],
            batch_s=case.batch_s[host.kind],
            memory_gib=case.types[host.kind].memory_gib,
            tenants=np.array(tenants, np.int64),
            neighbours=np.array(neighbours, np.int64),
            used=used[d],
        )
        if barred:
            may = np.ones(len(case.needs), np.bool_)
            may[[*barred]] = False
            candidates = candidates[may[candidates]]
        taken, _ = admit(candidates, 0, reached, entry, case.models, device)
        if len(taken):
            joined = tuple(sorted((*tenants, *map(int, taken))))
            return host._replace(
                models=tuple(joined if d == e else models for e, models in enumerate(host.models))
            )
    return host


def _grown(case: _Case, fleet: _Fleet, *, per_usd: bool = False) -> _Fleet:
    """The fleet with hosts added, each time the one that is worth most, or most for what it costs."""
    while len(_unserved(case, fleet)):
        options = [option for kind in range(len(case.types)) if (option := _best_host(case, fleet, kind))]
        if not options:
            break
        host = max(options, key=lambda option: option.usd / option.cost if per_usd else option.usd).host
        found = _evaluated(case, [*fleet.hosts, host])
        if found.usd <= fleet.usd + NOTHING:
            break
        fleet = found
    return fleet


def _best_host(case: _Case, fleet: _Fleet, kind: int) -> _Option | None:
    """The host of a type that is worth most beside a fleet, if any is worth its rent."""
    taken = {host.slot for host in fleet.hosts}
    slot = next((s for s, item in enumerate(case.there) if item.kind == kind and s not in taken), -1)
    cost = case.rent[kind] + (case.launch[kind] if slot < 0 else 0.0)
    if not math.isfinite(cost):
        return None
    entry = np.repeat(_entry_usd(case, fleet.hosts)[None], case.types[kind].devices, axis=0)
    for d, models in enumerate(case.there[slot].models if slot >= 0 else ()):
        entry[d, [*models]] -= case.load_usd[[*models]]
    empty = Empty(
        capacity=case.capacity[kind],
        batch_s=case.batch_s[kind],
        memory_gib=case.types[kind].memory_gib,
        devices=case.types[kind].devices,
        cost=cost,
        entry_usd=entry,
    )
    model, device, usd = fill(fleet.reached, _unserved(case, fleet), case.models, empty, case.spread)
    if usd <= NOTHING:
        return None
    models = tuple(tuple(map(int, model[device == d])) for d in range(empty.devices))
    return _Option(usd, cost, _Placed(kind, models, slot))


def _packing(case: _Case, fleet: _Fleet, names: Sequence[str]) -> Packing:
    """The fleet in words, worth what the whole curves say."""
    hosts, carried = [], iter(fleet.carried)
    total: Counter[int] = Counter()
    for host in fleet.hosts:
        tenants = []
        for d, models in enumerate(host.models):
            for m in models:
                rps = next(carried)
                total[m] += rps
                tenants.append(Tenant(device=d, model=case.needs[m].model, capacity_rps=rps))
        name = names[host.slot] if host.slot >= 0 else ""
        hosts.append(Host(offering=case.types[host.kind].offering, tenants=tuple(tenants), name=name))
    saved = sum(
        float(np.interp(total[m], item.levels, item.saved_usd_per_hour)) for m, item in enumerate(case.needs)
    )
    return Packing(hosts=tuple(hosts), worth_usd_per_hour=saved - _costs(replace(case, must_usd=0.0), fleet.hosts))
