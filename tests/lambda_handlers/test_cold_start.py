"""Imports of a cold start: nothing that is heavy, and few modules in all."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "boto3",
    "botocore.client",
    "numpy",
    "pydantic",
    "redis",
    "scipy",
    "numba",
    "torch",
    "matplotlib",
    "jinja2",
)


@pytest.mark.parametrize(
    ("module", "needs", "most"),
    [
        ("interruption", set(), 260),
        ("warm", set(), 150),
        ("orphans", set(), 150),
        ("infer", {"numpy"}, 370),
        ("report", set(), 210),
        ("webhook", set(), 170),
    ],
    ids=str,
)
def test_a_cold_import_brings_few_modules_and_nothing_heavy(module: str, needs: set[str], most: int) -> None:
    """Those of the standard library count, too: each costs a cold start a fraction of a millisecond."""
    code = (
        "import sys; before = len(sys.modules); "
        f"import mark.lambda_handlers.{module}; "
        f"print(len(sys.modules) - before, *(set({HEAVY!r}) & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    count, *heavy = done.stdout.split()
    assert set(heavy) == needs
    assert int(count) <= most
