"""`mark plan`: what the service costs around its fleet, and from which load that pays."""

from __future__ import annotations

import json
from pathlib import Path


def test_a_plan_says_below_which_load_lambda_alone_costs_less(mark) -> None:
    line = ("plan", "--model", "inception-v3", "--rate", "10")
    lean = json.loads(mark(*line, "--json").out)["break_even_rps"]
    assert f"At less than {lean:.2g} requests/s" in mark(*line).out
    Path("ha.yaml").write_text("rollout: {shape: ha}")
    assert json.loads(mark(*line, "--config", "ha.yaml", "--json").out)["break_even_rps"] > 2 * lean
    Path("alone.yaml").write_text("offerings: {overflow: false}")
    assert json.loads(mark(*line, "--config", "alone.yaml", "--json").out)["break_even_rps"] is None
    assert "At less than" not in mark(*line, "--config", "alone.yaml").out


def test_no_plan_advises_a_lambda_that_is_late(mark) -> None:
    line = ("plan", "--model", "nasnet", "--rate", "10", "--profiles", "assumed-lambda")
    assert json.loads(mark(*line, "--json").out)["break_even_rps"] is None
    assert "At less than" not in mark(*line).out


def test_a_large_load_is_said_in_whole_requests(mark) -> None:
    Path("ha.yaml").write_text("rollout: {shape: ha}")
    line = ("plan", "--model", "resnet-50", "--rate", "10", "--profiles", "assumed-lambda", "--config", "ha.yaml")
    rate = json.loads(mark(*line, "--json").out)["break_even_rps"]
    assert rate > 100
    assert f"At less than {rate:.0f} requests/s" in mark(*line).out
