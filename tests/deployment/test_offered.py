"""Only what a rollout can launch is offered: every type of the catalogue under every setting of machines."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.ec2.launch import FleetSetup
from mark.aws.resources import launch_templates
from mark.catalog.load import ProfileSet, load_models, load_prices, load_profiles
from mark.catalog.offerings import make_offerings, standby_offering
from mark.config.policies import chosen_world
from mark.config.served import as_rolled_out
from mark.config.settings import Settings
from mark.deployment.show import offerings_line
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.offerings.offering import Market
from mark.live.models import make_live_models

PRICES = load_prices()
TYPES = tuple(sorted(item.name for item in PRICES.types))
MODEL = replace(
    load_models()["inception-v3"],
    memory_gib=0.1,
    architectures=("amd64", "arm64"),
    accelerators=tuple(sorted({item.accelerator for item in PRICES.types})),
)
"""One that runs on whatever there is."""
SHARED = load_profiles("inception-v3").of("c5.4xlarge")
PROFILES = ProfileSet(model=MODEL.name, profiles=tuple(replace(SHARED, instance_type=name) for name in TYPES))
OWN = "ami-0123456789abcdef0"
KINDS: tuple[dict[str, str], ...] = (
    {"architecture": "amd64"},
    {"architecture": "arm64"},
    {"architecture": "amd64", "accelerator": "nvidia"},
    {"architecture": "amd64", "accelerator": "nvidia", "ami": OWN},
    {"architecture": "arm64", "accelerator": "nvidia", "ami": OWN},
)
CHOICES = (
    None,
    *(
        [dict(kind) for kind in chosen]
        for count in range(1, len(KINDS) + 1)
        for chosen in combinations(KINDS, count)
        if not ({2, 3} <= {KINDS.index(kind) for kind in chosen})
    ),
)
"""Every setting of `rollout.machines`, the one that is left out first."""


def rolled_out(machines: Any) -> Settings:
    return as_rolled_out(Settings.model_validate({"rollout": {} if machines is None else {"machines": machines}}))


@pytest.mark.parametrize("market", Market)
@pytest.mark.parametrize("machines", CHOICES, ids=lambda chosen: str(chosen and [KINDS.index(k) for k in chosen]))
def test_what_is_offered_has_a_launch_template_and_what_is_not_an_excuse(machines: Any, market: Market) -> None:
    settings = rolled_out(machines)
    found, excuses = make_offerings(
        MODEL,
        slo=MODEL.slo,
        prices=PRICES,
        profiles=PROFILES,
        market=market,
        types=TYPES,
        world=chosen_world(settings),
    )
    templates = {key: one.name for key, one in launch_templates("shop", settings.rollout).items()}
    setup = FleetSetup(
        service="shop",
        model=MODEL.name,
        run="r",
        offerings={item.name: item for item in found},
        templates=templates,
    )
    assert found or machines == [KINDS[-1]], "no type of the catalogue is arm64 with NVIDIA's GPUs"
    assert {setup.template(role, item) for role in Role for item in found} <= set(templates.values())
    assert len(found) + len(excuses) == len(TYPES)
    own_gpu_image = any(one.get("ami") and one["architecture"] == "amd64" for one in machines or ())
    assert ("p2.xlarge" in {item.instance_type.name for item in found}) == own_gpu_image


@given(name=st.sampled_from(TYPES), machines=st.sampled_from(CHOICES))
def test_no_standby_is_of_a_kind_that_cannot_be_launched(name: str, machines: Any) -> None:
    settings = rolled_out(machines)
    templates = launch_templates("shop", settings.rollout)
    try:
        found = standby_offering(
            MODEL,
            slo=MODEL.slo,
            prices=PRICES,
            profiles=PROFILES,
            instance_type=name,
            world=chosen_world(settings),
        )
    except Misconfigured:
        return
    assert (Role.STANDBY, found.instance_type.machine) in templates


def test_a_type_without_a_template_is_never_launched_from_another_kinds() -> None:
    gpu = {
        "rollout": {"machines": [{"accelerator": "nvidia"}]},
        "model": "resnet-50",
        "offerings": {"types": ["g4dn.xlarge"], "overflow": False},
    }
    (model,) = make_live_models(Settings.model_validate(gpu))
    offered = {item.name: item for item in model.served.offerings}
    templates = {key: one.name for key, one in launch_templates("shop", Settings().rollout).items()}
    setup = FleetSetup(service="shop", model="m", run="r", offerings=offered, templates=templates)
    with pytest.raises(Misconfigured, match="no launch template of shop is for amd64-nvidia, which g4dn"):
        setup.template(Role.SERVING, offered["g4dn.xlarge:on-demand"])


def test_each_type_that_is_left_out_says_what_to_declare() -> None:
    settings = Settings.model_validate({"model": "resnet-50", "profiles": ["assumed-current"]})
    (model,) = make_live_models(settings)
    line = offerings_line(model)
    assert line.startswith("c5.2xlarge, c5.4xlarge, c7g.xlarge, c7i.xlarge, c8g.xlarge, m7i.xlarge; left out: ")
    assert "rollout.machines has amd64 and arm64: add {architecture: amd64, accelerator: nvidia}" in line
    assert "no rollout launches machines of the kind amd64-inferentia" in line


def test_a_replay_keeps_to_machines_that_are_named_and_takes_any_where_none_is() -> None:
    assert chosen_world(Settings()).machines is None
    named = Settings.model_validate({"rollout": {"machines": [{"architecture": "arm64"}]}})
    assert [kind.name for kind in chosen_world(named).machines or ()] == ["arm64"]
