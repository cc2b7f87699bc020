"""Figures within sentences that planners, controllers and commands print."""

from __future__ import annotations


def figure(value: float, *, digits: int = 4) -> str:
    """`30,180`, `42.6`, `0.000012`: so many digits that count, all of the whole ones, and never an exponent."""
    if abs(value) >= 10.0 ** (digits - 1):
        return f"{value:,.0f}"
    shown = f"{value:.{digits}g}"
    return shown if "e" not in shown else f"{value:.8f}".rstrip("0").rstrip(".")


def share_words(share: float, digits: int = 0) -> str:
    """`5 %`, `2.5 %`: a share of 1 in so many decimals."""
    return f"{100 * share:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """`1 instance`, `2 instances`, `1,204 requests`; the noun in the singular, its plural a plain s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
