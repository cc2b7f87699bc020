import json
from pathlib import Path
from typing import Any

from mark.simulator.engine.compiled import DeviceKernel, Kernel
from scripts.golden import GOLDEN, SERVICES, ledgers, services


def check(found: dict[str, Any], golden: Path) -> None:
    assert found == json.loads(golden.read_text()), "if this is meant: make golden, and review the diff"


def test_fixed_runs_cost_what_they_did(kernel: Kernel) -> None:
    check(ledgers(kernel), GOLDEN)


def test_a_fixed_service_costs_what_it_did_and_shares_as_it_did(
    kernel: Kernel, device_kernel: DeviceKernel
) -> None:
    check(services(kernel, device_kernel), SERVICES)
