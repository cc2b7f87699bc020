import json

from mark.simulator.engine.compiled import Kernel
from scripts.golden import GOLDEN, ledgers


def test_fixed_runs_cost_what_they_did(kernel: Kernel) -> None:
    assert ledgers(kernel) == json.loads(GOLDEN.read_text()), "if this is meant: make golden, and review the diff"
