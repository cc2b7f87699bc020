"""A first day in three regions: with MArk's prices, without a zone `b`, and without prices of ours."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mark.config.footprint import footprint_of
from mark.deployment.synth import Synthesis, _blueprint
from mark.deployment.zones import check_zones, in_zones
from mark.domain.errors import Misconfigured
from mark.live.processes.cloud_controller import deployed, live_models
from scripts.rehearsal.ministack import recorded_zones
from scripts.rehearsal.trial import REGIONS
from tests.deployment.test_zones import account, stacks
from tests.infra.conftest import TOKYO, Template, by_part, of_type, plain, trial_in

"""Bytes that EC2 takes (user guide, "Instance user data")."""


def test_one_of_the_regions_has_no_zone_b() -> None:
    assert f"{TOKYO}b" not in recorded_zones(TOKYO)
    assert len({zone[-1] for region in REGIONS for zone in recorded_zones(region)[:2]}) == 3


@pytest.mark.parametrize("region", REGIONS)
def test_a_trial_stands_in_the_account_s_zones_and_knows_the_region_s_prices(region: str, tmp_path: Path) -> None:
    there = account(recorded_zones(region))
    asked = _anywhere(trial_in(region, tmp_path))
    settings = in_zones(asked, stacks(), there)
    assert settings.rollout.network.zones == recorded_zones(region)[:2]
    assert [found.state for found in check_zones(settings, there)] == ["ok"]
    models = live_models(settings, "")
    blueprint = _blueprint(settings, models, (), SimpleNamespace(month_usd=1.0), {})  # type: ignore[arg-type]
    environment = {"MARK_SETTINGS": blueprint["processes"], "MARK_FILES": blueprint["files"]}
    told, _ = deployed({**environment, "MARK_STORE_URL": "redis://x"})
    [model] = live_models(told, "")
    assert model.prices.region == region
    assert model.served == models[0].served
    assert footprint_of(told) == footprint_of(settings)


@pytest.mark.parametrize("region", REGIONS[1:])
def test_a_region_without_prices_says_in_one_line_what_to_write(region: str, tmp_path: Path) -> None:
    settings = trial_in(region, tmp_path)
    with pytest.raises(
        Misconfigured, match=rf"^the prices are of us-east-1, .* {region}: `mark doctor --prices.*$"
    ):
        footprint_of(settings.model_copy(update={"prices": None}))
    with pytest.raises(Misconfigured, match=rf"^nothing says what AWS's services cost in {region}: make .*$"):
        footprint_of(settings.model_copy(update={"service_prices": None}))


def _anywhere(settings: Any) -> Any:
    """The settings without zones."""
    network = settings.rollout.network.model_copy(update={"zones": ()})
    return settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"network": network})})


def test_a_trial_in_tokyo_has_a_node_that_knows_its_prices(trial_synthesis: Synthesis) -> None:
    trial: dict[str, Template] = by_part(trial_synthesis)
    subnets = of_type(trial["network"], "AWS::EC2::Subnet").values()
    assert sorted(one["AvailabilityZone"] for one in subnets) == [f"{TOKYO}a", f"{TOKYO}c"]
    [node] = of_type(trial["nodes"], "AWS::EC2::LaunchTemplate").values()
    script = plain(node["LaunchTemplateData"]["UserData"])
    assert "\nMARK_FILES=" in script
    [nodes] = of_type(trial["nodes"], "AWS::AutoScaling::AutoScalingGroup").values()
    assert (nodes["MinSize"], nodes["MaxSize"]) == ("1", "1"), "a new account holds no second one"
    # the trial ends by itself, and the group changes with its end: only so does another deploy bring it back
    [end] = of_type(trial["nodes"], "AWS::AutoScaling::ScheduledAction").values()
    assert (end["MinSize"], end["MaxSize"], end["DesiredCapacity"]) == (0, 0, 0)
    assert {tag["Key"]: tag["Value"] for tag in nodes["Tags"]}["mark:ends"] == end["StartTime"]
    orphans = of_type(trial["functions"], "AWS::Lambda::Function")["Orphans"]["Environment"]["Variables"]
    assert float(orphans["MARK_ENDS_AT"]) == datetime.fromisoformat(end["StartTime"]).timestamp()
    assert "ends_on" not in script
