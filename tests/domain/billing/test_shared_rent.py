"""The rent of shared instances: each model pays for its device time, and the parts add up to the rent."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from mark.domain.billing.shared_rent import RentShares, device_usd, divide_rent

amounts = st.floats(0.0, 1e6)


@given(rent_usd=amounts, used_usd=st.dictionaries(st.sampled_from("abc"), amounts))
def test_the_parts_add_up_to_the_rent(rent_usd: float, used_usd: dict[str, float]) -> None:
    found = divide_rent(rent_usd, used_usd)
    parts = (*found.by_model.values(), found.idle_usd)
    assert all(part >= 0.0 for part in parts)
    assert math.isclose(sum(parts), rent_usd, rel_tol=1e-9, abs_tol=1e-9)
    assert all(share <= used_usd[model] * (1 + 1e-12) for model, share in found.by_model.items())


def test_a_model_pays_for_its_device_time_and_nobody_for_the_rest() -> None:
    used = {"a": device_usd(1800.0, 0.10), "b": device_usd(360.0, 0.10)}
    found = divide_rent(0.10, used)
    assert found == RentShares(by_model={"a": 0.05, "b": 0.01}, idle_usd=found.idle_usd)
    assert math.isclose(found.idle_usd, 0.04)
