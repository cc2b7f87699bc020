"""What processes load: a module that they never use takes memory on every instance."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLANNING = {"numba", "scipy", "pulp", "highspy", "mark.planner", "mark.config", "mark.accounting", "rich", "typer"}
AWS = {"boto3", "botocore.session"}
FRAMEWORKS = {"torch", "sklearn", "pandas", "matplotlib", "statsmodels", "lightgbm"}


@pytest.mark.parametrize(
    ("module", "unused"),
    [
        ("mark.live.processes.cloud_gateway", PLANNING | AWS | FRAMEWORKS),
        ("mark.live.processes.agent", PLANNING | AWS | FRAMEWORKS | {"mark.serving.gateway"}),
        ("mark.cli.main", (PLANNING - {"rich", "typer"}) | AWS | FRAMEWORKS),
    ],
)
def test_a_process_loads_only_what_it_uses(module, unused):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())

    assert module in loaded
    assert not loaded & unused
