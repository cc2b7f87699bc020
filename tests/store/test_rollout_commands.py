"""Commands about a rollout in the store: the latest stands there, and whoever gave another is told."""

from __future__ import annotations

import pytest

from mark.domain.errors import RetryLater
from mark.domain.versions import ModelVersions, RolloutCommand, RolloutVerb
from mark.live.commands.rollout import give_command
from mark.store.published_status import ROLLOUT_COMMAND
from mark.store.service import ServiceStore

MODEL = "shop"


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_a_command_whose_place_another_took_says_so(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, is_carried_out: bool
) -> None:
    """The other one comes while this is waited for, after the controller has seen this or before."""

    def meanwhile(model: str) -> ModelVersions:
        mine = ROLLOUT_COMMAND.read(store, model)
        assert mine is not None
        ROLLOUT_COMMAND.write(store, RolloutCommand(id="other", verb=RolloutVerb.PROMOTE), model)
        return ModelVersions(model=model, stable="v", command=mine.id if is_carried_out else "")

    monkeypatch.setattr(store, "versions", meanwhile)
    if is_carried_out:
        assert give_command(store, MODEL, RolloutVerb.ABORT).stable == "v"
    else:
        with pytest.raises(RetryLater, match="`promote` was commanded at the same time"):
            give_command(store, MODEL, RolloutVerb.ABORT)
