"""Metric families as Prometheus' text, parsed by its own client."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.telemetry.metrics import counter, exposition, gauge, labelled, merged


@pytest.mark.parametrize("count", [999_999, 1_000_001, 12_345_678, 2**53 - 1, 1_234_567.125])
def test_a_count_keeps_its_last_digit(count: float) -> None:
    page = exposition([counter("late", "Late", ("model",), [(("m",), count)])]).decode()
    [family] = text_string_to_metric_families(page)

    assert family.samples[0].value == count


def test_expositions_of_several_processes_are_one() -> None:
    def page(name: str, late: float) -> bytes:
        families = [counter("late", "Late", ("model",), [(("m",), late)]), gauge("peers", "Up", (), [((), 1)])]
        return exposition(labelled(families, "gateway", name))

    text = merged([page("a", 3), page("b", 4), page("b", 5)]).decode()
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert {(one.labels["gateway"], one.value) for one in families["mark_late"].samples} == {
        ("a", 3.0),
        ("b", 4.0),
    }
    assert families["mark_late"].type == "counter"
    assert [one.labels for one in families["mark_peers"].samples] == [{"gateway": "a"}, {"gateway": "b"}]
    assert merged([page("a", 3)]) == page("a", 3)
