"""Latency tables of a pool: from a user's CSV or from the shipped profiles, with the prices of their types."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mark.catalog.load import load_prices, load_profiles, read_text
from mark.domain.errors import Misconfigured
from mark.domain.load.sizes import SizeDistribution, is_formula, sizes_from_csv, sizes_from_formula
from mark.domain.models.latency_table import LatencyTable, read_latency_table


def load_latency_table(model: str, path: Path | None = None) -> LatencyTable:
    """The table of `model` in a CSV, or its shipped profiles, whose batches are then sizes."""
    if path is not None:
        return read_latency_table(str(path), read_text(path).splitlines(), model)
    profiles = load_profiles(model).profiles
    sizes = tuple(point.batch for point in profiles[0].points)
    if any(tuple(point.batch for point in profile.points) != sizes for profile in profiles):
        raise Misconfigured(
            f"the shipped profiles of {model} have other sizes on other types: name one table with --profiles"
        )
    return LatencyTable(
        model=model,
        sizes=sizes,
        mean_ms={
            profile.instance_type: tuple(point.latency_s * 1000 for point in profile.points)
            for profile in profiles
        },
    )


def load_sizes(spec: str) -> SizeDistribution:
    """The sizes of a formula, or of a CSV `size,probability`."""
    return (
        sizes_from_formula(spec) if is_formula(spec) else sizes_from_csv(spec, read_text(Path(spec)).splitlines())
    )


def type_prices(table: LatencyTable) -> dict[str, float]:
    """USD per hour of the table's types: its own prices, else those on demand; unknown types are left out."""
    listed = {item.name: item.on_demand_usd_per_hour for item in load_prices().types}
    known: Mapping[str, float] = {**listed, **table.usd_per_hour}
    return {name: known[name] for name in table.mean_ms if name in known}
