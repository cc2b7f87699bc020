"""Policy gradient with a baseline, in numpy: one hidden layer learns which batch and model to take.

The network first imitates the heuristic, then each iteration plays streams with actions drawn from its scores and
moves towards those that lost less than expected. What a decision loses is counted to its future, fading with
time (`FADE_S`), because a batch delays those that follow it for seconds. What was expected is a linear fit on the
state's numbers and their squares. Of the weights on the way, those count that lose least on streams put aside,
which are drawn from the same days: nothing is learned from the judged ones.

An iteration's decisions are gone over several times, and a probability may change by RATIO in it: the clipped
ratio of proximal policy optimisation. The paper names a policy gradient with a baseline.

R. J. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992;
J. Schulman et al., "Proximal policy optimization algorithms", 2017, equation 7; D. P. Kingma, J. Ba, "Adam", 2015.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mark.dispatch.qos import Floats, Ints, QosState, heuristic_choice
from mark.dispatch.qos_policy import (
    HIDDEN,
    Bools,
    QosNetwork,
    action_count,
    choice_action,
    feature_count,
    scores,
)
from mark.simulator.rng import stream

if TYPE_CHECKING:  # gymnasium is needed to train, not to read what was learned
    from mark.simulator.qos.environment import QosEnvironment

IMITATION_STREAMS, IMITATION_STEPS, IMITATION_RATE = 4, 600, 3e-3
IMITATION_ENTROPY = 0.1
"""Keeps other actions than the heuristic's possible: one that is never drawn is never learned."""
STREAMS = 4
"""Streams that are played in an iteration."""
FADE_S = 8.0
"""Time after which a loss counts 1/e for a decision before it: near capacity a queue takes seconds to go."""
RATE, RATE_END = 2e-3, 5e-4
"""Step of Adam at the first and the last iteration."""
ENTROPY = 0.003
BATCH, PASSES, RATIO = 1024, 3, 0.2
"""Decisions a step, passes over an iteration's decisions, and by how much a probability may change in it."""
ADAM_FIRST, ADAM_SECOND, ADAM_LEAST = 0.9, 0.999, 1e-8
RIDGE = 1e-3
CHOOSE_EACH, CHOOSE_STREAMS = 5, 6
"""Iterations between two choices of the best weights, and streams that they are chosen by, always the same."""


class Progress(NamedTuple):
    """A training as it stands: weights, Adam's two moments of them, steps, and iterations that are done."""

    network: QosNetwork
    first: QosNetwork
    second: QosNetwork
    steps: int
    iterations: int
    #: mean loss a decision of each iteration, while it explored
    lost: tuple[float, ...]
    #: weights that lost least on the streams to choose by, and what they lost there
    best: QosNetwork
    best_lost: float


class _Played(NamedTuple):
    """Decisions of an episode. shape (decisions, ...) each."""

    features: Floats
    allowed: Bools
    action: Ints
    lost: Floats
    at_s: Floats


def start_training(environment: QosEnvironment, seed: int) -> Progress:
    """A network that imitates the heuristic."""
    pool = environment.pool
    rng = stream(seed, "qos weights")
    inputs, actions = feature_count(pool), action_count(pool)
    network = QosNetwork(
        inner=rng.normal(0.0, inputs**-0.5, (inputs, HIDDEN)),
        inner_bias=np.zeros(HIDDEN),
        outer=rng.normal(0.0, 0.1 * HIDDEN**-0.5, (HIDDEN, actions)),
        outer_bias=np.zeros(actions),
    )
    zeros = QosNetwork(*(np.zeros_like(part) for part in network))
    progress = Progress(network, zeros, zeros, 0, 0, (), network, np.inf)

    def imitate(state: QosState, _found: Floats, _allowed: Bools) -> int:
        return choice_action(heuristic_choice(state, pool), state, pool)

    played = _joined([_play(environment, imitate, rng) for _ in range(IMITATION_STREAMS)])
    for _ in range(IMITATION_STEPS):
        some = rng.integers(played.action.size, size=BATCH)
        weight = np.full(BATCH, 1 / BATCH)
        gradient = _gradient(progress.network, _taken(played, some), weight, IMITATION_ENTROPY)
        progress = _stepped(progress, gradient, IMITATION_RATE)
    return _chosen(environment, progress._replace(first=zeros, second=zeros, steps=0), seed)


