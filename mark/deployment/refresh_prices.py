"""Prices brought up to date: AWS's of today into a price file. Where that fails, the file stays as it was."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

from mark.aws.prices import on_demand_usd_per_hour, spot_usd_per_hour
from mark.aws.session import Aws
from mark.catalog.load import PriceSnapshot, load_prices
from mark.catalog.refreshed import Quotes, age_days, format_prices, refresh
from mark.deployment.checks.findings import Finding
from mark.domain.errors import MarkError, file_errors


def refresh_prices(aws: Aws, floor: PriceSnapshot, to: Path, today: date) -> Finding:
    """Write `floor`'s types at AWS's prices of today into `to`; says what became of it.

    Misconfigured where the file cannot be written.
    """
    names = [item.name for item in floor.types]
    try:
        listed = on_demand_usd_per_hour(aws, names)
        spot = spot_usd_per_hour(aws, names, time.time())
    except MarkError as error:
        return Finding(
            check="prices renewed",
            state="warning",
            message=f"{error}; {_kept_note(to, today)}",
            remedy="try again later",
        )
    if not listed:
        detail = f"AWS lists no price in {aws.settings.region}; {_kept_note(to, today)}"
        return Finding(
            check="prices renewed", state="warning", message=detail, remedy="is service.aws.region right?"
        )
    made = refresh(floor, Quotes(region=aws.settings.region, day=today, on_demand=listed, spot=spot))
    _write(to, format_prices(made))
    detail = f"{to}: {len(listed)} list prices and {len(spot)} spot prices of {len(made.types)} types"
    return Finding(check="prices renewed", state="ok", message=detail)


def _kept_note(to: Path, today: date) -> str:
    """Note on the prices that stay where renewing failed."""
    if not to.exists():
        return "nothing was written, the prices in use stay"
    return f"{to} stays, {age_days(load_prices(to), today)} days old"


def _write(to: Path, text: str) -> None:
    """Readers see the old file or the new one, never half of it."""
    draft = to.with_name(f".{to.name}.{os.getpid()}")
    with file_errors(f"write {to}"):
        to.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(to)
