"""The learned scheduler at serving time: a state as numbers, one hidden layer, and the heuristic where it fails.

An action is to wait (0), or a variant with a batch size: 1 + variant x sizes + place of the size. Sizes that the
queue cannot fill are left out but for the smallest of them, as are batches whose time is unknown. How the weights
are learned: `mark.simulator.qos.training`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mark.dispatch.qos import BINS, Floats, QosChoice, QosPool, QosState, heuristic_choice

Bools = NDArray[np.bool_]

HIDDEN = 64
"""Neurons of the hidden layer, as in the paper."""
SLOW_S = 0.005
"""A decision that took longer is the heuristic's: a batch of one takes some 40 ms."""


class QosNetwork(NamedTuple):
    """Weights. Scores of the actions are tanh(x @ inner + inner_bias) @ outer + outer_bias."""

    #: shape (features, HIDDEN)
    inner: Floats
    #: shape (HIDDEN,)
    inner_bias: Floats
    #: shape (HIDDEN, actions)
    outer: Floats
    #: shape (actions,)
    outer_bias: Floats


def feature_count(pool: QosPool) -> int:
    """Numbers that describe a state on this pool."""
    return BINS + len(pool.sizes) + 2 + 2 * len(pool.kinds)


def action_count(pool: QosPool) -> int:
    """Actions on this pool, waiting among them."""
    return 1 + len(pool.kappa) * len(pool.sizes)


def features(state: QosState, pool: QosPool) -> Floats:
    """The state as numbers of the order of 1. shape (feature_count,).

    The histogram and the queue length as logarithms, the queue as a share of each batch size up to 1, the rate
    over what the pool serves in the largest batches, the type of the device, and the share of each type that is
    free.
    """
    kinds = len(pool.kinds)
    found = np.zeros(feature_count(pool))
    found[:BINS] = np.log1p(state.bins) / 2
    rest = found[BINS:]
    rest[: len(pool.sizes)] = np.minimum(1.0, state.queued / np.array(pool.sizes))
    rest = rest[len(pool.sizes) :]
    rest[0] = np.log1p(state.queued) / 4
    rest[1] = 4 * state.rate_qps / pool.most_qps
    rest[2 + state.kind] = 1.0
    rest[2 + kinds :] = state.free
    return found


def allowed_actions(state: QosState, pool: QosPool) -> Bools:
    """Actions that make sense in the state. shape (action_count,)."""
    smaller = np.array((0, *pool.sizes[:-1]))
    fits = (smaller < state.queued) & (pool.throughput_qps[state.kind] > 0)
    return np.concatenate(([True], fits.ravel()))


def action_choice(action: int, pool: QosPool) -> QosChoice:
    """The batch and the variant of an action."""
    if action == 0:
        return QosChoice(0, 0)
    variant, place = divmod(action - 1, len(pool.sizes))
    return QosChoice(pool.sizes[place], variant)


def choice_action(choice: QosChoice, state: QosState, pool: QosPool) -> int:
    """The allowed action that does the same: its size is the smallest that takes as many."""
    if choice.batch == 0:
        return 0
    taken = min(choice.batch, state.queued)
    return 1 + choice.variant * len(pool.sizes) + int(np.searchsorted(pool.sizes, taken))


def scores(found: Floats, network: QosNetwork) -> Floats:
    """Scores of all actions, higher is likelier. found: shape (..., features); returns shape (..., actions)."""
    hidden = np.tanh(found @ network.inner + network.inner_bias)
    return np.asarray(hidden @ network.outer + network.outer_bias)


@dataclass
class LearnedScheduler:
    """The action of the highest score; the heuristic's choice where the network fails or is slow.

    clock: seconds that never go back; a replay hands in one that stands, so that its decisions depend on no
    machine. fallbacks: decisions that were the heuristic's.
    """

    network: QosNetwork
    clock: Callable[[], float]
    slow_s: float = SLOW_S
    fallbacks: int = field(default=0, init=False)

    def __call__(self, state: QosState, pool: QosPool) -> QosChoice:
        """Decide."""
        began = self.clock()
        try:
            found = scores(features(state, pool), self.network)
            found = np.where(allowed_actions(state, pool), found, -np.inf)
        except ValueError:  # weights of another pool's shape
            return self._fall_back(state, pool)
        best = int(np.argmax(found))
        if not np.isfinite(found[best]) or self.clock() - began > self.slow_s:
            return self._fall_back(state, pool)
        return action_choice(best, pool)

    def _fall_back(self, state: QosState, pool: QosPool) -> QosChoice:
        self.fallbacks += 1
        return heuristic_choice(state, pool)