def train_further(environment: QosEnvironment, progress: Progress, iterations: int, seed: int) -> Progress:
    """One iteration of `iterations` in all. The same progress and seed give the same result."""
    rng = stream(seed, f"qos iteration {progress.iterations}")
    episodes = [_play(environment, _drawing(progress.network, rng), rng) for _ in range(STREAMS)]
    played = _joined(episodes)
    future = np.concatenate([_future_loss(episode) for episode in episodes])
    gained = _expected(played.features, future) - future
    gained = (gained - gained.mean()) / (gained.std() + 1e-9)
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
        return _chosen(environment, progress, seed)
    return progress


def _chosen(environment: QosEnvironment, progress: Progress, seed: int) -> Progress:
    """Keep the present weights as the best where they lose less than all before, without exploring."""
    network = progress.network

    def surest(_state: QosState, found: Floats, allowed: Bools) -> int:
        return int(np.argmax(np.where(allowed, scores(found, network), -np.inf)))

    rng = stream(seed, "qos choice")
    lost = sum(float(_play(environment, surest, rng).lost.sum()) for _ in range(CHOOSE_STREAMS))
    return progress._replace(best=network, best_lost=lost) if lost < progress.best_lost else progress


def _drawing(network: QosNetwork, rng: np.random.Generator) -> Callable[[QosState, Floats, Bools], int]:
    """A player that draws actions by their scores."""

    def draw(_state: QosState, found: Floats, allowed: Bools) -> int:
        # The largest of scores with Gumbel noise is a draw from their softmax.
        noisy = scores(found, network) + rng.gumbel(size=allowed.size)
        return int(np.argmax(np.where(allowed, noisy, -np.inf)))

    return draw


def _play(
    environment: QosEnvironment,
    player: Callable[[QosState, Floats, Bools], int],
    rng: np.random.Generator,
) -> _Played:
    found, info = environment.reset(seed=int(rng.integers(2**31)))
    seen: list[Floats] = []
    allowed: list[Bools] = []
    actions: list[int] = []
    lost: list[float] = []
    at_s: list[float] = []
    while (state := info["state"]) is not None:
        action = player(state, found, info["allowed"])
        seen.append(found)
        allowed.append(info["allowed"])
        actions.append(action)
        at_s.append(info["now"])
        found, reward, _, _, info = environment.step(action)
        lost.append(-reward)
    return _Played(np.array(seen), np.array(allowed), np.array(actions), np.array(lost), np.array(at_s))


def _joined(episodes: list[_Played]) -> _Played:
    return _Played(
        features=np.concatenate([one.features for one in episodes]),
        allowed=np.concatenate([one.allowed for one in episodes]),
        action=np.concatenate([one.action for one in episodes]),
        lost=np.concatenate([one.lost for one in episodes]),
        at_s=np.concatenate([one.at_s for one in episodes]),
    )


def _taken(played: _Played, some: Ints) -> _Played:
    return _Played(
        features=played.features[some],
        allowed=played.allowed[some],
        action=played.action[some],
        lost=played.lost[some],
        at_s=played.at_s[some],
    )


def _future_loss(played: _Played) -> Floats:
    """Loss of each decision and of those after it, fading with the time between. shape (decisions,)."""
    fade = np.exp(-np.diff(played.at_s) / FADE_S)
    future = played.lost.copy()
    for place in range(future.size - 2, -1, -1):
        future[place] += fade[place] * future[place + 1]
    return future


def _expected(found: Floats, future: Floats) -> Floats:
    """Baseline: a ridge fit of the loss on the features and their squares. shape (decisions,)."""
    inputs = np.concatenate((np.ones((len(found), 1)), found, found**2), axis=1)
    normal = inputs.T @ inputs + RIDGE * len(found) * np.eye(inputs.shape[1])
    return np.asarray(inputs @ np.linalg.solve(normal, inputs.T @ future))


def _chances(network: QosNetwork, played: _Played) -> Floats:
    """Probabilities of the actions. shape (decisions, actions)."""
    return _softmax(scores(played.features, network), played.allowed)


def _softmax(found: Floats, allowed: Bools) -> Floats:
    found = np.where(allowed, found, -np.inf)
    powers = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _gradient(network: QosNetwork, played: _Played, weight: Floats, entropy: float) -> QosNetwork:
    """Gradient of sum(weight x log probability) + entropy x mean entropy, by the weights."""
    hidden = np.tanh(played.features @ network.inner + network.inner_bias)
    chances = _softmax(hidden @ network.outer + network.outer_bias, played.allowed)
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
