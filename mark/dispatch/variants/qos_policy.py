"""The learned scheduler at serving time: a state as numbers, and one hidden layer that corrects the heuristic.

An action is to wait (0), or a variant with a batch size: 1 + variant x sizes + place of the size. Sizes that the
queue cannot fill are left out but for the smallest of them, as are batches whose time is unknown. The heuristic's
action has HEAD_START, so that weights of 0 are the heuristic. In a state beyond all that it was trained on, and
where it gives no number, the decision is the heuristic's. How the weights are learned:
`mark.simulator.qos.policy_gradient`.

`learned_pair` decides, here and compiled in the engine of a fleet; the other functions lend it their names for a
state and a pool. It loops over what is short: as expressions over arrays it takes four times as long to compile.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.variants.qos import (
    BINS,
    Floats,
    Ints,
    QosChoice,
    QosPool,
    QosState,
    QosTables,
    deadline_bins,
    heuristic_pair,
)

Bools = NDArray[np.bool_]

HIDDEN = 64
"""Neurons of the hidden layer, as in the paper."""
HEAD_START = 4.0
"""Score that the heuristic's action has beyond the network's: while it learns, 9 of 10 decisions are that."""
SLOW_S = 0.005
"""A decision that took longer is the heuristic's: a batch of one takes some 40 ms."""


class QosNetwork(NamedTuple):
    """Weights, and the states that they were learned from.

    Scores of the actions are tanh(x @ inner + inner_bias) @ outer + outer_bias; the heuristic's has
    HEAD_START more.
    """

    #: shape (features, HIDDEN)
    inner: Floats
    #: shape (HIDDEN,)
    inner_bias: Floats
    #: shape (HIDDEN, actions)
    outer: Floats
    #: shape (actions,)
    outer_bias: Floats
    #: shape (features,), the least and the most that each was
    least: Floats
    most: Floats


_NOTHING, _NOWHERE = np.zeros(0), np.zeros((0, 0))
UNTRAINED = QosNetwork(_NOWHERE, _NOTHING, _NOWHERE, _NOTHING, _NOTHING, _NOTHING)
"""No weights, in arrays of the same types: code that is compiled for a network takes it too."""


def network_text(network: QosNetwork) -> str:
    """The weights as text, for what is stored as JSON; `network_of` reads it."""
    numbers = np.concatenate([part.ravel() for part in network])
    return f"{network.least.size} {network.outer_bias.size} {base64.b64encode(numbers.tobytes()).decode()}"


