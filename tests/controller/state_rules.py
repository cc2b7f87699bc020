"""Invariants of a controller's state after every tick."""

from __future__ import annotations

from mark.controller.state import State


def check_state(state: State) -> None:
    """Assert what holds after every tick, whatever was seen."""
    keys: tuple[list[tuple[str, ...]], ...] = (
        [(name,) for name, _ in state.capacity_backoff],
        [(name,) for name, _ in state.guardrail_holds],
        [(name,) for name, _ in state.refused_wakes],
        [(name,) for name, _ in state.service_time_ratios],
        [(pool.offering,) for pool in state.spot_pools],
        [(pool.offering, pool.zone) for pool in state.pool_backoff],
        [(pool.offering, pool.zone) for pool in state.reserved_backoff],
        [(streak.offering, streak.zone) for streak in state.refusal_streaks],
        [(record.offering,) for record in state.launch_records],
    )
    for names in keys:
        assert names == sorted(set(names)), f"not sorted, or one offering twice: {names}"
    tokens = [item.token for item in state.requested]
    assert len(tokens) == len(set(tokens)), f"one launch is requested twice: {tokens}"
    assert all(item.count > 0 for item in state.requested), "a launch that has arrived is still requested"
    assert len(state.active_standbys) == len(set(state.active_standbys)), "one standby is woken twice"
    assert state.bridging or not state.active_standbys, "standbys are awake and nothing is bridged"
    assert (state.plan is None) == (not state.desired), "a plan without what it wanted, or the other way round"
    times = [past.at for past in state.desired]
    assert times == sorted(times), "plans are out of order"
    assert all(count >= 0 for past in state.desired for _, count in past.counts), "a negative count"
    assert all(boost.count > 0 for boost in state.slo_boosts), "a boost of no instances"
