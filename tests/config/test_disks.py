"""Root disks: what is on them, what AWS's images allow, and what a person has set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.disks import instance_disk_gib, require_space, with_disks
from mark.config.rollout import RolloutSettings
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured


def rollout(**said: Any) -> RolloutSettings:
    return Settings.model_validate({"rollout": said}).rollout


@given(st.lists(st.floats(0.0, 200.0), min_size=1), st.booleans())
def test_a_disk_holds_all_models_files_twice_and_the_image_starts_on_it(files_gib: list[float], gpu: bool) -> None:
    asked = rollout(machines=[{"accelerator": "nvidia" if gpu else ""}])
    [made] = with_disks(asked, bundles_gib=files_gib).machine_kinds
    assert made.disk_gib >= 3.0 + 2 * sum(files_gib)
    assert made.disk_gib >= (60 if gpu else 8), "beside AWS's 30 GiB the images of CUDA need room"
    assert made.disk_gib <= max(60 if gpu else 8, 30 + 2 * sum(files_gib)), "and it is no larger for that"


def test_what_a_person_has_set_stays_and_with_it_a_second_look_changes_nothing() -> None:
    asked = rollout(machines=[{"disk_gib": 40}, {"architecture": "arm64"}], node={"disk_gib": 12})
    made = with_disks(asked, models=20)
    assert [one.disk_gib for one in made.machine_kinds] == [40, 17]
    assert made.node.disk_gib == 12
    assert with_disks(made, models=1) == made


def test_a_model_server_of_ones_own_needs_room() -> None:
    plain, served = rollout(), rollout(model_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/triton:1")
    kind = plain.machine_kinds[0]
    assert instance_disk_gib(kind, served, 0.1) == instance_disk_gib(kind, plain, 0.1) + 29


def test_files_that_do_not_fit_a_disk_of_ones_own_are_told_before_anything_is_deployed() -> None:
    require_space(rollout(machines=[{"disk_gib": 20}]), [8.5])
    require_space(rollout(), [800.0])
    with pytest.raises(Misconfigured, match=r"amd64 has disk_gib 20; .* take 20\.2: leave disk_gib out"):
        require_space(rollout(machines=[{"disk_gib": 20}]), [8.6])
