"""Figures as people read them. What is worth printing, and how many digits of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from mark.domain.billing.costs import CostUsd
from mark.simulator.results import ServedCounts

MISSING = "-"
"""Stands where there is no figure."""
UNIT = re.compile(r"(?<=\d) (?=(?:%|ms|s|min|h|d|k|M|G|USD|rps|GiB|MiB)(?!\w))")
"""The space between a number and its unit."""
MOST_TIMES = 10.0
"""Of a cost over a yardstick: beyond it the yardstick is next to nothing, and digits say nothing."""
NEARLY_ALL = 0.985
"""A share that whole per cents would round to all."""
MANY_TIMES = 2.0
"""From here on a cost is so many times another."""
THOUSAND = 999.995
"""From here on an amount with cents would read as a thousand."""
HUNDRED = 99.5
"""From here on two digits would be a power of ten."""

LEAST_SAID_RPS = 0.1
"""Below it a rate is said by the hour or the day."""


def finite(value: float | None) -> float | None:
    """The number, or None for NaN and infinity, which JSON has not."""
    return None if value is None or not math.isfinite(value) else float(value)


def cost_document(cost: CostUsd) -> dict[str, float | None]:
    """The cost words as documents have them: USD by component and sum."""
    amounts = {
        "instances": cost.instances,
        "standby": cost.standby,
        "lambda": cost.lambda_,
        "serving": cost.serving,
        "overhead": cost.overhead,
        "total": cost.total,
        **({"commitments": cost.commitments} if cost.commitments else {}),
    }
    return {word: finite(amount) for word, amount in amounts.items()}


def usd(amount: float) -> str:
    """`1,234.50`; below ten cents three significant digits, because a cent hides everything there."""
    if not math.isfinite(amount):
        return MISSING
    if amount != 0 and abs(amount) < 0.1:
        digits = min(8, 2 - math.floor(math.log10(abs(amount))))
        return f"{amount:.{max(2, digits)}f}"
    return f"{amount:,.2f}"


def monthly_usd(amount: float) -> str:
    """`1.43`, `3,285`: cents say nothing of thousands."""
    return f"{amount:,.0f}" if amount >= THOUSAND else f"{amount:.2f}"


def usd_per_month_words(amount: float) -> str:
    """`1.43 USD`, `3,285 USD`; what is not worth a digit is `under 1 cent`."""
    return "under 1 cent" if 0 < amount < 0.01 else f"{monthly_usd(amount)} USD"


def percent(share: float, *, digits: int | None = None) -> str:
    """`98.94 %`, rounded down: a share just below the target must never read as the target.

    Without `digits` as few as are needed, at most four (for targets: `98 %`, `99.95 %`).
    """
    if not math.isfinite(share):
        return MISSING
    if digits is None:
        return f"{round(share * 100, 4):g} %"
    scale = 10.0**digits
    # 1e-9: a share like 0.29 is 28.999999999999996 in hundredths and would lose a digit
    return f"{math.floor(share * 100 * scale + 1e-9) / scale:.{digits}f} %"


def ratio(times: float | None, *, digits: int = 2) -> str:
    """`2.14x`."""
    if times is None or not math.isfinite(times):
        return MISSING
    return f"{times:,.{digits}f}x"


def over_yardstick(times: float | None) -> str:
    """`114 %`, what a cost is above a yardstick; `-` where so little was to be served that digits say nothing."""
    if times is None or not math.isfinite(times) or times > MOST_TIMES:
        return MISSING
    return f"{100 * (times - 1):.0f} %".replace("-0 %", "0 %")


def compared_words(times: float | None) -> str:
    """`33 % less`, `71 % more`, `the same`, from twice on `2.5 times`: one cost over another."""
    if times is None or not math.isfinite(times):
        return MISSING
    if times >= MANY_TIMES:
        return f"{times:,.0f} times" if times >= HUNDRED / 10 else f"{times:.1f} times"
    if round(100 * abs(1 - times)) == 0:
        return "the same"
    return less_words(1 - times) if times < 1 else f"{100 * (times - 1):.0f} % more"


def less_words(share: float) -> str:
    """`33 % less`, of what is saved of a cost; nearly all of it is `99.9 % less`."""
    return f"{percent(share, digits=1)} less" if share > NEARLY_ALL else f"{100 * share:.0f} % less"


def format_count(count: int) -> str:
    """`5.6 M`, `12.3 k`, `812`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= size:
            unit = 1e3 if letter == "k" else size
            return f"{count / unit:,.1f} {letter}"
    return f"{count:,}"


def format_rps(rps: float) -> str:
    """A rate in two digits, or in whole requests/s from 100 on."""
    return f"{rps:.2g}" if rps < HUNDRED else f"{rps:,.0f}"


def rate_words(rps: float) -> str:
    """`40 requests/s`, `9 requests an hour`, `3 requests a day`: a rate as people say it."""
    if rps >= LEAST_SAID_RPS:
        return f"{format_rps(rps)} requests/s"
    an_hour = rps * 3600
    return f"{_requests(an_hour)} an hour" if an_hour >= 1 else f"{_requests(an_hour * 24)} a day"


def _requests(number: float) -> str:
    said = format_rps(number)
    return f"{said} request{'' if said == '1' else 's'}"


def pays_from(break_even_rps: float | None, *, mean_rps: float | None, who: str = "MArk") -> str:
    """The sentence that says from which load instances of one's own pay; empty where that is not known."""
    if break_even_rps is None:
        return ""
    had = "" if mean_rps is None else f"; {rate_words(mean_rps)} came on average"
    load = f"from a constant load of {rate_words(break_even_rps)} on"
    return f"{who} costs less than Lambda alone {load}{had}."


def format_duration(seconds: float) -> str:
    """`600 ms`, `1.5 s`, `15 min`, `24 h`, `7 d`: the largest unit that keeps it short."""
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 1:
        return f"{seconds * 1000:.4g} ms"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        shown = f"{seconds / size:.4g}"
        if float(shown) >= 2:  # as it is shown: 3 s short of two days are 2 d, not 48 h
            return f"{shown} {unit}"
    return f"{seconds:.4g} s"


def format_fallbacks(fallback_forecasts: int, forecasts: int) -> str:
    """`last-value stood in 3 of 10 times`: what replaced a forecaster that failed, and how often."""
    return f"last-value stood in {fallback_forecasts:,} of {forecasts:,} times"


def unbroken(text: str) -> str:
    """The text for a page: no line ends between a number and its unit."""
    return UNIT.sub("\N{NO-BREAK SPACE}", text)


def milliseconds(seconds: float) -> str:
    """`1,204`, whole milliseconds; below 10 ms one decimal."""
    if not math.isfinite(seconds):
        return MISSING
    value = seconds * 1000
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def served_percent(served: ServedCounts) -> tuple[float, float, float, float]:
    """Shares of the requests in percent: by instances, by standbys, by Lambda, shed."""
    total = max(1, served.total)
    return (
        100 * served.instance / total,
        100 * served.standby / total,
        100 * served.lambda_ / total,
        100 * served.shed / total,
    )


def format_pool(pool: Mapping[str, int]) -> str:
    """Pool of instances as `mark pool evaluate --pool` reads it."""
    return ",".join(f"{name}={count}" for name, count in pool.items())
