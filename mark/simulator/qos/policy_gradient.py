"""Policy gradient with a baseline, in numpy: one hidden layer learns where to leave the heuristic.

The network begins as the heuristic (`qos_policy.HEAD_START`). Each iteration plays streams with actions drawn from
its scores and moves towards those that lost less than expected. What a decision loses is counted to its future,
fading with time (`FADE_S`), because a batch delays those that follow it for seconds. What was expected is what
the heuristic loses of the same stream from the same instant on, and a linear fit of the rest on the state's
numbers and their squares: most of a loss is the stream's. Of the weights on the way, those count that lose least
on streams put aside, which are drawn from the same days: nothing is learned from the judged ones.

An iteration's decisions are gone over several times, and a probability may change by RATIO in it: the clipped
ratio of proximal policy optimisation. The paper names a policy gradient with a baseline.

R. J. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992;
J. Schulman et al., "Proximal policy optimization algorithms", 2017, equation 7; D. P. Kingma, J. Ba, "Adam", 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mark.dispatch.variants.qos import Floats, Ints, QosPool
from mark.dispatch.variants.qos_policy import (
    HEAD_START,
    HIDDEN,
    Bools,
    QosNetwork,
    action_count,
    feature_count,
    scores,
)
from mark.simulator.engine.compiled import VariantKernel
from mark.simulator.qos.checkpoint import Progress
from mark.simulator.qos.episode import PAPER, Conditions, QosEpisode, QosQueries
from mark.simulator.rng import stream

STREAMS = 8
"""Streams that are played in an iteration."""
FADE_S = 4.0
"""Time after which a loss counts 1/e for a decision before it: near capacity a queue takes seconds to go."""
WINDOW = 1000
"""Responses whose mean quality is the paper's reward."""
NOISES = 1 << 12
RATE, RATE_END = 5e-4, 2e-4
"""Step of Adam at the first and the last iteration."""
ENTROPY = 0.003
BATCH, PASSES, RATIO = 1024, 3, 0.2
"""Decisions a step, passes over an iteration's decisions, and by how much a probability may change in it."""
ADAM_FIRST, ADAM_SECOND, ADAM_LEAST = 0.9, 0.999, 1e-8
RIDGE = 1e-3
CHOOSE_EACH, CHOOSE_STREAMS = 5, 12
"""Iterations between two choices of the best weights, and streams that they are chosen by, always the same."""


@dataclass(frozen=True, kw_only=True)
class Practice:
    """Streams that `draw` gives, on one pool.

    windowed: a decision's reward is the paper's, the mean quality of the last WINDOW responses to decisions so
    far, and not minus what it loses itself.
    """

    pool: QosPool
    draw: Callable[[np.random.Generator], QosQueries]
    kernel: VariantKernel
    conditions: Conditions = PAPER
    windowed: bool = False

    def play(self, network: QosNetwork, seed: int, noise: Floats | None = None) -> _Played:
        """Play a stream: the same seed gives the same queries and times. noise: as of `QosEpisode.play`."""
        rng = np.random.default_rng(seed)
        queries, batches = self.draw(rng), int(rng.integers(2**31))
        episode = QosEpisode(self.pool, queries, self.kernel, batches, self.conditions)
        played = episode.play(network, np.zeros((1, action_count(self.pool))) if noise is None else noise)
        ends, sums = played.ends, np.append(0.0, np.cumsum(played.quality))
        if self.windowed:
            begins = np.maximum(0, ends - WINDOW)
            lost = 1 - (sums[ends] - sums[begins]) / np.maximum(1, ends - begins)
        else:
            lost = np.diff(ends - sums[ends], prepend=0.0)
        return _Played(played.features, played.allowed, played.usual, played.action, lost, played.at_s)


class _Played(NamedTuple):
    """Decisions of an episode. shape (decisions, ...) each."""

    features: Floats
    allowed: Bools
    #: the heuristic's, and the one that was taken
    usual: Ints
    action: Ints
    lost: Floats
    at_s: Floats


