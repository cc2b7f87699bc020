"""Pages of `mark explain`: what the controller saw, expected, planned and ordered, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mark.domain.figures import figure
from mark.domain.plan import CostParts, Excuse, PlannedCount

NO_ORDERS = "nothing: the fleet is as planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedTick:
    """One tick of the controller in words; `at_s` counts from the start of the run.

    `orders` are sentences that end with their reasons; none means that the tick ordered nothing.
    """

    at_s: float
    seen: str
    forecast: str
    plan: str
    orders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: The new plan's fleet, and the offerings left out of it.
    counts: tuple[PlannedCount, ...] = ()
    excuses: tuple[Excuse, ...] = ()

    @property
    def minute(self) -> int:
        """The minute of the run it fell in, what `--at` names."""
        return int(self.at_s // 60)


def explain_text(ticks: Sequence[ExplainedTick]) -> RenderableType:
    """The ticks one below another, for a terminal; a line that says so when there are none."""
    if not ticks:
        return Text("no tick of the controller at that time")
    return Group(*(_tick_text(tick) for tick in ticks))


def _tick_text(tick: ExplainedTick) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("saw", Text(tick.seen))
    grid.add_row("expected", Text(tick.forecast))
    grid.add_row("planned", Text(tick.plan))
    for item in tick.counts:
        if item.parts is not None:
            grid.add_row("", Text(f"{item.count} {item.offering}: {_parts_text(item.parts)}"))
    for index, order in enumerate(tick.orders or (NO_ORDERS,)):
        grid.add_row("ordered" if index == 0 else "", Text(order))
    for index, note in enumerate(tick.notes):
        grid.add_row("noted" if index == 0 else "", Text(note))
    heading = Text(f"minute {tick.minute} ({clock(tick.at_s)} after the start)", style="bold underline")
    return Group(heading, grid, Text(""))


def _parts_text(parts: CostParts) -> str:
    return (
        f"rent {figure(parts.rent_usd_per_hour, digits=3)}, risk {figure(parts.risk_usd_per_hour, digits=3)}, "
        f"saved {figure(parts.saved_usd_per_hour, digits=3)} USD/h; "
        f"launches {figure(parts.launch_usd, digits=3)} USD"
    )


def _parts_object(parts: CostParts | None) -> dict[str, float] | None:
    return None if parts is None else asdict(parts)


def clock(at_s: float) -> str:
    """`06:52:00`; days in front where there are any."""
    days, rest = divmod(int(at_s), 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} d {clock}" if days else clock


def explain_document(ticks: Sequence[ExplainedTick]) -> dict[str, object]:
    """`{"ticks": [{"at_s","minute","seen","forecast","plan","orders","notes","counts","excuses"}]}`."""
    return {
        "ticks": [
            {
                "at_s": tick.at_s,
                "minute": tick.minute,
                "seen": tick.seen,
                "forecast": tick.forecast,
                "plan": tick.plan,
                "orders": list(tick.orders),
                "notes": list(tick.notes),
                "counts": [
                    {"offering": item.offering, "count": item.count, "parts": _parts_object(item.parts)}
                    for item in tick.counts
                ],
                "excuses": [
                    {"offering": item.offering, "reason": item.reason, "parts": _parts_object(item.parts)}
                    for item in tick.excuses
                ],
            }
            for tick in ticks
        ]
    }
