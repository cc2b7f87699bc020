"""Streams of queries played whole by the learned scheduler, over the kernel of variants: what a training looks at.

Plain Python over arrays that the caller owns, compiled by `compiled.py`. All times are s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mark.dispatch.variants.qos import BIN_S, RATE_WINDOW_S, SOFT_S, QosTables, heuristic_pair, time_utility
from mark.dispatch.variants.qos_policy import (
    HEAD_START,
    Bools,
    QosNetwork,
    action_pair,
    actions_allowed,
    pair_action,
    scores,
    state_features,
)
from mark.dispatch.variants.slackfit import Shared
from mark.simulator.engine.kernel_tally import Floats, Ints
from mark.simulator.engine.kernel_variants import (
    ASK,
    ASKED,
    AT,
    DROPPED,
    QUEUED,
    Requests,
    VariantRules,
    Work,
    Workers,
)
from mark.simulator.engine.kernel_variants import run as run_on


class Stream(NamedTuple):
    """Inputs of the kernel of variants for a stream."""

    requests: Requests
    workers: Workers
    choices: Shared
    rules: VariantRules


class Played(NamedTuple):
    """Decisions of a stream, and the responses to them. shape (decisions, ...) each."""

    features: Floats
    allowed: Bools
    #: the heuristic's action, and the one that was taken
    usual: Ints
    action: Ints
    at_s: Floats
    #: responses up to the end of the decision, and before the next one
    ends: Ints
    #: shape (responses,): their quality, in the order of decisions; 0 for a query that left without an answer
    quality: Floats


def play(stream: Stream, work: Work, tables: QosTables, network: QosNetwork, noise: Floats, played: Played) -> int:
    """Play a stream to its end, by the highest sum of score and noise; returns the number of decisions.

    noise: shape (draws, actions), used in turn. Scores are those of `learned_pair`, in whatever state.
    """
    requests, workers, choices, rules = stream
    ends_s = np.zeros(workers.kind.size)
    made = responses = 0
    asks = run_on(requests, workers, choices, rules, work) == ASK
    while asks:
        device, now = work.counts[ASKED], work.clock[0]
        kind, left_s = workers.kind[device], time_left(requests, work)
        rate_qps, rest_s = recent_rate(requests, work), rest_times(ends_s, workers, work)
        batch, variant = heuristic_pair(kind, left_s, rate_qps, rest_s, tables)
        usual = pair_action(batch, variant, left_s.size, tables.sizes)
        found = state_features(kind, left_s, rate_qps, rest_s, tables)
        allowed = actions_allowed(kind, left_s.size, tables)
        wished = scores(found, network) + noise[made % noise.shape[0]]
        wished[usual] += HEAD_START
        action = usual
        for other in range(allowed.size):
            if allowed[other] and wished[other] > wished[action]:
                action = other
        batch, variant = action_pair(action, tables.sizes)
        taken, dropped = min(batch, left_s.size), work.counts[DROPPED]
        ends_s[device] = now + workers.latency_s[kind, variant, taken]
        played.features[made], played.allowed[made], played.at_s[made] = found, allowed, now
        played.usual[made], played.action[made] = usual, action
        work.choice[0], work.choice[1] = batch, variant
        asks = run_on(requests, workers, choices, rules, work) == ASK
        for place in range(taken):
            query = work.held[device, place]
            worth = time_utility(work.finish_s[query] - requests.deadline_s[query] + SOFT_S)
            played.quality[responses] = tables.kappa[work.variant[query]] * worth
            responses += 1
        responses += work.counts[DROPPED] - dropped
        played.ends[made] = responses
        made += 1
    return made


def time_left(requests: Requests, work: Work) -> Floats:
    """Time left to the deadline of each request that waits, the most urgent first. shape (queued,)."""
    left_s: Floats = np.sort(requests.deadline_s[work.heap[: work.counts[QUEUED]]]) - work.clock[0]
    return left_s


def recent_rate(requests: Requests, work: Work) -> float:
    """Arrivals in the last RATE_WINDOW_S, requests/s."""
    now = work.clock[0]
    first = np.searchsorted(requests.arrived_s, now - RATE_WINDOW_S)
    return float((work.counts[AT] - first) / min(RATE_WINDOW_S, max(BIN_S, now)))


def rest_times(ends_s: Floats, workers: Workers, work: Work) -> Floats:
    """Expected rest of each worker's batch, 0 where it is free: by type, rising within a type. shape (workers,).

    ends_s: expected ends. Workers of a type are one after the other.
    """
    found = np.zeros(ends_s.size)
    for worker in range(ends_s.size):
        rest_s = max(0.0, ends_s[worker] - work.clock[0]) if work.holds[worker] > 0 else 0.0
        place = worker
        while place > 0 and workers.kind[place - 1] == workers.kind[worker] and found[place - 1] > rest_s:
            found[place] = found[place - 1]
            place -= 1
        found[place] = rest_s
    return found
