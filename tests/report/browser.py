"""A page in a real browser, as wide as a reader's window: what of it is cut off, overlaps or cannot be read.

A window of a headless browser is 500 pixels wide or more, so the page stands in a frame that is exactly as wide as
asked. A script beside the page measures it there and tells the frame's parent, whose title is read.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium", path="/usr/bin")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
HEIGHT_PX = 4000
LEAST_CONTRAST = 4.5
"""WCAG 2.1, success criterion 1.4.3."""
LEAST_TEXT_PX = 9
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no /usr/bin/chromium to look at the page with")
beside = partial(pytest.param, marks=pytest.mark.slow)
"""Values that differ from the others by one thing that another of them has."""
seen_by_readers = pytest.mark.parametrize(
    ("width", "dark"), [(400, True), (1200, False), beside(400, False), beside(1200, True)]
)

_FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><body style="margin:0">
<iframe src="page.html" style="border:0;display:block;width:WIDTHpx;height:HEIGHTpx"></iframe>
<script>addEventListener("message", event => { document.title = event.data; });</script>"""
_PROBE = Path(__file__).with_name("browser_probe.js").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A page as a browser laid it out."""

    width: int
    height: int
    #: How far the page itself can be scrolled to the side, CSS pixels.
    sideways: int
    #: Texts that end beyond the window, or beyond a box that hides what overflows it.
    cut: tuple[str, ...]
    #: Texts whose contrast to what they stand on is too low.
    faint: tuple[str, ...]
    #: Texts that are drawn too small.
    small: tuple[str, ...]
    #: Pairs of texts that lie over each other.
    overlapping: tuple[str, ...]
    #: Boxes that scroll by themselves, and how far.
    scrolled: tuple[str, ...]
    shot: Path

    def check(self, *, dark: bool) -> None:
        """Nothing overflows, and every text can be read in the colours that were asked for."""
        assert self.sideways == 0
        assert (self.cut, self.faint, self.small, self.overlapping) == ((), (), (), ())
        ground = np.median(self.pixels().reshape(-1, 3), axis=0)
        assert (ground.max() < 60) if dark else (ground.min() > 240)

    def check_drawn(self, *, colours: int) -> None:
        """It has plots, whose edges have many colours, and content down the page: few bands of 100 px lack ink."""
        pixels = self.pixels()
        assert len(np.unique(pixels @ np.array([65_536, 256, 1]))) > colours
        bands = range(0, min(self.height, HEIGHT_PX) - 99, 100)
        inked = [np.ptp(pixels[top : top + 100].reshape(-1, 3), axis=0).max() > 100 for top in bands]
        assert sum(inked) >= 0.75 * len(bands), inked

    def pixels(self) -> np.ndarray:
        """The picture, colours 0..255: shape (height, width, 3)."""
        return read(self.shot)


@cache
def read(shot: Path) -> np.ndarray:
    return np.round(imread(shot)[:, :, :3] * 255).astype(np.int64)


def look_at(folder: Path, page: str, *, width: int, dark: bool, folded: bool = False) -> Look:
    """The page in a window of `width`, in the reader's colour scheme, every fold open unless `folded`.

    The picture is left in the folder.
    """
    page = page if folded else re.sub(r"<details(?![^>]*\bopen\b)", "<details open", page)
    probe = _PROBE.replace("LEAST_CONTRAST", str(LEAST_CONTRAST)).replace("LEAST_TEXT_PX", str(LEAST_TEXT_PX))
    (folder / "page.html").write_text(f"{page}<script>{probe}</script>", encoding="utf-8")
    frame = _FRAME.replace("WIDTH", str(width)).replace("HEIGHT", str(HEIGHT_PX))
    (folder / "frame.html").write_text(frame, encoding="utf-8")
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={max(width, 500)},{HEIGHT_PX}"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    shot = folder / "shot.png"
    flags += ["--dump-dom", "--virtual-time-budget=3000", f"--screenshot={shot}"]
    done = subprocess.run(  # noqa: S603 - our own page in a known browser
        [str(CHROMIUM), *flags, (folder / "frame.html").as_uri()],
        check=True, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    found = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert found is not None, done.stdout
    told = json.loads(html.unescape(found[1]))
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    return Look(**lists, shot=shot)
