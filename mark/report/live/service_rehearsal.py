"""Comparison of a live service with the replay of the same slice: total, shares in time, placements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from mark.controller.hosts.placement_journal import PlacementDecision, placement_steps
from mark.domain.demand import UNIT_S
from mark.domain.figures import plural
from mark.report.formatting import percent, usd
from mark.report.tables import figures, make_table, texts

Placed = tuple[tuple[str, tuple[str, ...]], ...]
"""Offering and models of each shared instance, sorted: two worlds name their instances differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceComparison:
    """A live service beside its replay, which is the second of each pair."""

    total_usd: tuple[float, float]
    #: By part of the bill, USD.
    parts_usd: Mapping[str, tuple[float, float]]
    #: Answered in time, by model, in [0, 1].
    attained: Mapping[str, tuple[float, float]]
    #: Who sat where at each tick.
    placed: Sequence[tuple[Placed, Placed]]

    @property
    def total_apart(self) -> float:
        """Live over replayed, less one."""
        live, replayed = self.total_usd
        return live / replayed - 1.0 if replayed else 0.0

    @property
    def most_apart(self) -> tuple[float, str]:
        """The largest difference of a model's share in time, in [0, 1], and the model."""
        return max(((abs(live - replayed), name) for name, (live, replayed) in self.attained.items()))

    @property
    def placed_alike(self) -> float:
        """Share of the ticks at which both placed the same."""
        return sum(live == replayed for live, replayed in self.placed) / len(self.placed)

    def __str__(self) -> str:
        apart, model = self.most_apart
        return (
            f"Live against its replay: total {100 * self.total_apart:+.1f} %, in time at most "
            f"{100 * apart:.2f} points ({model}), placements equal in {100 * self.placed_alike:.0f} % of "
            f"{plural(len(self.placed), 'tick')}."
        )


def placed_by_tick(decisions: Iterable[PlacementDecision], start_at: float, ticks: int) -> list[Placed]:
    """What shared instances were to hold at the end of each tick after `start_at`. shape (ticks,)."""
    steps = iter(placement_steps(decisions))
    offerings: dict[str, str] = {}
    step, now, found = next(steps, None), Placed(), list[Placed]()
    for tick in range(1, ticks + 1):
        while step is not None and step.decision.at < start_at + tick * UNIT_S:
            offerings |= {item.id: item.offering for item in step.decision.fleet}
            offerings |= {host.name: host.offering for host in step.decision.hosts}
            now = tuple(
                sorted(
                    (offerings[name], tuple(sorted(tenant.model for tenant in tenants)))
                    for name, tenants in step.after.items()
                    if tenants
                )
            )
            step = next(steps, None)
        found.append(now)
    return found


def live_rows(compared: ServiceComparison) -> tuple[tuple[str, str, str], ...]:
    """Shares in time by model, and the bill by its parts: name, live, replayed."""
    shares = [
        (f"{model}, in time", percent(live, digits=2), percent(replayed, digits=2))
        for model, (live, replayed) in compared.attained.items()
    ]
    parts = {**compared.parts_usd, "total": compared.total_usd}
    bill = [(f"{name}, USD", usd(live), usd(replayed)) for name, (live, replayed) in parts.items()]
    return (*shares, *bill)


def live_table(compared: ServiceComparison) -> Table:
    """The same for a terminal, and how far the two are apart."""
    table = make_table([*texts("service"), *figures("live", "replayed")], gap=3, notes=(str(compared),))
    for name, live, replayed in live_rows(compared):
        table.add_row(Text(name), live, replayed)
    return table


def live_document(compared: ServiceComparison | None) -> dict[str, Any]:
    """Key `live` of a document of replays; nothing where no service was live. Pairs are live and replayed."""
    if compared is None:
        return {}
    usd_by_part = {**compared.parts_usd, "total": compared.total_usd}
    return {
        "live": {"attained": compared.attained, "cost_usd": usd_by_part, "placed_alike": compared.placed_alike}
    }
