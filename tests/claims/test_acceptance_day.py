"""The judged day of the Twitter trace: ratios, order, attainment and what is shed, as in docs/figures.md."""

from __future__ import annotations

import pytest

from mark.domain.offerings.offering import Market
from scripts.acceptance.days import JUDGED_DAY, judged_policies
from scripts.acceptance.loads import Foretold, twitter_day


@pytest.mark.slow
@pytest.mark.usefixtures("data_dir")
@pytest.mark.parametrize("market", list(Market))
def test_the_judged_day_reaches_its_figures(market: Market) -> None:
    figures = judged_policies(twitter_day(JUDGED_DAY), market, Foretold())
    assert len(figures.checks) == 11
    assert not [(check.what, check.value, check.wanted) for check in figures.missed]
