"""What the look at a page finds: text that is cut off, faint, small, or under other text."""

from pathlib import Path

import pytest

from tests.report.browser import look_at, needs_browser

FAULTS = {
    "cut": '<p style="margin-left:370px;white-space:nowrap">one long line</p>',
    "faint": '<p style="color:#999;background:#fff">grey</p>',
    "small": '<p style="font-size:8px">eight</p>',
    "overlapping": '<p>under</p><p style="margin-top:-34px">over</p>',
    "scrolled": '<div class="scroll" style="overflow-x:auto"><p style="width:900px">a</p></div>',
}


@needs_browser
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(tmp_path: Path, fault: str) -> None:
    look = look_at(tmp_path, f"<!doctype html><title>t</title><body>{FAULTS[fault]}", width=400, dark=False)
    found = {kind for kind in FAULTS if getattr(look, kind)}
    assert found == {fault}
    assert (look.sideways > 0) == (fault == "cut")
