"""Training of a quality-aware scheduler: a gradient, what loses less becomes likelier, the best is kept."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from mark.dispatch.variants.qos_policy import HIDDEN, QosNetwork
from mark.simulator.qos import policy_gradient
from mark.simulator.qos.checkpoint import Progress
from mark.simulator.qos.policy_gradient import (
    Practice,
    _chances,
    _chosen,
    _gradient,
    _Played,
    train_further,
)

FEATURES, ACTIONS = 3, 4


def network(seed: int) -> QosNetwork:
    rng = np.random.default_rng(seed)
    shapes = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, ACTIONS), (ACTIONS,), (FEATURES,), (FEATURES,))
    return QosNetwork(*(rng.normal(0.0, 0.3, shape) for shape in shapes))


def played(seed: int, decisions: int = 40, better: int | None = None) -> _Played:
    """Decisions at random; the action `better` loses less than the others."""
    rng = np.random.default_rng(seed)
    allowed = rng.random((decisions, ACTIONS)) < 0.7
    allowed[:, 0] = allowed[:, 2] = True
    action = (allowed * rng.random(allowed.shape)).argmax(axis=1)
    return _Played(
        features=rng.normal(size=(decisions, FEATURES)),
        allowed=allowed,
        usual=np.zeros(decisions, np.int64),
        action=action,
        lost=np.where(action == better, 0.1, 1.0),
        at_s=np.arange(decisions) * 1000.0,  # none counts to one before it
    )


@pytest.mark.parametrize("entropy", [0.0, 0.2])
def test_the_gradient_is_that_of_finite_differences(entropy: float) -> None:
    weights, some = network(1), played(2)
    weight = np.random.default_rng(3).normal(size=some.action.size)

    def value(at: QosNetwork) -> float:
        chances = _chances(at, some)
        picked = chances[np.arange(weight.size), some.action]
        logs = np.log(np.maximum(chances, 1e-12))
        return float((weight * np.log(picked)).sum() - entropy * (chances * logs).sum(axis=1).mean())

    found, step = _gradient(weights, some, weight, entropy), 1e-6
    for name in QosNetwork._fields:
        part = getattr(weights, name)
        for place in list(np.ndindex(part.shape))[:: max(1, part.size // 7)]:
            up, down = part.copy(), part.copy()
            up[place] += step
            down[place] -= step
            slope = (value(weights._replace(**{name: up})) - value(weights._replace(**{name: down}))) / (2 * step)
            assert getattr(found, name)[place] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def start(weights: QosNetwork, **differs: object) -> Progress:
    zeros = QosNetwork(*(np.zeros_like(part) for part in weights))
    return Progress(weights, zeros, zeros, 0, 0, (), weights, np.inf)._replace(**differs)


def test_what_loses_less_becomes_likelier(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = itertools.count()
    practice = SimpleNamespace(play=lambda *_: played(next(turns), decisions=300, better=2))
    monkeypatch.setattr(policy_gradient, "_chosen", lambda _practice, progress, _seed: progress)
    progress, judged = start(network(1)), played(99)
    before = _chances(progress.network, judged)[:, 2].mean()
    for _ in range(40):
        progress = train_further(cast("Practice", practice), progress, 40, 5)
    assert _chances(progress.network, judged)[:, 2].mean() > 5 * before


@pytest.mark.parametrize(("lost", "keeps_new"), [(0.5, True), (2.0, False)])
def test_the_weights_that_lose_less_are_kept(lost: float, keeps_new: bool) -> None:
    practice = SimpleNamespace(play=lambda *_: played(1)._replace(lost=np.array([lost])))
    old, new = network(1), network(2)
    before = start(new, best=old, best_lost=policy_gradient.CHOOSE_STREAMS * 1.0)
    found = _chosen(cast("Practice", practice), before, 0)
    assert (found.best is new) == keeps_new
    assert found.best_lost == pytest.approx(policy_gradient.CHOOSE_STREAMS * min(lost, 1.0))