def network_of(text: str) -> QosNetwork:
    """The weights of `network_text`."""
    inputs, actions, code = text.split()
    shapes = network_shapes(int(inputs), int(actions))
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(np.frombuffer(base64.b64decode(code)).copy(), ends[:-1])
    return QosNetwork(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def network_shapes(inputs: int, actions: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of the parts of a network."""
    return (inputs, HIDDEN), (HIDDEN,), (HIDDEN, actions), (actions,), (inputs,), (inputs,)


def feature_count(pool: QosPool) -> int:
    """Numbers that describe a state on this pool."""
    return BINS + len(pool.sizes) + 2 + len(pool.kinds) + pool.kind_of.size


def action_count(pool: QosPool) -> int:
    """Actions on this pool, waiting among them."""
    return 1 + len(pool.kappa) * len(pool.sizes)


def state_features(kind: int, left_s: Floats, rate_qps: float, rest_s: Floats, tables: QosTables) -> Floats:
    """The parts of a state as numbers of the order of 1. shape (feature_count,).

    The histogram and the queue length as logarithms, the queue as a share of each batch size up to 1, the rate
    over what the pool serves in the largest batches, the type of the device, and the rest of each device's batch.
    """
    sizes, kinds, queued, bins = tables.sizes.size, tables.share.size, left_s.size, deadline_bins(left_s)
    found = np.zeros(BINS + sizes + 2 + kinds + rest_s.size)
    for place in range(BINS):
        found[place] = math.log1p(bins[place]) / 2
    for place in range(sizes):
        found[BINS + place] = min(1.0, queued / tables.sizes[place])
    rest = BINS + sizes
    found[rest] = math.log1p(queued) / 4
    found[rest + 1] = 4 * rate_qps / tables.most_qps
    found[rest + 2 + kind] = 1.0
    for place in range(rest_s.size):
        found[rest + 2 + kinds + place] = rest_s[place]
    return found


def actions_allowed(kind: int, queued: int, tables: QosTables) -> Bools:
    """Actions that make sense for a device of this type, with so many waiting. shape (action_count,)."""
    variants, sizes = tables.throughput_qps.shape[1:]
    found = np.zeros(1 + variants * sizes, np.bool_)
    found[0] = tables.waits
    smaller = 0
    for place in range(sizes):
        if smaller >= queued:
            break
        for variant in range(variants):
            found[1 + variant * sizes + place] = tables.throughput_qps[kind, variant, place] > 0.0
        smaller = tables.sizes[place]
    return found


def action_pair(action: int, sizes: Ints) -> tuple[int, int]:
    """The batch and the variant of an action, of these batch sizes."""
    if action == 0:
        return 0, 0
    variant, place = divmod(action - 1, sizes.size)
    return int(sizes[place]), variant


def pair_action(batch: int, variant: int, queued: int, sizes: Ints) -> int:
    """The allowed action of a batch and a variant: its size is the smallest that takes as many."""
    if batch == 0:
        return 0
    taken, place = min(batch, queued, sizes[-1]), 0
    while sizes[place] < taken:
        place += 1
    return 1 + variant * sizes.size + place


def scores(found: Floats, network: QosNetwork) -> Floats:
    """Scores of all actions, higher is likelier. found: shape (..., features); returns shape (..., actions)."""
    hidden = np.tanh(found @ network.inner + network.inner_bias)
    return np.asarray(hidden @ network.outer + network.outer_bias)


def learned_pair(
    kind: int, left_s: Floats, rate_qps: float, rest_s: Floats, tables: QosTables, network: QosNetwork
) -> tuple[int, int, bool]:
    """Batch and variant of the highest score; the heuristic's, and False, where the network cannot tell."""
    batch, variant = heuristic_pair(kind, left_s, rate_qps, rest_s, tables)
    inputs = state_features(kind, left_s, rate_qps, rest_s, tables)
    for place in range(inputs.size):
        if not network.least[place] <= inputs[place] <= network.most[place]:
            return batch, variant, False
    found = scores(inputs, network)
    found[pair_action(batch, variant, left_s.size, tables.sizes)] += HEAD_START
    allowed = actions_allowed(kind, left_s.size, tables)
    best, is_sure = -1, True
    for action in range(allowed.size):
        if allowed[action]:
            is_sure = is_sure and not np.isnan(found[action])
            if best < 0 or found[action] > found[best]:
                best = action
    if best >= 0 and is_sure and np.isfinite(found[best]):
        batch, variant = action_pair(best, tables.sizes)
        return batch, variant, True
    return batch, variant, False


@dataclass
class LearnedScheduler:
    """The action of the highest score; the heuristic's choice where the network cannot tell, fails or is slow.

    clock: seconds that never go back; a replay hands in one that stands, so that its decisions depend on no
    machine. fallbacks: decisions that were the heuristic's.
    """

    network: QosNetwork
    clock: Callable[[], float]
    slow_s: float = SLOW_S
    fallbacks: int = field(default=0, init=False)

    def __call__(self, state: QosState, pool: QosPool) -> QosChoice:
        """Decide."""
        return self.decide(state, pool.tables)

    def decide(self, state: QosState, tables: QosTables) -> QosChoice:
        """Decide, on a pool of these tables."""
        began = self.clock()
        try:
            batch, variant, is_sure = learned_pair(*state, tables, self.network)
        except (ValueError, IndexError):  # weights of another pool's shape
            is_sure = False
        if not is_sure or self.clock() - began > self.slow_s:
            self.fallbacks += 1
            batch, variant = heuristic_pair(*state, tables)
        return QosChoice(batch, variant)
