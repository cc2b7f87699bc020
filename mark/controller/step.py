"""The decision of one tick: state and observation in, orders with reasons out.

Level-triggered: every tick compares what is wanted (the plan), what was requested and what is observed, and orders
the difference; a lost call or a crash heals at the next tick. It scales up at once and down with patience: an
instance is drained only when every plan of the cool-down could do without it, and the load just observed can too.
Standbys are kept in `standby.py`, the objective is boosts in `slo.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mark.controller.at_risk import drain_replaced
from mark.controller.capacity import carried_rps, usable_rps
from mark.controller.limits.launch_breaker import LaunchRecord, note_launches
from mark.controller.limits.launch_limits import LaunchLimits
from mark.controller.limits.refusals import back_off, count_refusals, without_refused_pools
from mark.controller.limits.reserved_capacity import into_reserved, reserved_backoff, reserved_room
from mark.controller.limits.spending_limit import apply_spending_limit
from mark.controller.limits.spot_breaker import SpotPool, note_interruptions, trusted_again
from mark.controller.policy import ControllerPolicy
from mark.controller.pool_change import drain_for_pool
from mark.controller.service_time_ratios import ratio_notes, with_ratios
from mark.controller.slo import monitor_slo
from mark.controller.standby import keep_standbys, short_rps, stop_standbys
from mark.controller.state import (
    Counts,
    Decision,
    Desired,
    Note,
    NoteKind,
    Observation,
    Requested,
    SloBoost,
    State,
    Tokens,
)
from mark.controller.zones import drained_first, in_zones
from mark.dispatch.overflow import environments_for
from mark.domain.billing.spending import SpendingLimit
from mark.domain.demand import DemandUnit
from mark.domain.figures import plural
from mark.domain.fleet.instances import FleetView, InstanceState, Role
from mark.domain.fleet.orders import (
    Drain,
    Launch,
    LaunchRefused,
    LaunchWithdrawn,
    Order,
    RefusalCause,
    WarmLambda,
    Withdraw,
)
from mark.domain.offerings.offering import Market
from mark.domain.plan import RETRY_WAKE_S
from mark.planner.equivalents import equivalents

WARM_QUANTILE = 0.9
"""Lambda is warmed for this quantile of the load; what is rarer starts some environments cold and misses."""
COLD_SHARE = 0.1
"""Of the requests that may miss the objective: so many may start an environment cold."""
LEAST_COLD_SHARE = 1e-4
"""Where none may miss: fewer would ask for environments without end."""
EXACT = 1e-9
"""What rounding may take off a whole number of instances."""
READY_UNITS = 15
"""How many units of ready instances are remembered: the longest look-back of an autoscaler."""
NO_PLAN = Note(kind=NoteKind.NO_PLAN, text="no plan yet")


def step(state: State, seen: Observation, policy: ControllerPolicy) -> Decision:
    """One tick. Same state, observation and policy: same decision."""
    return decide(apply_observation(state, seen, policy), seen, policy)


def decide(known: State, seen: Observation, policy: ControllerPolicy) -> Decision:
    """Decide on what is known: the second half of `step`. known: what `apply_observation` gave."""
    policy = apply_spending_limit(policy, seen.spending_limit)
    state = _with_plan(known, seen, policy)
    policy = with_ratios(policy, state.service_time_ratios)
    tokens = Tokens(state.tick)
    limits = LaunchLimits(state, seen, policy)
    state, boosts = monitor_slo(state, seen, policy, limits, tokens)
    if state.plan is None:
        first = _placed((*boosts, *_warm_ups(state, seen, policy, tokens)), state, seen, policy, tokens)
        return Decision(state=_remember(state, seen, first), orders=first, notes=(NO_PLAN,))
    launches, notes = _launches(state, seen, policy, limits, tokens, ordered=boosts)
    if policy.pool is not None and seen.spending_limit is SpendingLimit.NONE:
        drains, kept = _pool_drains(state, seen, limits, tokens, launches), list[Note]()
    else:
        drains, kept = _drains(state, seen, policy, tokens)
    if seen.fleet.at_risk:
        drains += drain_replaced(state, seen.fleet, policy, _floor(state, policy, seen.fleet), tokens)
    if seen.spending_limit is SpendingLimit.NONE:
        state, standbys = keep_standbys(state, seen, policy, limits, tokens)
    else:
        standbys = stop_standbys(seen, tokens)
    warm = _warm_ups(state, seen, policy, tokens)
    withdrawals = _withdrawals(state, seen, tokens)
    orders = _placed((*boosts, *launches, *drains, *standbys, *warm, *withdrawals), state, seen, policy, tokens)
    slow = ratio_notes(state.service_time_ratios) if seen.plan is not None else ()
    noted = (*_guardrail_notes(seen), *_breaker_notes(state, seen), *notes, *kept, *slow)
    return Decision(state=_remember(state, seen, orders), orders=orders, notes=noted)


def _placed(
    orders: tuple[Order, ...], state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens
) -> tuple[Order, ...]:
    """The orders with the zones that launches go to."""
    kept, others = into_reserved(orders, reserved_room(state, seen, policy), policy, tokens)
    return (*kept, *in_zones(without_refused_pools(others, state), state, seen, policy, tokens))


def running_counts(state: State, fleet: FleetView) -> Counts:
    """Serving instances per offering that are pending, ready or requested: the plan's free candidates."""
    have = dict(fleet.staying)
    for item in state.requested:
        if item.role is Role.SERVING:
            have[item.offering] = have.get(item.offering, 0) + item.count
    return tuple(sorted(have.items()))


