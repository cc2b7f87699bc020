"""`mark status --aws`: what the service has in its account, asked of AWS itself and of nobody else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

from rich.table import Table

from mark.aws.alarms import read_alerts
from mark.aws.ec2.guard import AWAKE
from mark.aws.ec2.inventory import InventoryItem, list_inventory
from mark.aws.outside_pause import read_pause
from mark.catalog.load import PriceSnapshot
from mark.config.prices import chosen_prices
from mark.config.settings import Settings
from mark.domain.figures import plural
from mark.live.service_session import service_aws
from mark.report.live.formatting import alert_banners
from mark.report.tables import Column, make_table
from mark.report.terminal import show, show_json
from mark.store.published_status import ALERTS


def show_standing(settings: Settings, *, as_json: bool) -> None:
    """Say it; instances whose type has no price in the catalogue count as 0 USD."""
    prices = chosen_prices(settings)
    aws = service_aws(settings, "doctor")
    try:
        rows = list_inventory(aws, settings.service.name)
        alerts = read_alerts(aws, settings.service.name, at=time.time())
        paused = read_pause(aws, settings.service.name)
    finally:
        aws.close()
    hourly = sum(usd_per_hour(row, prices) for row in rows)
    if as_json:
        document = _document(settings, rows, hourly)
        show_json({**document, "alerts": ALERTS.dump(alerts), "paused": paused and asdict(paused)})
        return
    if paused is not None:
        show(f"{settings.service.name} is {paused.reason}")
    show(*(banner.text for banner in alert_banners(alerts)))
    if not rows:
        show(f"{settings.service.name} has no instance in {aws.settings.region}")
        return
    show(
        _table(rows, prices),
        f"{plural(len(rows), 'instance')}, {hourly:.4f} USD an hour at the catalogue's prices",
    )


def usd_per_hour(row: InventoryItem, prices: PriceSnapshot) -> float:
    """Cost of an instance an hour by the catalogue; 0 for one that is not awake, or whose type has no price."""
    known = {item.name: item for item in prices.types}.get(row.instance_type)
    if known is None or row.state not in AWAKE:
        return 0.0
    spot = known.spot_usd_per_hour if row.is_spot else None
    return known.on_demand_usd_per_hour if spot is None else spot


def _document(settings: Settings, rows: Sequence[InventoryItem], hourly: float) -> dict[str, object]:
    """The document of `mark status --aws --json` (docs/json.md)."""
    return {
        "service": settings.service.name,
        "region": settings.service.aws.region,
        "usd_per_hour": hourly,
        "instances": [instance_document(row) for row in rows],
    }


def instance_document(row: InventoryItem) -> dict[str, object]:
    """An instance as documents have it (docs/json.md)."""
    return {
        "id": row.id,
        "model": row.model,
        "role": row.role,
        "offering": row.offering,
        "instance_type": row.instance_type,
        "market": "spot" if row.is_spot else "on-demand",
        "state": row.state,
    }


def _table(rows: Sequence[InventoryItem], prices: PriceSnapshot) -> Table:
    names = ("model", "role", "type", "market", "state")
    columns = [Column(title=name) for name in names]
    columns += [Column(title=name, is_figure=True) for name in ("instances", "USD/h")]
    table = make_table(columns)
    kinds = Counter(replace(row, id="", offering="") for row in rows)
    for row, count in sorted(kinds.items()):
        market = "spot" if row.is_spot else "on-demand"
        hourly = count * usd_per_hour(row, prices)
        words = (row.model or "-", row.role or "-", row.instance_type, market, row.state)
        table.add_row(*words, str(count), f"{hourly:.4f}")
    return table
