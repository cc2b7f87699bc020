"""Settings of what may be spent."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from mark.accounting.budget import Reached
from mark.config.parts import Part, Positive


class BudgetSettings(Part):
    """Budget of a day and a month (UTC), and what happens when it is reached."""

    daily_usd: Positive | None = Field(None, description="In a day; as much as it takes when left out.")
    monthly_usd: Positive | None = Field(None, description="In a month; as much as it takes when left out.")
    when_reached: Reached = Field(
        Reached.WARN,
        description="warn only says so; floor keeps one instance a model and calls no Lambda; pause ends all "
        "instances; each until the next day or month.",
    )

    @model_validator(mode="after")
    def _a_day_fits_a_month(self) -> Self:
        if self.daily_usd is not None and self.monthly_usd is not None and self.daily_usd > self.monthly_usd:
            raise ValueError("daily_usd: no more than monthly_usd")
        return self
