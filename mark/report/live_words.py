"""What the live document says, in words and sums that the status page and the terminal share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mark.report.wording import MISSING, duration_words, percent, ratio, usd

SILENT_AFTER_S = 180.0
"""Three ticks of service time: the fleet is then no longer steered."""
WORTH_TELLING_S = 20.0
"""A clock that is off the wall's by less was only rounded, or waited for the service to begin."""
STATES = ("ready", "pending", "draining", "stopped")
ANSWERERS = (("instance", "instance"), ("standby", "standby"), ("lambda", "Lambda"), ("shed", "shed"))
"""Keys of `by` and the words of the replay's report for them."""
COMPONENTS = (
    ("instances", "instances"),
    ("standby", "standby"),
    ("lambda", "Lambda"),
    ("serving", "serving"),
    ("overhead", "overhead"),
    ("total", "total"),
)
"""Keys of `cost_usd` and the words of the replay's report for them; serving and total are sums."""
SUMS = frozenset({"serving", "total"})
TRAINED_WHY = {"first": "first", "schedule": "on schedule", "drift": "drift"}
QUANTILES = ("mean", "p50", "p95", "p98", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """Something a reader must see first; `bad` when the service is in trouble."""

    text: str
    bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBudget:
    """How many of the finished requests missed, and how many may; `used` is their ratio, None without any."""

    finished: int
    missed: int
    allowed: float
    used: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One offering in its three views. `states`: observed instances by state; `leaving`: with a spot notice."""

    offering: str
    planned: int = 0
    requested: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    leaving: int = 0
    rps: float = 0.0
    usd_per_hour: float = 0.0

    @property
    def observed(self) -> int:
        """Instances that are there, stopped ones too."""
        return sum(self.states.values())

    @property
    def state_words(self) -> str:
        """`3 ready, 1 pending`."""
        words = ", ".join(f"{count} {state}" for state, count in self.states.items() if count)
        return f"{words}; {self.leaving} being taken away" if self.leaving else words


def finite(value: Any) -> float | None:
    """The number, or None for what is none."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        return float(value)
    return None


def rps_words(value: Any) -> str:
    """`41.2`, `1,204`."""
    rate = finite(value)
    if rate is None:
        return MISSING
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"


def ms_words(value: Any) -> str:
    """Milliseconds as `8.4` or `1,204`."""
    latency = finite(value)
    if latency is None:
        return MISSING
    return f"{latency:.1f}" if latency < 10 else f"{latency:,.0f}"


def share_words(value: Any) -> str:
    """A share of 1 as `98.94 %`, rounded down."""
    share = finite(value)
    return MISSING if share is None else percent(share, digits=2)


def time_words(at: Any, *, seconds: bool = True) -> str:
    """An instant as `12:04:31`, UTC."""
    instant = finite(at)
    if instant is None or not 0 <= instant < 253_402_300_800:  # the year 10000, where datetime ends
        return MISSING
    return datetime.fromtimestamp(instant, UTC).strftime("%H:%M:%S" if seconds else "%H:%M")


def span_words(seconds: float) -> str:
    """`81 s`, `3 min`, `2 h`: whole units, for spans that pass while one looks."""
    for size in (3600, 60):
        if seconds >= 2 * size:
            return duration_words(seconds // size * size)
    return f"{max(0, math.floor(seconds))} s"


def budget_of(model: Mapping[str, Any]) -> ErrorBudget:
    """Late, shed and failed requests against what the objective lets miss."""
    objective = model["objective"]
    failed = int(model.get("failed") or 0)
    finished = int(objective["answered"]) + int(objective["shed"]) + failed
    missed = int(objective["late"]) + int(objective["shed"]) + failed
    # nine digits: 2 % of 50 requests is one request, not a hair more
    allowed = round((1 - float(objective["target"])) * finished, 9)
    used = None if not finished else missed / allowed if allowed > 0 else math.inf if missed else 0.0
    return ErrorBudget(finished=finished, missed=missed, allowed=allowed, used=used)


def budget_words(budget: ErrorBudget) -> str:
    """`12 % of the error budget used`."""
    if budget.used is None:
        return "nothing finished yet"
    if math.isinf(budget.used):
        return "no request may miss"
    return f"{math.ceil(100 * budget.used - 1e-9):,} % of the error budget used"


def keeps_objective(model: Mapping[str, Any]) -> bool:
    """At least the target share was answered in time, or nothing is finished yet."""
    attained = finite(model["objective"].get("attained"))
    return attained is None or attained >= model["objective"]["target"]


def objective_words(model: Mapping[str, Any]) -> str:
    """`98 % within 600 ms`."""
    objective = model["objective"]
    return f"{percent(objective['target'])} within {duration_words(objective['latency_ms'] / 1000)}"


def trained_words(model: Mapping[str, Any]) -> str:
    """What the forecaster was trained on last and why, how it does, and what runs or failed."""
    trained = model.get("trained")
    if not trained:
        return ""
    said = [f"{trained['forecaster']}, trained on {_learned_words(trained, model.get('assumed'))}"]
    drift, training, failed = (trained.get(key) for key in ("drift", "training", "failed"))
    if drift is not None:
        said.append(f"losses of late {ratio(drift)} the usual")
    if training:
        since = time_words(training["since"], seconds=False)
        said.append(f"being trained since {since} ({TRAINED_WHY[training['why']]})")
    if failed:
        said.append(f"could not be trained at {time_words(failed['at'], seconds=False)}: {failed['error']}")
    return "; ".join(said)


def _learned_words(trained: Mapping[str, Any], assumed: Mapping[str, Any] | None) -> str:
    """The span that was learned from, and how much of it never came but was assumed."""
    span = duration_words(trained["until"] - trained["from"])
    why = TRAINED_WHY[trained["why"]]
    until = time_words(trained["until"], seconds=False)
    assumed_s = min(assumed["until"], trained["until"]) - trained["from"] if assumed else 0.0
    if assumed is None or assumed_s <= 0:
        return f"{span} until {until} ({why})"
    if assumed["until"] >= trained["until"]:
        return f"{span} of assumed {assumed['rps']:g} requests/s ({why})"
    return f"{span} until {until}, {duration_words(assumed_s)} of them assumed ({why})"


def assumed_words(model: Mapping[str, Any]) -> str:
    """What a service that nobody has asked anything yet was planned for; nothing once a request came."""
    assumed = model.get("assumed")
    seen = (*model["by"].values(), model.get("failed"), model.get("rejected"), *model["series"]["max_rps"])
    if not assumed or any(seen) or model["rates"].get("max_rps"):
        return ""
    return f"assumed {assumed['rps']:g} requests/s (expected_rps), nothing seen yet"


def plan_words(model: Mapping[str, Any]) -> str:
    """When the plan was made, and for when, where it looks ahead."""
    plan = model.get("plan")
    if not plan:
        return ""
    at = time_words(plan["at"], seconds=False)
    made_at = time_words(plan.get("made_at", plan["at"]), seconds=False)
    return f"Plan made {made_at}" + (f", for {at}" if at != made_at else "")


def hourly_words(model: Mapping[str, Any]) -> str:
    """What the spend of an hour is made of: instances as they are now, the rest as a mean of a named span."""
    parts = model.get("usd_per_hour_by")
    if not parts:
        return ""
    now = f"instances {usd(parts['instances'])} now"
    over_s = finite(parts.get("mean_over_s")) or 0.0
    if over_s <= 0:
        return now
    means = ", ".join(f"{label} {usd(parts[key])}" for key, label in COMPONENTS if key in ("lambda", "overhead"))
    return f"{now}; {means} as a mean of {span_words(over_s)}"


def fleet_rows(model: Mapping[str, Any]) -> tuple[FleetRow, ...]:
    """All offerings that are planned, requested or there, by name."""
    fleet, observed = model["fleet"], model["fleet"]["observed"]
    capacity = {row["offering"]: row for row in model["capacity"]}
    names = {*fleet["planned"], *fleet["requested"], *capacity, *(row["offering"] for row in observed)}
    rows = []
    for name in sorted(names):
        here = [row for row in observed if row["offering"] == name]
        counts = Counter(row["state"] for row in here)
        known = {state: counts[state] for state in STATES}
        rows.append(
            FleetRow(
                offering=name,
                planned=int(fleet["planned"].get(name, 0)),
                requested=int(fleet["requested"].get(name, 0)),
                states={**known, **{state: counts[state] for state in sorted(counts.keys() - known.keys())}},
                leaving=sum(row.get("gone_in_s") is not None for row in here),
                rps=float(capacity.get(name, {}).get("rps", 0.0)),
                usd_per_hour=float(capacity.get(name, {}).get("usd_per_hour", 0.0)),
            )
        )
    return tuple(rows)


def speed_words(document: Mapping[str, Any]) -> str:
    """Nothing when service time runs as the wall's does, and shows about the same."""
    if document.get("clock_stands"):
        return "clock stands still until the load begins"
    speed, behind_s = (finite(document.get(key)) for key in ("speed", "behind_wall_s"))
    if speed is not None and speed != 1:
        return f"clock runs {ratio(speed, digits=0 if speed >= 2 else 2)}"
    if behind_s is None or abs(behind_s) < WORTH_TELLING_S:
        return ""
    return f"clock {span_words(abs(behind_s))} {'behind' if behind_s > 0 else 'ahead of'} the wall's"


def controller_words(document: Mapping[str, Any]) -> str:
    """Who acts, and how long ago its last tick was (service time)."""
    controller = document.get("controller") or {}
    holder, silent_s = controller.get("holder"), finite(controller.get("silent_s"))
    if holder is None:
        return "nobody"
    return str(holder) if silent_s is None else f"{holder}, last tick {span_words(silent_s)} ago"


def expected_words(model: Mapping[str, Any]) -> str:
    """The load that the plan is for, and whether instances are to carry it: `planned for 41.2`."""
    if not model.get("plan"):
        return ""
    required = rps_words(model["plan"]["required_rps"])
    if any(model["fleet"]["planned"].values()):
        return f"planned for {required}"
    return f"{required} expected, no instance planned for it"


def capacity_words(model: Mapping[str, Any]) -> str:
    """What instances are ready for, and what the plan expects of them."""
    ready = f"{rps_words(sum(float(row['rps']) for row in model['capacity']))} requests/s"
    return "; ".join(filter(None, (ready, expected_words(model))))


def banners(document: Mapping[str, Any]) -> tuple[Banner, ...]:
    """What a reader must see first, worst first.

    The store away; the controller gone or silent; a budget reached; dead letters and alarms; a journal that is not
    archived; spot instances leaving.
    """
    if not (document.get("store") or {}).get("reachable", True):
        return (
            Banner(
                text="The store does not answer. What stands here is the last that was seen; gateways and agents "
                "go on serving with their last view.",
                bad=True,
            ),
        )
    found = [banner for banner in (_controller_banner(document), _budget_banner(document)) if banner]
    found += alert_banners(document.get("alerts"))
    failed = (document.get("archive") or {}).get("failed")
    if failed:
        found.append(Banner(text=f"The journal is not archived, and is tried again: {failed}", bad=False))
    found += _replay_banners(document.get("replays"))
    for model in document["models"]:
        leaving = [row for row in model["fleet"]["observed"] if row.get("gone_in_s") is not None]
        if leaving:
            soonest = span_words(min(row["gone_in_s"] for row in leaving))
            what, when = "1 spot instance is", f"in {soonest}"
            if len(leaving) > 1:
                what, when = f"{len(leaving)} spot instances are", f"the first in {soonest}"
            text = f"{model['name']}: {what} being taken away, {when}."
            found.append(Banner(text=text, bad=False))
    return tuple(found)


def alert_banners(alerts: Mapping[str, Any] | None) -> list[Banner]:
    """Dead letters, and alarms that ring."""
    if not alerts:
        return []
    found = []
    letters = alerts.get("dead_letters") or 0
    if letters:
        what = (
            "1 message about instances is a dead letter"
            if letters == 1
            else f"{letters:,} messages about instances are dead letters"
        )
        found.append(Banner(text=f"{what}: queue raw-dead has what nobody could read.", bad=True))
    ringing = alerts.get("ringing") or ()
    found += [Banner(text=f"The alarm {one['name']} rings: {one['reason']}", bad=True) for one in ringing]
    if alerts.get("dead_letters") is None and alerts.get("ringing") is None:
        found.append(Banner(text=f"AWS does not say which alarms ring: {alerts.get('unknown')}", bad=False))
    return found


def _replay_banners(replays: Mapping[str, Any] | None) -> list[Banner]:
    """A past day that could not be replayed for the report."""
    failed = (replays or {}).get("failed")
    if not failed:
        return []
    text = f"The report lacks the replays of {failed['day']}, which are tried again: {failed['error']}"
    return [Banner(text=text, bad=False)]


def spent_words(document: Mapping[str, Any]) -> str:
    """`1.20 of 50.00 USD today, 12.00 this month`; empty where no budget is set or nothing is reckoned yet."""
    told = document.get("budget") or {}
    limits = {name: finite(told.get(f"{name}_usd")) for name in ("daily", "monthly")}
    if not any(limits.values()):
        return ""
    parts = []
    for spent, limit, when in (("day_usd", "daily", "today"), ("month_usd", "monthly", "this month")):
        most = limits[limit]
        of = f" of {usd(most)}" if most is not None else ""
        parts.append(f"{usd(float(told[spent]))}{of} USD {when}")
    return ", ".join(parts)


def _budget_banner(document: Mapping[str, Any]) -> Banner | None:
    told = document.get("budget") or {}
    if not told.get("reasons"):
        return None
    held = {"floor": " One instance a model stays, and Lambda is not called.", "pause": " Nothing is rented."}
    why = "; ".join(told["reasons"])
    return Banner(
        text=f"{why[:1].upper()}{why[1:]}.{held.get(told['held_back'], '')}", bad=told["held_back"] != "none"
    )


def _controller_banner(document: Mapping[str, Any]) -> Banner | None:
    controller = document.get("controller") or {}
    silent_s = finite(controller.get("silent_s"))
    if controller.get("holder") is None:
        return Banner(text="No controller holds the lease: the fleet stays as it is.", bad=True)
    if silent_s is not None and silent_s > SILENT_AFTER_S:
        return Banner(
            text=f"The controller was silent for {span_words(silent_s)}: the fleet stays as it is.",
            bad=True,
        )
    return None
