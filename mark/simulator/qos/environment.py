"""Gymnasium environment of the scheduling problem: one step is one decision for a device that is free.

The observation is `mark.dispatch.qos_policy.features`, the action one of its numbers. The reward is minus what the
decision lost of quality 1 a query (`QosEpisode.decide`). `info` has `allowed`, the actions that may be taken, and
`now`, the clock in s: steps are of unlike length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, cast

import gymnasium
import numpy as np

from mark.dispatch.qos import Floats, QosPool, QosState
from mark.dispatch.qos_policy import Bools, action_choice, action_count, allowed_actions, feature_count, features
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos.episode import QosEpisode, QosQueries

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

    def __init__(self, pool: QosPool, draw: DrawQueries, kernel: VariantKernel) -> None:
        self.pool, self._draw, self._kernel = pool, draw, kernel
        self.observation_space = gymnasium.spaces.Box(0.0, np.inf, (feature_count(pool),), np.float64)
        self.action_space = cast("gymnasium.Space[int]", gymnasium.spaces.Discrete(action_count(pool)))
        self._episode: QosEpisode | None = None

    def reset(  # type: ignore[override]  # gymnasium's info is a dict of anything
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[Floats, QosInfo]:
        """Begin a stream. The same seed gives the same stream and the same noise."""
        super().reset(seed=seed, options=options)
        queries = self._draw(self.np_random)
        self._episode = QosEpisode(self.pool, queries, self._kernel, int(self.np_random.integers(2**31)))
        return self._observed(self._episode, self._episode.advance())

    def step(self, action: int) -> tuple[Floats, float, bool, bool, QosInfo]:  # type: ignore[override]  # as reset
        """Carry an action out and run on to the next decision."""
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("reset the environment before its first step")
        asks, lost = self._episode.decide(action_choice(int(action), self.pool))
        found, info = self._observed(self._episode, asks)
        return found, -lost, not asks, False, info

    def _observed(self, episode: QosEpisode, asks: bool) -> tuple[Floats, QosInfo]:
        if not asks:
            nothing = np.zeros(action_count(self.pool), np.bool_)
            return np.zeros(feature_count(self.pool)), QosInfo(allowed=nothing, now=episode.now, state=None)
        state = episode.state()
        info = QosInfo(allowed=allowed_actions(state, self.pool), now=episode.now, state=state)
        return features(state, self.pool), info
