"""Pages of replays have their words here, and no figures: to draw them takes longer than most replays."""

from __future__ import annotations

import pytest

from mark.report import figures


@pytest.fixture
def drawn() -> None:
    """Of a test whose pages have their figures."""


@pytest.fixture(autouse=True)
def _without_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(figures, "wide_and_narrow", lambda *_: "")
