"""Rivals of Kairos+ in the search for a pool: at random, genetic, annealing, Bayesian optimisation.

They have the prunings of Kairos+ (`mark.planner.kairos.pool_search`) and draw what to measure. Where one makes up
a pool that is no candidate, it takes the candidate nearest to it in counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np

from mark.domain.errors import Misconfigured
from mark.planner.kairos.pool_search import PoolSearch, Proposals, best_bounds

POPULATION = 8
"""Measured pools from which the genetic algorithm breeds, and how many it draws first."""
MUTATION = 0.3
"""Chance of each count of a child to change by one."""
COOLING = 0.9
"""Factor of the annealing temperature from one measurement to the next."""
START_TEMPERATURE = 0.1
"""Loss of throughput, as a share of the best, that annealing first accepts with a chance of 1/e."""
DRAWN_FIRST = 4
"""Pools that Bayesian optimisation draws before its Gaussian process has something to learn from."""

Rival = Callable[[PoolSearch, np.random.Generator], Iterator[int]]
"""Proposals of a rival, with what it draws from."""


def _random(search: PoolSearch, rng: np.random.Generator) -> Iterator[int]:
    while True:
        yield int(rng.choice(np.flatnonzero(search.candidates)))


def _genetic(search: PoolSearch, rng: np.random.Generator) -> Iterator[int]:
    """Parents are two of the fittest; each count of the child is one parent's and may change by one."""
    for _ in range(POPULATION):
        yield int(rng.choice(np.flatnonzero(search.candidates)))
    while True:
        fittest = np.argsort(search.measured_qps)[::-1][:POPULATION]
        first, second = (search.pools.counts[search.ranks[place]] for place in rng.choice(fittest, size=2))
        child = np.where(rng.random(len(first)) < 0.5, first, second)
        change = rng.choice((-1, 1), size=len(first)) * (rng.random(len(first)) < MUTATION)
        yield search.nearest_candidate(child + change)


def _annealing(search: PoolSearch, rng: np.random.Generator) -> Iterator[int]:
    """A step moves one instance from a type to another, or adds or takes one away."""
    at = int(rng.choice(np.flatnonzero(search.candidates)))
    yield at
    at_qps, temperature = search.measured_qps[-1], START_TEMPERATURE
    while True:
        counts = search.pools.counts[at].astype(np.float64)
        less, more = rng.choice(len(counts), size=2, replace=len(counts) < 2)
        counts[less] -= rng.integers(0, 2)
        counts[more] += 1
        rank = search.nearest_candidate(counts)
        yield rank
        loss = (at_qps - search.measured_qps[-1]) / max(search.best_qps, 1e-9)
        if rng.random() < np.exp(min(-loss / temperature, 0.0)):
            at, at_qps = rank, search.measured_qps[-1]
        temperature *= COOLING


def _bayesian(search: PoolSearch, rng: np.random.Generator) -> Iterator[int]:
    """The candidate of the largest expected improvement under a Gaussian process."""
    try:
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - an extra, and slow to import
        from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel  # noqa: PLC0415
    except ImportError as error:
        raise Misconfigured("--method bayesian needs scikit-learn: pip install 'mark-serving[pool]'") from error
    from scipy.stats import norm  # noqa: PLC0415

    for _ in range(DRAWN_FIRST):
        yield int(rng.choice(np.flatnonzero(search.candidates)))
    scaled = search.pools.counts / np.maximum(search.pools.counts.max(axis=0), 1)
    kernel = Matern(nu=2.5, length_scale=0.5) + WhiteKernel(1e-3)
    while True:
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=int(rng.integers(2**31)))
        with warnings.catch_warnings():
            # A length scale at the edge of its range is no fault: some types change nothing.
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(scaled[search.ranks], search.measured_qps)
        ranks = np.flatnonzero(search.candidates)
        mean, deviation = process.predict(scaled[ranks], return_std=True)
        deviation = np.maximum(deviation, 1e-9)
        gain = mean - search.best_qps
        score = gain / deviation
        yield int(ranks[(gain * norm.cdf(score) + deviation * norm.pdf(score)).argmax()])


RIVALS: dict[str, Rival] = {
    "random": _random,
    "genetic": _genetic,
    "annealing": _annealing,
    "bayesian": _bayesian,
}
"""Rivals of Kairos+ by their name in `mark pool choose --method`."""

KAIROS_PLUS = "kairos+"
SEARCHES = (KAIROS_PLUS, *RIVALS)
"""Searches by their name in `mark pool choose --method`."""


def proposals(method: str, rng: np.random.Generator) -> Proposals:
    """Pools that the search of this name measures."""
    if method == KAIROS_PLUS:
        return best_bounds
    rival = RIVALS[method]
    return lambda search: rival(search, rng)
