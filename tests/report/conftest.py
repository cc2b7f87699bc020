from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure


def leave_out_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, which takes most of a page's time."""
    drawn = {"svg": b'<svg width="1" height="1"/>', "png": b"\x89PNG"}

    def leave_out(_: Figure, file: Any, *, format: str, **__: Any) -> None:  # noqa: A002 - matplotlib's word
        file.write(drawn[format])

    monkeypatch.setattr(Figure, "savefig", leave_out)


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not drawn."""
    leave_out_plots(monkeypatch)
