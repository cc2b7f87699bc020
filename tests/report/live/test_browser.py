"""The status page in a browser: what changes reaches the page, and a service that is gone is said to be."""

import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

from mark.report.live.service_status import ServiceStatus
from mark.report.live.status_page import LivePage
from tests.report.browser import CHROMIUM, look_at, needs_browser, seen_by_readers
from tests.report.live.fakes import (
    SHARED,
    busy_model,
    pooled_model,
    rolled_out_model,
    sharing_model,
    status,
)
from tests.report.live.http import serving
from tests.waiting import PATIENCE_S

pytestmark = needs_browser


def browse(tmp_path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    return subprocess.Popen(  # noqa: S603 - our own page in a known browser
        [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path / 'profile'}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_event_changes_a_figure_and_a_lost_service_is_told(tmp_path: Path) -> None:
    """The browser stays while the stream is open; the page's end lets it write what it then shows."""
    shown = [status(busy_model())]
    taken = threading.Semaphore(0)

    def view() -> ServiceStatus:
        taken.release()
        return shown[0]

    with serving(view, refresh_s=0.05) as served:
        browser = browse(tmp_path, "--dump-dom", "--virtual-time-budget=4000", f"http://127.0.0.1:{served.port}/")
        try:
            # one is the page's, the others its stream's
            assert all(taken.acquire(timeout=PATIENCE_S) for _ in range(4))
            shown[0] = status(replace(busy_model(), usd_per_hour=7.77), speed=20.0)
            assert all(taken.acquire(timeout=PATIENCE_S) for _ in range(4))
            served.stop()
            out, err = browser.communicate(timeout=PATIENCE_S)
        finally:
            browser.kill()
            browser.wait()
    dom = out.decode()
    tiles = re.search(r'<div id="m0-tiles">.*?</div>\s*<figure', dom, re.DOTALL)
    assert tiles
    assert "7.77" in tiles[0]
    assert "clock runs 20x" in dom
    assert re.search(r'<p class="banner bad" id="lost" role="alert">', dom)  # no longer hidden
    assert "Content Security Policy" not in err.decode()


@needs_browser
@seen_by_readers
def test_everything_on_the_page_can_be_read(tmp_path: Path, width: int, dark: bool) -> None:
    shown = status(rolled_out_model(), pooled_model(), sharing_model(), shared=SHARED)
    live = LivePage()
    page = live.page(shown, live.fragments(shown), nonce="n")
    look = look_at(tmp_path, re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL), width=width, dark=dark)
    look.check(dark=dark)
    look.check_drawn(colours=100)
    assert look.width == width
    assert look.scrolled == ()
