"""The footprint by settings; `tests/infra/test_bill.py` holds it to the stacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.catalog.billing import Load, bill_shared, bill_traffic
from mark.catalog.load import load_prices
from mark.catalog.refreshed import format_prices
from mark.cli.main import run
from mark.config.footprint import footprint_of, peak_load
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured

MONTH_S = 730 * 3600.0
HA = {"shape": "ha"}
PRIVATE_MAIL = {
    **HA,
    "network": {"egress": "private"},
    "report": {"sender": "a@example.com", "to": ["a@example.com"]},
}


def settings(service: dict[str, Any] | None = None, **rollout: Any) -> Settings:
    return Settings.model_validate({"service": service or {}, "rollout": rollout})


def month_usd(made: Settings, *, models: int = 1) -> float:
    return sum(line.usd for line in bill_shared(footprint_of(made, models=models), 0.0, MONTH_S))


def test_what_is_smaller_costs_less() -> None:
    small = settings(
        {"gateways": 1, "controllers": 1},
        gateway={"instance_type": "t4g.small"},
        machines=[{"architecture": "arm64"}],
        control={"cpu": 256, "memory_mib": 512},
        store={"replicas": 0},
        **HA,
    )
    assert month_usd(small) < 0.42 * month_usd(settings(**HA))


def test_a_private_network_pays_for_endpoints_instead_of_addresses() -> None:
    # Eleven and the mail's, in two zones, at 7.30; four addresses at 3.65 less.
    given_, private = footprint_of(settings(**HA)), footprint_of(settings(**PRIVATE_MAIL))
    assert (given_.endpoints, private.endpoints) == (0, 24)
    more = month_usd(settings(**PRIVATE_MAIL)) - month_usd(settings(**HA))
    assert more == pytest.approx(24 * 7.3 - 4 * 3.65 + 0.1)
    own = footprint_of(settings(**HA, network={"vpc": "vpc-1", "subnets": ["s-a", "s-b"], "egress": "private"}))
    assert own.endpoints == 0, "whoever has a network of their own has its endpoints"


@pytest.mark.parametrize(("mark", "rollout"), [("month", {}), ("ha month", HA)], ids=["lean, the default", "ha"])
def test_the_page_of_costs_has_the_month_of_each_shape(mark: str, rollout: dict[str, Any]) -> None:
    page = Path("docs/costs.md").read_text()
    table = page.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0].strip().splitlines()[2:]
    told = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
    lines = sorted(bill_shared(footprint_of(settings(**rollout)), 0.0, MONTH_S), key=lambda line: -line.usd)
    rows = [(line.item, f"{line.quantity:.2f}".removesuffix(".00"), line.unit, line.usd) for line in lines]
    expected = [(item, f"{quantity} {unit}", f"{usd:.2f}") for item, quantity, unit, usd in rows]
    assert told == [*expected, ("sum", "", f"{sum(line.usd for line in lines):.2f}")]


def test_a_plan_shows_each_line_of_the_month(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollout = {"shape": "lean", "nodes": 1}
    (tmp_path / "mark.yaml").write_text(json.dumps({"model": "inception-v3", "rollout": rollout}))
    assert run(["plan", "--rate", "10", "--json", "--config", str(tmp_path / "mark.yaml")]) == 0
    told = json.loads(capsys.readouterr().out)
    lines = {line.item: line.usd for line in bill_shared(footprint_of(settings(**rollout)), 0.0, MONTH_S)}
    assert {line["item"]: line["usd"] for line in told["overhead_month"]} == lines
    assert told["overhead_usd_per_month"] == pytest.approx(sum(lines.values()))


@given(
    gateways=st.integers(1, 9),
    controllers=st.integers(1, 5),
    replicas=st.integers(0, 5),
    models=st.integers(1, 20),
    cpu=st.sampled_from([256, 512, 1024, 2048]),
)
def test_more_of_anything_costs_more(
    gateways: int, controllers: int, replicas: int, models: int, cpu: int
) -> None:
    def usd(more: int) -> float:
        service = {"gateways": gateways + more, "controllers": controllers + more}
        made = settings(service, store={"replicas": replicas + more}, control={"cpu": cpu}, **HA)
        return month_usd(made, models=models + more)

    assert 0.0 < usd(0) < usd(1)


@pytest.mark.parametrize(
    ("service", "prices", "mistake"),
    [
        ({"aws": {"region": "eu-west-1"}}, "", "the prices are of us-east-1, the service is in eu-west-1"),
        ({"aws": {"region": "eu-west-1"}}, "eu-west-1", "nothing says what AWS's services cost in eu-west-1"),
    ],
    ids=["prices of another region", "prices of instances alone"],
)
def test_a_region_without_prices_is_one_line_that_says_what_to_do(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    service: dict[str, Any],
    prices: str,
    mistake: str,
) -> None:
    tree: dict[str, Any] = {"model": "inception-v3", "service": service}
    if prices:
        text = format_prices(load_prices()).replace('"us-east-1"', f'"{prices}"', 1)
        (tmp_path / "prices.json").write_text(text)
        tree["prices"] = "prices.json"
    (tmp_path / "mark.yaml").write_text(json.dumps(tree))
    code = run(["plan", "--rate", "10", "--config", str(tmp_path / "mark.yaml")])
    told = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(told) == 1
    assert mistake in told[0]
    assert "name the file as" in told[0]


def test_an_unknown_gateway_type_and_node_type_are_named() -> None:
    with pytest.raises(Misconfigured, match=r"unknown instance type 'c5\.larg'"):
        footprint_of(settings(gateway={"instance_type": "c5.larg"}, **HA))
    with pytest.raises(Misconfigured, match=r"no price of elasticache-valkey cache.huge in us-east-1"):
        bill_shared(footprint_of(settings(store={"node_type": "cache.huge"}, **HA)), 0.0, MONTH_S)


@pytest.mark.parametrize(("nodes", "most_usd"), [(1, 24.0), (2, 45.0)], ids=["one node", "two nodes"])
def test_a_lean_service_costs_little_at_full_price(nodes: int, most_usd: float) -> None:
    made = settings(nodes=nodes)
    assert month_usd(made) <= most_usd
    assert footprint_of(made).prices.region == "us-east-1"


def test_a_lean_service_has_nothing_but_its_nodes() -> None:
    lines = {line.item for line in bill_shared(footprint_of(settings()), 0.0, MONTH_S)}
    assert {"nodes", "lease table's writes", "hosted zones"} <= lines
    of_ha = {"gateways", "load balancer", "store", "controllers' CPUs", "controllers' memory", "endpoints"}
    assert not lines & (of_ha | {"container insights", "dashboards"})


def test_a_lean_service_passes_no_byte_through_a_balancer() -> None:
    load = Load(duration_s=3600.0, requests=1_000_000, payload_mib=0.1)
    lean, ha = (
        {line.item: line.quantity for line in bill_traffic(footprint_of(settings(shape=shape)), load)}
        for shape in ("lean", "ha")
    )
    assert "load balancer traffic" not in lean
    assert lean["traffic between zones"] == pytest.approx(ha["traffic between zones"])


def test_a_node_keeps_its_credits_at_the_rate_that_it_is_planned_for() -> None:
    gateways = footprint_of(settings()).gateways
    assert gateways.capacity_rps == pytest.approx(20_000 * 2 * 0.2)


def test_a_lean_service_in_a_private_network_is_refused() -> None:
    with pytest.raises(ValueError, match="the lean shape has no interface endpoints"):
        settings(network={"egress": "private"})


def test_a_node_of_another_processor_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"c5\.large is amd64: say so as rollout\.node\.architecture"):
        footprint_of(settings(node={"instance_type": "c5.large"}))


def test_the_payload_of_a_model_beside_its_class_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...\n")
    described = {
        "name": "mine",
        "latency_ms": 200,
        "target_percent": 98,
        "objective_source": "chosen",
        "memory_gib": 0.4,
        "memory_source": "chosen",
        "payload_mib": 3.0,
        "architectures": ["amd64"],
        "accelerators": [],
        "cpu": True,
        "redispatch": True,
    }
    (tmp_path / "model.json").write_text(json.dumps({"format": "mark-models/1", "models": [described]}))
    target = {"kind": "python", "target": f"{tmp_path / 'mine.py'}:Mine"}
    made = settings({"serve": [{"model": "mine", "backend": target}]}, peak_rps=100)
    assert peak_load(made).mib_per_s == 300.0
