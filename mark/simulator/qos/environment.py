"""Gymnasium environment of the scheduling problem: one step is one decision for a device that is free.

The observation is `mark.dispatch.qos_policy.features`, the action one of its numbers. The reward is minus what the
decision lost of quality 1 a query. `info` has `allowed`, a mask of the actions that make
sense, and `now`, the clock in s: steps are of unlike length. An action outside of the mask, from a trainer that
knows no masks, is taken as the nearest within.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, cast

import gymnasium
import numpy as np

from mark.dispatch.qos import Floats, QosPool, QosState
from mark.dispatch.qos_policy import Bools, action_choice, action_count, allowed_actions, feature_count, features
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos.episode import PAPER, Conditions, QosEpisode, QosQueries

DrawQueries = Callable[[np.random.Generator], QosQueries]


class QosInfo(TypedDict):
    """Facts beside an observation."""

    #: shape (actions,)
    allowed: Bools
    now: float
    #: None once the stream has ended
    state: QosState | None


class QosEnvironment(gymnasium.Env[Floats, int]):
    """Streams that `draw` gives, one an episode, on one pool."""

    def __init__(
        self, pool: QosPool, draw: DrawQueries, kernel: VariantKernel, conditions: Conditions = PAPER
    ) -> None:
        self.pool, self._draw, self._kernel, self._conditions = pool, draw, kernel, conditions
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, (feature_count(pool),), np.float64)
        self.action_space = cast("gymnasium.Space[int]", gymnasium.spaces.Discrete(action_count(pool)))
        self._episode: QosEpisode | None = None

    def reset(  # type: ignore[override]  # gymnasium's info is a dict of anything
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Floats, QosInfo]:
        """Begin a stream. The same seed gives the same stream and the same noise."""
        super().reset(seed=seed, options=options)
        queries = self._draw(self.np_random)
        seed_of_noise = int(self.np_random.integers(2**31))
        self._episode = QosEpisode(self.pool, queries, self._kernel, seed_of_noise, self._conditions)
        return self._observed(self._episode, self._episode.advance())

    def step(self, action: int) -> tuple[Floats, float, bool, bool, QosInfo]:  # type: ignore[override]  # as reset
        """Carry an action out and run on to the next decision."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("reset the environment before its first step")
        allowed = allowed_actions(self._episode.state(), self.pool)
        taken = nearest_allowed(int(action), allowed, self.pool)
        asks, quality = self._episode.decide(action_choice(taken, self.pool))
        found, info = self._observed(self._episode, asks)
        return found, float((quality - 1).sum()), not asks, False, info

    def _observed(self, episode: QosEpisode, asks: bool) -> tuple[Floats, QosInfo]:
        if not asks:
            nothing = np.zeros(action_count(self.pool), np.bool_)
            return np.zeros(feature_count(self.pool)), QosInfo(allowed=nothing, now=episode.now, state=None)
        state = episode.state()
        info = QosInfo(allowed=allowed_actions(state, self.pool), now=episode.now, state=state)
        return features(state, self.pool), info


def nearest_allowed(action: int, allowed: Bools, pool: QosPool) -> int:
    """The action, else the same variant's allowed one of the next smaller batch, the next larger, or to wait."""
    if allowed[action]:
        return action
    first = 1 + (action - 1) // len(pool.sizes) * len(pool.sizes)
    of_variant = first + np.flatnonzero(allowed[first : first + len(pool.sizes)])
    smaller = of_variant[of_variant < action]
    nearest = smaller[-1:] if smaller.size else of_variant[:1]
    return int(nearest[0]) if nearest.size else 0
