"""The fleet or service that a user probably runs now: the present, by which every verdict measures.

`sagemaker`, `hpa`, `lambda` and `static:N` are replayed; a bill in USD a month stands for itself.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mark.domain.errors import Misconfigured

STATIC = "static:"
"""Prefix of the policy that rents so many instances all the time."""
_COUNT = re.compile(rf"{STATIC}([1-9]\d{{0,4}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The policy that stands for what runs now, or else its cost, USD a month."""

    words: str
    policy: str = ""
    usd_per_month: float = 0.0


SAGEMAKER = Present(words="SageMaker as you would set it up", policy="sagemaker")
HPA = Present(words="an HPA as you would set it up", policy="reactive")
LAMBDA = Present(words="Lambda alone", policy="lambda-only")
_NAMED = {"sagemaker": SAGEMAKER, "hpa": HPA, "lambda": LAMBDA}


def parse_present(text: str) -> Present:
    """The present that `--now` names. Misconfigured where it names none."""
    if text in _NAMED:
        return _NAMED[text]
    count = static_count(text)
    if count is not None:
        words = "one instance around the clock" if count == 1 else f"{count} instances around the clock"
        return Present(words=words, policy=text)
    try:
        usd = float(text)
    except ValueError:
        usd = math.nan
    if math.isfinite(usd) and usd >= 0:
        return Present(words="what you run now", usd_per_month=usd)
    raise Misconfigured(
        f"{text!r} must be sagemaker, hpa, lambda, static:N for N instances around the clock, or what you pay in "
        "USD a month, such as 1200"
    )


def static_count(policy: str) -> int | None:
    """N of the policy `static:N`; None for any other policy."""
    found = _COUNT.fullmatch(policy)
    return None if found is None else int(found[1])
