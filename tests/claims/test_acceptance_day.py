"""The judged day of the Twitter trace: ratio, order, attainment and what is shed, as in docs/figures.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mark.domain.offering import Market
from mark.simulator.traces import read_trace
from scripts.acceptance import TWITTER, judged_day


@pytest.mark.slow
@pytest.mark.skipif("MARK_DATA" not in os.environ, reason="MARK_DATA does not name the folder of traces")
@pytest.mark.parametrize("market", list(Market))
def test_the_judged_day_reaches_its_figures(market: Market) -> None:
    figures = judged_day(read_trace(Path(os.environ["MARK_DATA"]) / "traces" / TWITTER), market)
    assert len(figures.checks) == 8
    assert not [(check.what, check.value, check.wanted) for check in figures.missed]
