"""Evidence of a canary's answers, pure: which count of misses is too high, and what so few answers can tell.

Each answer of a version misses the objective with some probability. A step is passed with `most_missed` missed
answers or fewer. A version that misses exactly as often as it may has more in FALSE_ALARM of cases at most, where
misses are independent of each other; bursts of them make it more. One that misses twice as often passes all the
same in `passing_share` of cases, fewer the more answers there are; `answers_needed` are the fewest with which that
is UNDETECTED or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import count

FALSE_ALARM = 0.05
"""Share of steps in which a version that misses exactly as often as it may is aborted."""
UNDETECTED = 0.05
"""Share of steps in which a version that misses twice as often passes, once the answers are enough."""
TIMES_WORSE = 2.0
"""How many times as often as it may a version misses that is to be found out."""
LEAST_ALLOWED = 1e-6
"""An objective of 100 % allows no miss, which no number of answers proves: it is taken for this share."""
NEGLIGIBLE = 1e-17
"""Part of a sum that is too small to change it."""


def at_most(k: int, n: int, p: float) -> float:
    """Probability of k or fewer misses in n answers that each miss with probability p."""
    if k < 0:
        return 0.0
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    if k < n * p:
        return min(1.0, _tail(k, n, p, -1))
    return max(0.0, 1.0 - _tail(k + 1, n, p, 1))


def _tail(k: int, n: int, p: float, step: int) -> float:
    """The sum of the probabilities of k, k + step, ... misses, which fall."""
    log_p = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = math.exp(log_p + k * math.log(p) + (n - k) * math.log1p(-p))
    total, odds = 0.0, p / (1.0 - p)
    while term > NEGLIGIBLE * total and 0 <= k <= n:
        total += term
        term *= (n - k) / (k + 1) * odds if step > 0 else k / ((n - k + 1) * odds)
        k += step
    return total


@lru_cache(maxsize=4096)
def most_missed(answers: int, allowed: float) -> int:
    """The most misses with which a step is passed; one at least: one alone proves nothing.

    allowed: share of the answers that may miss.
    """
    low, high = 1, max(1, answers)
    while low < high:
        middle = (low + high) // 2
        if 1.0 - at_most(middle, answers, allowed) <= FALSE_ALARM:
            high = middle
        else:
            low = middle + 1
    return low


def passing_share(answers: int, target: float) -> float:
    """Share of cases in which a version passes that misses TIMES_WORSE as often as the target allows."""
    allowed = _allowed(target)
    return at_most(most_missed(answers, allowed), answers, min(1.0, TIMES_WORSE * allowed))


@lru_cache(maxsize=256)
def answers_needed(target: float) -> int:
    """The fewest answers with which such a version passes in UNDETECTED of cases or less.

    More answers find it out more surely while the misses that pass stay the same, which they do up to a certain
    number: with each count of misses the fewest answers are looked for up to that number.
    """
    allowed = _allowed(target)
    worse = min(1.0, TIMES_WORSE * allowed)
    for misses in count(1):
        passes_up_to = _first(partial(_is_too_many, misses, allowed)) - 1
        if at_most(misses, passes_up_to, worse) <= UNDETECTED:
            return _first(partial(_is_found_out, misses, worse))
    raise AssertionError


def _is_too_many(misses: int, allowed: float, answers: int) -> bool:
    return most_missed(answers, allowed) > misses


def _is_found_out(misses: int, worse: float, answers: int) -> bool:
    return at_most(misses, answers, worse) <= UNDETECTED


def _allowed(target: float) -> float:
    return max(1.0 - target, LEAST_ALLOWED)


def _first(holds: Callable[[int], bool]) -> int:
    """The least whole number from 1 on for which it holds; from there on it holds for all."""
    high = 1
    while not holds(high):
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high