def apply_observation(state: State, seen: Observation, policy: ControllerPolicy) -> State:
    """Fold what was seen into the state: arrived and refused launches, expiries, the load.

    The first half of `step`. The planner is asked from the state that it gives, so it looks at no forecast, no
    plan, and no fact of their failures.
    """
    streaks = count_refusals(state, seen, policy)
    backoff, pools = back_off(state, streaks, seen, policy)
    requested = _still_requested(state, seen, policy)
    ratios = seen.service_time_ratios
    load: dict[str, Any] = {} if seen.demand is None else _with_load(state, seen, seen.demand, policy)
    return replace(
        state,
        tick=state.tick + 1,
        first_at=state.first_at if state.tick else seen.now,
        requested=tuple(item for item in requested if item.count > 0),
        desired=_with_what_came(state, requested),
        capacity_backoff=backoff,
        pool_backoff=pools,
        refusal_streaks=streaks,
        guardrail_holds=_guardrail_holds(state, seen, policy),
        reserved_backoff=reserved_backoff(state, seen, policy),
        refused_wakes=_refused_wakes(state, seen),
        slo_boosts=_slo_boosts(state, seen),
        service_time_ratios=state.service_time_ratios if ratios is None else ratios,
        quotas=state.quotas if seen.quotas is None else seen.quotas,
        commitments=state.commitments if seen.commitments is None else seen.commitments,
        spot_pools=_spot_pools(state, seen, policy),
        launch_records=_launch_records(state, seen, policy),
        **load,
    )


def _with_load(state: State, seen: Observation, unit: DemandUnit, policy: ControllerPolicy) -> dict[str, Any]:
    """Fields of the state that a unit of load changes."""
    ready = sum(1 for i in seen.fleet if i.role is Role.SERVING and i.state is InstanceState.READY)
    return {
        "last_unit": unit,
        "ready_history": (*state.ready_history, ready)[-READY_UNITS:],
        "error_budget": state.error_budget.after(unit.outcomes),
        "sizes": state.sizes if policy.pool is None else policy.pool.watch(state.sizes, unit.sizes),
    }


