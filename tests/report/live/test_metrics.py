"""The live status as Prometheus' text: parsed by its own client, labels bounded."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mark.report.live.service_status import (
    ControllerStatus,
    FleetStatus,
    LatencyStatus,
    ServiceStatus,
    StoreStatus,
)
from mark.report.live.status_metrics import MOST_OFFERINGS, service_metrics
from tests.report.live.fakes import SHARED, busy_model, empty_model, instance, sharing_model, status


def samples(shown: ServiceStatus) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(service_metrics(shown).decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("mark_fleet_instances", {"offering": "c5.large:spot", "role": "serving", "state": "ready"}, 9),
        ("mark_fleet_instances", {"offering": "c5.xlarge:spot", "role": "serving", "state": "pending"}, 1),
        ("mark_fleet_instances", {"offering": "t3.xlarge:spot", "role": "standby", "state": "stopped"}, 1),
        ("mark_fleet_planned", {"offering": "c5.large:spot"}, 10),
        ("mark_fleet_requested", {"offering": "c5.large:spot"}, 1),
        ("mark_capacity_rps", {"offering": "c5.xlarge:spot"}, 38.4),
        ("mark_arrivals_rps", {"span": "last_minute"}, 40.1),
        ("mark_forecast_max_rps", {}, 55.7),
        ("mark_plan_required_rps", {}, 55.4),
        ("mark_objective_target", {}, 0.98),
        ("mark_requests_total", {"by": "lambda"}, 3026),
        ("mark_late_total", {}, 402),
        ("mark_failed_total", {}, 3),
        ("mark_rejected_total", {}, 4),
        ("mark_latency_seconds", {"quantile": "0.98"}, 0.512),
        ("mark_lambda_cold_starts_total", {}, 7),
        ("mark_client_requests_total", {"client": "shop", "outcome": "in_time"}, 1194),
        ("mark_client_requests_total", {"client": "shop", "outcome": "limited"}, 100),
        ("mark_client_attained", {"client": "shop"}, 0.995),
        ("mark_client_cost_usd", {"client": "(token)"}, 0.001),
        ("mark_cost_usd", {"component": "overhead"}, 0.412),
        ("mark_usd_per_hour", {}, 0.987),
    ],
)
def test_figures_of_a_model(name: str, labels: dict[str, str], value: float) -> None:
    key = (name, frozenset({"model": "inception-v3", **labels}.items()))
    assert samples(status(busy_model(), empty_model("digits")))[key] == pytest.approx(value)


def test_service_itself() -> None:
    found = samples(status(speed=20.0))
    assert found["mark_clock_speed", frozenset()] == 20
    assert found["mark_controller_holds_lease", frozenset()] == 1
    assert found["mark_controller_silent_seconds", frozenset()] == 4.2
    away = samples(status(store=StoreStatus(reachable=False), controller=ControllerStatus()))
    assert away["mark_store_reachable", frozenset()] == 0
    assert away["mark_controller_holds_lease", frozenset()] == 0
    assert ("mark_controller_silent_seconds", frozenset()) not in away


def test_shared_instances_are_counted_and_never_named() -> None:
    found = samples(status(busy_model(), sharing_model(), shared=SHARED))
    model = frozenset({("model", "digits")})
    large = ("offering", "c5.large:on-demand")
    assert found["mark_shared_instances", frozenset({large, ("state", "ready")})] == 2
    assert found["mark_shared_tenants", model | {("state", "pending")}] == 1
    assert found["mark_shared_rps", model] == found["mark_capacity_rps", model | {large}] == 35.2
    assert found["mark_shared_cost_usd", frozenset()] == 12.4
    assert found["mark_shared_usd_per_hour", frozenset()] == 0.27
    assert not any(SHARED.instances[0].id in dict(labels).values() for _, labels in found)
    assert not any("shared" in name for name, _ in samples(status(busy_model())))


def test_what_is_not_known_is_left_out() -> None:
    names = {name for name, _ in samples(status(empty_model()))}
    assert not names & {"mark_objective_attained", "mark_latency_seconds", "mark_forecast_max_rps"}
    assert "mark_objective_target" in names


def test_offerings_beyond_the_bound_are_summed() -> None:
    names = [f"c{number:04d}.large:spot" for number in range(3 * MOST_OFFERINGS)]
    observed = tuple(instance(number, name) for number, name in enumerate(names))
    fleet = FleetStatus(planned=dict.fromkeys(names, 2), observed=observed)
    found = samples(status(replace(empty_model(), fleet=fleet)))
    planned = {dict(labels)["offering"]: n for (name, labels), n in found.items() if name == "mark_fleet_planned"}
    assert len(planned) == MOST_OFFERINGS + 1
    assert planned["other"] == 2 * 2 * MOST_OFFERINGS
    assert sum(planned.values()) == 2 * len(names)
    assert sum(n for (name, _), n in found.items() if name == "mark_fleet_instances") == len(names)


def test_names_are_escaped() -> None:
    model = busy_model('a"b\\c\nd')
    assert any(dict(labels).get("model") == 'a"b\\c\nd' for _, labels in samples(status(model)))


def test_first_bytes_are_shown_of_models_that_stream() -> None:
    streams = replace(busy_model(), first_byte_ms=LatencyStatus(mean=90.0, p50=80.0))
    key = ("mark_first_byte_seconds", frozenset({"model": "inception-v3", "quantile": "0.5"}.items()))
    assert samples(status(streams))[key] == pytest.approx(0.08)
    assert key not in samples(status(busy_model()))
