"""The acceptance page says what was missed, and so does the exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scripts import acceptance
from scripts.figures import Check, Figures, Gap, write_figures

KEPT = Check("ratio", "1.73", ">= 1.45", True)
MISSED = Check("shed", "2.000%", "<= 0.1%", False)


def test_the_page_counts_what_is_kept_and_names_what_is_not(tmp_path: Path) -> None:
    gap = Gap(where="a day", policy="mark", gaps=np.array([0.9, 1.0, 1.0, 1.2]))
    write_figures(Figures(checks=[KEPT, MISSED], gaps=[gap]), tmp_path / "figures.md")
    page = (tmp_path / "figures.md").read_text()
    assert "1 of 2 kept." in page
    assert "| shed | 2.000% | <= 0.1% | **no** |" in page
    assert "| a day | mark | 4 | 0.915 | 1.000 | 1.170 | 1.200 | 25.0% |" in page


@pytest.mark.parametrize(("checks", "code"), [([KEPT], None), ([KEPT, MISSED], "1 figures miss: shed")])
def test_a_miss_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checks: list[Check], code: str | None
) -> None:
    monkeypatch.setenv("MARK_DATA", str(tmp_path))
    written: list[Figures] = []
    for name in ("judged_day", "interrupted", "one_day"):
        monkeypatch.setattr(acceptance, name, lambda *_: Figures())
    monkeypatch.setattr(acceptance, "judged_day", lambda *_: Figures(checks=checks[:1]))
    monkeypatch.setattr(acceptance, "one_day", lambda *_: Figures(checks=checks[1:]))
    monkeypatch.setattr(acceptance, "OTHER_DAYS", (1,))
    monkeypatch.setattr(acceptance, "SLICE_ENDS", ())
    monkeypatch.setattr(acceptance, "read_trace", lambda _: None)
    monkeypatch.setattr(acceptance, "write_figures", written.append)
    if code is None:
        acceptance.main()
    else:
        with pytest.raises(SystemExit, match=code):
            acceptance.main()
    assert len(written) == 1
