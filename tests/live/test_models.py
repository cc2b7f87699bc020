"""Which models a live service may hold."""

from __future__ import annotations

import pytest

from mark.aws.names import HANDLERS
from mark.config.settings import Settings
from mark.domain.errors import Misconfigured
from mark.live.models import make_live_models


@pytest.mark.parametrize("name", HANDLERS)
def test_a_model_bears_no_name_of_the_services_own_functions(name: str) -> None:
    settings = Settings.model_validate({"service": {"serve": [{"model": name}]}})
    with pytest.raises(Misconfigured, match=f"a model cannot be named {name}"):
        make_live_models(settings)
