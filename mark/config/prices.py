"""Prices of the settings: those of their file, or shipped ones, under the account's price overlays."""

from __future__ import annotations

from collections.abc import Iterable

from mark.catalog.load import PriceSnapshot, load_prices
from mark.catalog.price_overlay import PriceOverlay, match_each, overlay_prices
from mark.config.settings import Settings
from mark.domain.offerings.offering import Offering


def chosen_prices(settings: Settings) -> PriceSnapshot:
    """The account's prices. Misconfigured for an overlay that matches no type, clashes or leaves no price."""
    listed, overlays = load_prices(settings.prices), price_overlays(settings)
    match_each(overlays, sorted(listed.names))
    return overlay_prices(listed, overlays)


def shipped_prices(settings: Settings) -> PriceSnapshot:
    """The shipped table at what the account pays, for types that the settings' file lacks."""
    return overlay_prices(load_prices(), price_overlays(settings))


def price_overlays(settings: Settings) -> tuple[PriceOverlay, ...]:
    """The account's overlays, each named by its key."""
    given = settings.account.price_overlays
    return tuple(one.overlay(f"account.price_overlays.{number}") for number, one in enumerate(given))


def list_prices(settings: Settings, offerings: Iterable[Offering]) -> dict[str, float]:
    """The list price of those offerings for which the account pays another, by name, USD an hour."""
    listed = {item.name: item for item in load_prices(settings.prices).types}
    own = {item.name: item for item in chosen_prices(settings).types}
    found: dict[str, float] = {}
    for item in offerings:
        kind = item.instance_type.name
        usd, paid = (prices[kind].usd_per_hour_on(item.market) for prices in (listed, own))
        if usd is not None and usd != paid:
            found[item.name] = usd
    return found
