"""Models of a live service as they may share instances."""

from __future__ import annotations

from collections.abc import Sequence

from mark.config.settings import Settings
from mark.controller.hosts.sharing import Sharer
from mark.live.models import LiveModel, able_to_share


def sharers_of(settings: Settings, models: Sequence[LiveModel]) -> tuple[Sharer, ...]:
    """The models that may share; none where fewer than two may."""
    return tuple(_sharer(model) for model in able_to_share(settings, models))


def _sharer(model: LiveModel) -> Sharer:
    return Sharer(
        model=model.served.model,
        slo=model.served.slo,
        offerings=model.bundle.controller.offerings,
        overflow=model.served.overflow,
        team=model.team,
        crossing_usd=model.bundle.controller.crossing_usd,
    )
