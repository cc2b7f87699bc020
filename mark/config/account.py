"""Settings of the AWS account that a service runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from mark.catalog.price_overlay import PriceOverlay
from mark.config.parts import Part, Positive, Share, matching
from mark.domain.offerings.offering import Market


def _as_written(value: object) -> object:
    """YAML takes +0.004 without quotes for a number."""
    return f"{value:+.8f}" if isinstance(value, int | float) and not isinstance(value, bool) else value


PERCENT = 100.0
Adjustment = Annotated[str, BeforeValidator(_as_written), matching(r"[+-]\d*\.?\d+%?", '"-12%" or "+0.004"')]


class PriceOverlaySettings(Part):
    """Own price of instance types where it is not AWS's list price (docs/saving.md)."""

    types: tuple[str, ...] = Field(
        ("*",), min_length=1, description="Families, types or patterns of types, such as c5, g5.xlarge, c5.*large."
    )
    markets: tuple[Market, ...] = Field(
        (Market.ON_DEMAND,), min_length=1, description="Markets whose price it is: on-demand, spot."
    )
    adjust: Adjustment | None = Field(
        None,
        description='Added to the list price: a percentage such as "-12%", or USD an hour such as "+0.004".',
    )
    usd_per_hour: Positive | None = Field(None, description="The price itself instead; not on spot.")
    weight: int = Field(
        0, description="Where several match a type, the one of the greatest weight holds; two of one are refused."
    )

    _file: str = PrivateAttr("settings")

    @model_validator(mode="after")
    def _knows_its_file(self, info: ValidationInfo) -> Self:
        self._file = (info.context or {}).get("file", self._file)
        return self

    @model_validator(mode="after")
    def _says_one_price(self) -> Self:
        if (self.adjust is None) == (self.usd_per_hour is None):
            raise ValueError("name either adjust or usd_per_hour")
        if Market.SPOT in self.markets and not (self.adjust or "").endswith("%"):
            raise ValueError('spot prices move: adjust them by a percentage, such as "-5%"')
        return self

    def overlay(self, name: str) -> PriceOverlay:
        """The same for the catalogue."""
        adjust = self.adjust or "+0"
        by_percent, amount = adjust.endswith("%"), float(adjust.removesuffix("%"))
        return PriceOverlay(
            name=f"{self._file}: {name}",
            types=self.types,
            markets=self.markets,
            factor=1.0 + amount / PERCENT if by_percent else 1.0,
            plus_usd_per_hour=0.0 if by_percent else amount,
            usd_per_hour=self.usd_per_hour,
            weight=self.weight,
        )


class AccountSettings(Part):
    """Prices and commitments that the account has already (docs/saving.md)."""

    price_overlays: tuple[PriceOverlaySettings, ...] = Field(
        (),
        description="Negotiated discounts and fees: own prices of instance types, for plans, replays and bills.",
    )
    commitments: Path | None = Field(
        None,
        description="File of the Savings Plans, Reserved Instances and capacity that the account has; left out, a "
        "service in AWS reads them of the account.",
    )
    read_commitments: bool = Field(
        True, description="Whether a service in AWS reads them of the account once an hour."
    )
    share: Share = Field(
        1.0, description="Share of what is read of the account that this service may count; a file says its own."
    )