def _with_plan(state: State, seen: Observation, policy: ControllerPolicy) -> State:
    """The state with the plan, where the tick made one, and what it wants."""
    if seen.plan is None:
        return state
    counts = tuple(sorted((item.offering, item.count) for item in seen.plan.counts))
    now_desired = Desired(at=seen.now, counts=counts, capacity_rps=seen.plan.capacity_rps)
    cooldown_s = policy.cooldown_at(seen.now - state.first_at)
    recent = tuple(past for past in state.desired if past.at > seen.now - cooldown_s)
    return replace(state, plan=seen.plan, desired=(*recent, now_desired))


def _guardrail_holds(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[tuple[str, float], ...]:
    """The holds of offerings that a guardrail cut for a period."""
    holds = {name: until for name, until in state.guardrail_holds if until > seen.now}
    for fact in seen.facts:
        if isinstance(fact, LaunchRefused) and not fact.instances and fact.cause is RefusalCause.GUARDRAIL:
            holds[fact.offering] = seen.now + policy.period_s
    return tuple(sorted(holds.items()))


def _refused_wakes(state: State, seen: Observation) -> tuple[tuple[str, float], ...]:
    """Standbys that are left alone for a while because they could not be woken."""
    found = {name: until for name, until in state.refused_wakes if until > seen.now}
    for fact in seen.facts:
        if isinstance(fact, LaunchRefused):
            found |= dict.fromkeys(fact.instances, seen.now + RETRY_WAKE_S)
    return tuple(sorted(found.items()))


def _guardrail_notes(seen: Observation) -> tuple[Note, ...]:
    """Notes of what a guardrail has just refused: an operator's limit is an operator's to raise."""
    return tuple(
        Note(kind=NoteKind.GUARDRAIL, text=f"{fact.count} {fact.offering} refused: {fact.why}")
        for fact in seen.facts
        if isinstance(fact, LaunchRefused) and fact.cause is RefusalCause.GUARDRAIL
    )


def _slo_boosts(state: State, seen: Observation) -> tuple[SloBoost, ...]:
    """Boosts of the SLO monitor that are not over; none under a spending limit."""
    if seen.spending_limit is not SpendingLimit.NONE:
        return ()
    return tuple(boost for boost in state.slo_boosts if boost.until > seen.now)


def _spot_pools(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[SpotPool, ...]:
    if policy.breaker is None:
        return ()
    pools = note_interruptions(state.spot_pools, seen.facts, seen.fleet, seen.now, policy.breaker)
    names = (item.name for item in policy.offerings if item.market is Market.SPOT)
    return trusted_again(pools, names, seen.now, policy.breaker)


def _launch_records(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[LaunchRecord, ...]:
    if policy.launch_breaker is None:
        return ()
    return note_launches(state.launch_records, seen.facts, seen.fleet, seen.now, policy.launch_breaker)


def _breaker_notes(state: State, seen: Observation) -> tuple[Note, ...]:
    """Notes of open launch breakers, at each plan: what is wrong with the template is a person's to mend."""
    if seen.plan is None:
        return ()
    return tuple(
        Note(
            kind=NoteKind.LAUNCH_BREAKER,
            text=f"{record.offering}: {record.outcomes.count(False)} of its last {len(record.outcomes)} launches "
            f"never became ready ({record.why}); none is launched before {record.closes_at:.0f} s",
        )
        for record in state.launch_records
        if record.is_open(seen.now)
    )


def _still_requested(state: State, seen: Observation, policy: ControllerPolicy) -> tuple[Requested, ...]:
    """Launches that have not been waited for too long, with what has appeared and been refused of each.

    What is told again when an order is submitted again after a crash counts once.
    """
    if not state.requested:
        return ()
    there = Counter(instance.token for instance in seen.fleet)
    refused = Counter[str]()
    for fact in seen.facts:
        if isinstance(fact, LaunchRefused):  # a guardrail may cut an order, and AWS refuse some of the rest
            refused[fact.token] += fact.count
    withdrawn = Counter[str]()
    for fact in seen.facts:
        if isinstance(fact, LaunchWithdrawn):
            withdrawn[fact.token] += fact.count
    ordered = {item.token: item.offering for item in state.requested}
    others: dict[str, Counter[str]] = {}
    for instance in seen.fleet:
        if instance.offering != ordered.get(instance.token, instance.offering):
            others.setdefault(instance.token, Counter())[instance.offering] += 1
    return tuple(
        replace(
            item,
            seen=max(item.seen, there[item.token]),
            refused=max(item.refused, refused[item.token]),
            withdrawn=min(item.withdrawing, item.withdrawn + withdrawn[item.token]),
            others=tuple(sorted((Counter(dict(item.others)) | others.get(item.token, Counter())).items())),
        )
        for item in state.requested
        if item.at > seen.now - policy.request_timeout_s
    )


def _with_what_came(state: State, requested: tuple[Requested, ...]) -> tuple[Desired, ...]:
    """Desired counts, with what came of other offerings in the place of what was ordered, until the next plan."""
    if not any(item.others for item in requested):
        return state.desired
    before = {item.token: Counter(dict(item.others)) for item in state.requested}
    wanted = _desired_now(state)
    for item in requested:
        for name, count in (Counter(dict(item.others)) - before[item.token]).items():
            moved = min(count, wanted[item.offering])
            wanted[item.offering] -= moved
            wanted[name] += moved
    counts = tuple(sorted(item for item in wanted.items() if item[1] > 0))
    return (*state.desired[:-1], *(replace(last, counts=counts) for last in state.desired[-1:]))


def _desired_now(state: State) -> Counter[str]:
    return Counter(dict(state.desired[-1].counts)) if state.desired else Counter[str]()


def _launches(
    state: State,
    seen: Observation,
    policy: ControllerPolicy,
    limits: LaunchLimits,
    tokens: Tokens,
    *,
    ordered: list[Order],
) -> tuple[list[Order], list[Note]]:
    """Launch what the plan wants beyond what is there or on its way."""
    have = Counter(dict(running_counts(state, seen.fleet)))
    have.update({o.offering: o.count for o in ordered if isinstance(o, Launch)})
    orders: list[Order] = []
    notes: list[Note] = []
    for name, count in sorted(_desired_now(state).items()):
        missing = count - have[name]
        if missing <= 0:
            continue
        missing, cut = limits.allowed(name, missing)
        notes += cut
        if missing == 0:
            continue
        others = _equivalents(state, seen, policy, limits, name, missing)
        limits.reserve(name, missing)
        plan = state.plan
        reason = f"{count} wanted, {have[name]} there or on their way" + (f"; {plan.reason}" if plan else "")
        order = Launch(token=tokens.next(), reason=reason, offering=name, count=missing, equivalents=others)
        orders.append(order)
    return orders, notes


def _equivalents(
    state: State,
    seen: Observation,
    policy: ControllerPolicy,
    limits: LaunchLimits,
    name: str,
    count: int,
) -> tuple[str, ...]:
    """Offerings that AWS may launch as well where one is left out in a zone: none refused, none limited."""
    scarce = {pool.offering for pool in state.pool_backoff}
    if policy.equivalent_price_factor <= 0 or name not in scarce:
        return ()
    priced = policy.at_spot_prices(dict(seen.fleet.spot_usd_per_hour))
    planned = priced.offering(name)
    if planned is None:
        return ()
    found = equivalents(planned, (*priced.offerings, *priced.fallbacks), policy.equivalent_price_factor)
    return tuple(
        item.name for item in found if item.name not in scarce and limits.allowed(item.name, count) == (count, ())
    )


def _withdrawals(state: State, seen: Observation, tokens: Tokens) -> list[Order]:
    """Withdraw of launches that nothing was heard of what the plan wants no more, the newest first.

    Nothing is lost by that where a launch waits for AWS to take it, so it needs no patience. One that was taken
    comes, and is drained as all that is there.
    """
    asked = [item for item in state.requested if item.role is Role.SERVING and item.at < seen.now]
    if not any(item.withdrawable for item in asked):
        return []
    surplus = Counter(dict(running_counts(state, seen.fleet)))
    surplus.subtract(_desired_now(state))
    surplus.subtract({boost.offering: boost.count for boost in state.slo_boosts})
    for item in asked:
        surplus[item.offering] -= item.withdrawing - item.withdrawn
    orders: list[Order] = []
    for item in reversed(asked):
        count = min(item.withdrawable, surplus[item.offering])
        if count > 0:
            surplus[item.offering] -= count
            reason = f"{item.total} ordered {seen.now - item.at:.0f} s ago are not there, {count} too many by now"
            withdraw = Withdraw(
                token=tokens.next(), reason=reason, launch=item.token, offering=item.offering, count=count
            )
            orders.append(withdraw)
    return orders


def _pool_drains(
    state: State, seen: Observation, limits: LaunchLimits, tokens: Tokens, launches: list[Order]
) -> list[Order]:
    """Drain for a change of a pool within its budget, after the launches of this tick."""
    have = Counter(dict(running_counts(state, seen.fleet)))
    have.update({order.offering: order.count for order in launches if isinstance(order, Launch)})
    return drain_for_pool(
        seen.fleet,
        wanted=_desired_now(state),
        have=have,
        budget=limits.budget,
        barred=lambda name: limits.barred(name) is not None or not limits.has_quota(name),
        tokens=tokens,
    )


def _drains(
    state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens
) -> tuple[list[Order], list[Note]]:
    """Drain what no plan of the cool-down wanted and the last unit's load does not need (hysteresis).

    What carries more than the schedule allows is drained at once.
    """
    over_rps = _over_limit_rps(state, seen.fleet, policy)
    floor = _floor(state, policy, seen.fleet)
    there = sorted(seen.fleet.staying.items())
    unwanted = {name: count - floor[name] for name, count in there if count > floor[name]}
    if not unwanted:
        return [], []
    orders: list[Order] = []
    notes: list[Note] = []
    spare_rps = _spare_rps(state, seen.fleet.staying, policy)
    ready_rps = _spare_rps(state, seen.fleet.lasting, policy)
    ahead_rps = carried_rps(state, policy, seen.fleet.lasting) - (state.plan.capacity_rps if state.plan else 0.0)
    for name, too_many in unwanted.items():
        surplus = too_many
        instances = [i for i in seen.fleet if i.offering == name and i.role is Role.SERVING and i.stays]
        usable = usable_rps(state, policy, name)
        pending = sum(1 for i in instances if i.state is InstanceState.PENDING)
        if policy.keep_observed and usable > 0:
            idle = pending + math.floor(ready_rps / usable)  # what boots does not yet carry the load just seen
            surplus = min(surplus, math.floor(spare_rps / usable), idle)
        if policy.keep_planned and usable > 0:
            surplus = min(surplus, pending + max(0, math.floor(ahead_rps / usable + EXACT)))
        if over_rps > 0.0 and usable > 0:
            surplus = max(surplus, min(too_many, pending + math.ceil(over_rps / usable - EXACT)))
            over_rps -= max(0, surplus - pending) * usable
        if surplus <= 0:
            text = f"kept {too_many} {name} more than planned: the load needs them"
            notes.append(Note(kind=NoteKind.KEPT, text=text))
            continue
        ahead_rps -= max(0, surplus - pending) * usable
        spare_rps -= surplus * usable
        ready_rps -= max(0, surplus - pending) * usable
        cooldown_s = policy.cooldown_at(seen.now - state.first_at)
        plans = f"wanted by every plan of {cooldown_s:g} s" if cooldown_s > 0 else "wanted by the plan"
        reason = f"{len(instances)} there, {floor[name]} {plans}"
        ids = tuple(i.id for i in drained_first(instances, surplus, seen, policy))
        orders.append(Drain(token=tokens.next(), reason=reason, instances=ids))
    return orders, notes


def _floor(state: State, policy: ControllerPolicy, fleet: FleetView) -> Counter[str]:
    """Instances below which no drain may go: those of the cool-down's plans, and the SLO monitor's launches."""
    floor = _desired_now(state)
    if _over_limit_rps(state, fleet, policy) > 0.0:
        return floor
    for past in state.desired:
        for name, count in past.counts:
            floor[name] = max(floor[name], count)
    for boost in state.slo_boosts:  # plans count what the monitor launched; it only must not be drained at once
        floor[boost.offering] += boost.count
    return floor


def _over_limit_rps(state: State, fleet: FleetView, policy: ControllerPolicy) -> float:
    """What ready instances carry beyond what the schedule allows, requests/s; 0 without a limit."""
    if state.plan is None or state.plan.limit_rps is None:
        return 0.0
    return max(0.0, carried_rps(state, policy, fleet.ready) - state.plan.limit_rps - EXACT)


def _spare_rps(state: State, counts: Mapping[str, int], policy: ControllerPolicy) -> float:
    """Capacity of these beyond the last unit's largest 5 s rate."""
    seen_rps = state.last_unit.max_rps if state.last_unit else 0.0
    return max(0.0, carried_rps(state, policy, counts) - seen_rps)


def _warm_ups(state: State, seen: Observation, policy: ControllerPolicy, tokens: Tokens) -> list[Order]:
    """Warm Lambda for what may come beyond what is ready before the plan takes effect, or for an open gap."""
    if policy.overflow is None:
        return []
    provisioned = policy.provisioned_at(seen.now)
    if provisioned > seen.lambda_warm:
        reason = f"{plural(provisioned, 'environment')} provisioned in this hour"
        return [WarmLambda(token=tokens.next(), reason=reason, concurrency=provisioned)]
    if not policy.warm_lambda:
        return _pings(seen, policy, tokens)
    expected = 0.0
    ready = carried_rps(state, policy, seen.fleet.ready)
    if seen.forecast is not None and len(seen.forecast):
        units = range(min(policy.lead_units + 1, len(seen.forecast)))
        soon = max(seen.forecast.max_in(unit, WARM_QUANTILE) for unit in units)
        # what is ready beyond the load is no load: a surge is so much of what is served
        expected = max(soon - ready, policy.warm_share * min(soon, ready))
    if policy.warm_share > 0 and state.last_unit is not None:  # what is taken away is missed before the next plan
        expected = max(expected, state.last_unit.max_rps - ready)
    gap = max(expected, short_rps(state, seen.fleet, policy) if state.bridging else 0.0)
    cold_share = max(LEAST_COLD_SHARE, COLD_SHARE * (1.0 - policy.slo.target))
    wanted = environments_for(gap, policy.overflow.latency_s, cold_share, policy.overflow.concurrency)
    if wanted <= seen.lambda_warm:
        return []
    reason = f"Lambda may have to answer {gap:.1f} requests/s: {plural(wanted, 'environment')}"
    return [WarmLambda(token=tokens.next(), reason=reason, concurrency=wanted)]


def _pings(seen: Observation, policy: ControllerPolicy, tokens: Tokens) -> list[Order]:
    """A ping of one environment, at the first plan of each interval of the policy's."""
    if seen.plan is None or policy.ping_every_s <= 0 or seen.now % policy.ping_every_s >= policy.period_s:
        return []
    reason = f"one environment is pinged each {policy.ping_every_s:g} s"
    return [WarmLambda(token=tokens.next(), reason=reason, concurrency=1)]


def _remember(state: State, seen: Observation, orders: tuple[Order, ...]) -> State:
    """Launches just ordered are requested until they are seen."""
    asked = tuple(
        Requested(
            token=o.token,
            offering=o.offering,
            role=o.role,
            total=o.count,
            at=seen.now,
            reserved_in=o.reserved_in,
        )
        for o in orders
        if isinstance(o, Launch)
    )
    withdrawn = {o.launch: o.count for o in orders if isinstance(o, Withdraw)}
    known = (
        replace(item, withdrawing=item.withdrawing + withdrawn[item.token]) if item.token in withdrawn else item
        for item in state.requested
    )
    return replace(state, requested=(*known, *asked)) if asked or withdrawn else state