def start_training(practice: Practice, seed: int) -> Progress:
    """A network that is the heuristic."""
    rng = stream(seed, "qos weights")
    inputs, actions = feature_count(practice.pool), action_count(practice.pool)
    network = QosNetwork(
        inner=rng.normal(0.0, inputs**-0.5, (inputs, HIDDEN)),
        inner_bias=np.zeros(HIDDEN),
        outer=np.zeros((HIDDEN, actions)),
        outer_bias=np.zeros(actions),
        least=np.full(inputs, np.inf),
        most=np.full(inputs, -np.inf),
    )
    zeros = QosNetwork(*(np.zeros_like(part) for part in network))
    return _chosen(practice, Progress(network, zeros, zeros, 0, 0, (), network, np.inf), seed)


def train_further(practice: Practice, progress: Progress, iterations: int, seed: int) -> Progress:
    """One iteration of `iterations` in all. The same progress and seed give the same result."""
    rng = stream(seed, f"qos iteration {progress.iterations}")
    streams = rng.integers(2**31, size=STREAMS)
    network = progress.network
    # the largest of scores with Gumbel noise is a draw from their softmax
    noise = rng.gumbel(size=(STREAMS, NOISES, network.outer_bias.size))
    episodes = [practice.play(network, int(one), own) for one, own in zip(streams, noise, strict=True)]
    heuristic = network._replace(outer=np.zeros_like(network.outer), outer_bias=np.zeros_like(network.outer_bias))
    usual = [practice.play(heuristic, int(one)) for one in streams]
    played = _joined(episodes)
    least = np.minimum(progress.network.least, played.features.min(axis=0))
    most = np.maximum(progress.network.most, played.features.max(axis=0))
    progress = progress._replace(network=network._replace(least=least, most=most))
    future = np.concatenate([_more_lost(*both) for both in zip(episodes, usual, strict=True)])
    gained = _expected(played.features, future) - future
    # streams of all levels count alike: losses of an overload would drown the others
    parts = np.split(gained, np.cumsum([one.action.size for one in episodes])[:-1])
    gained = np.concatenate([(part - part.mean()) / (part.std() + 1e-9) for part in parts])
    before = _chances(progress.network, played)[np.arange(future.size), played.action]
    done = progress.iterations / max(1, iterations - 1)
    rate = RATE + (RATE_END - RATE) * done
    for _ in range(PASSES):
        order = rng.permutation(future.size)
        for some in np.array_split(order, max(1, future.size // BATCH)):
            part = _taken(played, some)
            chance = _chances(progress.network, part)[np.arange(some.size), part.action]
            ratio = chance / before[some]
            # A probability that has moved far enough in its direction is left where it is.
            moves = np.where(gained[some] > 0, ratio < 1 + RATIO, ratio > 1 - RATIO)
            weight = gained[some] * ratio * moves / some.size
            progress = _stepped(progress, _gradient(progress.network, part, weight, ENTROPY), rate)
    lost = (*progress.lost, float(played.lost.mean()))
    progress = progress._replace(iterations=progress.iterations + 1, lost=lost)
    if progress.iterations % CHOOSE_EACH == 0 or progress.iterations == iterations:
        return _chosen(practice, progress, seed)
    return progress


def _chosen(practice: Practice, progress: Progress, seed: int) -> Progress:
    """Keep the present weights as the best where they lose less than all before, without exploring."""
    streams = stream(seed, "qos choice").integers(2**31, size=CHOOSE_STREAMS)
    lost = sum(float(practice.play(progress.network, int(one)).lost.sum()) for one in streams)
    return progress._replace(best=progress.network, best_lost=lost) if lost < progress.best_lost else progress


def _scores(found: Floats, usual: Ints, network: QosNetwork) -> Floats:
    """Scores of all actions. found: shape (..., features); usual: shape (...), the heuristic's actions."""
    actions = np.arange(network.outer_bias.size)
    return np.asarray(scores(found, network) + HEAD_START * (actions == usual[..., None]))


def _joined(episodes: list[_Played]) -> _Played:
    return _Played._make(np.concatenate(parts) for parts in zip(*episodes, strict=True))


def _taken(played: _Played, some: Ints) -> _Played:
    return _Played._make(part[some] for part in played)


def _future_loss(played: _Played) -> Floats:
    """Loss of each decision and of those after it, fading with the time between. shape (decisions,)."""
    fade = np.exp(-np.diff(played.at_s) / FADE_S)
    future = played.lost.copy()
    for place in range(future.size - 2, -1, -1):
        future[place] += fade[place] * future[place + 1]
    return future


def _more_lost(played: _Played, usual: _Played) -> Floats:
    """Loss from each decision on beyond what the heuristic loses of the stream then. shape (decisions,)."""
    future, at_s = np.append(_future_loss(usual), 0.0), np.append(usual.at_s, np.inf)
    following = np.searchsorted(usual.at_s, played.at_s)
    faded = future[following] * np.exp((played.at_s - at_s[following]) / FADE_S)
    return np.asarray(_future_loss(played) - faded)


def _expected(found: Floats, future: Floats) -> Floats:
    """Baseline: a ridge fit of the loss on the features and their squares. shape (decisions,)."""
    inputs = np.concatenate((np.ones((len(found), 1)), found, found**2), axis=1)
    normal = inputs.T @ inputs + RIDGE * len(found) * np.eye(inputs.shape[1])
    return np.asarray(inputs @ np.linalg.solve(normal, inputs.T @ future))


def _chances(network: QosNetwork, played: _Played) -> Floats:
    """Probabilities of the actions. shape (decisions, actions)."""
    return _softmax(_scores(played.features, played.usual, network), played.allowed)


def _softmax(found: Floats, allowed: Bools) -> Floats:
    found = np.where(allowed, found, -np.inf)
    powers = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _gradient(network: QosNetwork, played: _Played, weight: Floats, entropy: float) -> QosNetwork:
    """Gradient of sum(weight x log probability) + entropy x mean entropy, by the weights."""
    hidden = np.tanh(played.features @ network.inner + network.inner_bias)
    chances = _chances(network, played)
    by_score = -chances * weight[:, None]
    by_score[np.arange(weight.size), played.action] += weight
    logs = np.log(np.maximum(chances, 1e-12))
    mean = (chances * logs).sum(axis=1, keepdims=True)
    by_score -= entropy / weight.size * chances * (logs - mean)
    by_hidden = (by_score @ network.outer.T) * (1 - hidden**2)
    return QosNetwork(
        inner=played.features.T @ by_hidden,
        inner_bias=by_hidden.sum(axis=0),
        outer=hidden.T @ by_score,
        outer_bias=by_score.sum(axis=0),
        least=np.zeros_like(network.least),  # facts, which no step changes
        most=np.zeros_like(network.most),
    )


def _stepped(progress: Progress, gradient: QosNetwork, rate: float) -> Progress:
    """One step of Adam upwards."""
    steps = progress.steps + 1
    first = [ADAM_FIRST * m + (1 - ADAM_FIRST) * g for m, g in zip(progress.first, gradient, strict=True)]
    second = [ADAM_SECOND * v + (1 - ADAM_SECOND) * g * g for v, g in zip(progress.second, gradient, strict=True)]
    scale = rate * (1 - ADAM_SECOND**steps) ** 0.5 / (1 - ADAM_FIRST**steps)
    network = [
        w + scale * m / (np.sqrt(v) + ADAM_LEAST) for w, m, v in zip(progress.network, first, second, strict=True)
    ]
    return progress._replace(
        network=QosNetwork(*network), first=QosNetwork(*first), second=QosNetwork(*second), steps=steps
    )
