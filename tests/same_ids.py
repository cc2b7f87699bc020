"""Parametrised tests are named alike in every run: workers that collect different names run nothing at all."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest

ODD = re.compile(r"[^ -~]|\\[xuU]|0x[0-9a-f]{6,}|object at")
"""Escaped bytes, which compression and encryption draw anew each time, and addresses in memory."""


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    made = yield
    for item in made if isinstance(made, list) else ():
        odd = ODD.search(item.name)
        if odd:
            raise collector.CollectError(
                f"{item.name[:200]}: {odd[0]!r} may differ from run to run; give it an id"
            )
    return made
