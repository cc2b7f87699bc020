"""Metric families as Prometheus' text, parsed by its own client."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.telemetry.metrics import counter, exposition


@pytest.mark.parametrize("count", [999_999, 1_000_001, 12_345_678, 2**53 - 1, 1_234_567.125])
def test_a_count_keeps_its_last_digit(count: float) -> None:
    page = exposition([counter("late", "Late", ("model",), [(("m",), count)])]).decode()
    [family] = text_string_to_metric_families(page)

    assert family.samples[0].value == count
