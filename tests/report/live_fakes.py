"""Live documents as `mark status --json` prints them: a service that is empty, busy, or being interrupted."""

from __future__ import annotations

from typing import Any

NOW = 1_770_000_030.0
UNIT_S = 60
OFFERINGS = {"c5.large:spot": (2.4, 0.035), "c5.xlarge:spot": (4.8, 0.07), "t3.xlarge:spot": (4.4, 0.05)}


def empty_model(name: str = "inception-v3") -> dict[str, Any]:
    """A model that nobody has asked yet and no controller has planned."""
    return {
        "name": name,
        "policy": None,
        "market": None,
        "objective": {
            "latency_ms": 600.0, "target": 0.98, "answered": 0, "late": 0, "shed": 0, "attained": None,
        },
        "rates": {"now_rps": 0.0, "last_minute_rps": 0.0, "max_rps": 0.0},
        "series": {
            "start_at": 0.0, "unit_s": UNIT_S, "mean_rps": [], "max_rps": [], "capacity_rps": [],
            "forecast_start_at": 0.0, "forecast_max_rps": [], "forecaster": "",
        },
        "assumed": None,
        "latency_ms": dict.fromkeys(("mean", "p50", "p95", "p98", "p99")),
        "by": {"instance": 0, "standby": 0, "lambda": 0, "shed": 0},
        "failed": 0,
        "rejected": 0,
        "redispatched": 0,
        "lambda": {"in_flight": 0, "warm": 0, "invocations": 0, "cold": 0},
        "fleet": {"planned": {}, "requested": {}, "observed": []},
        "capacity": [],
        "cost_usd": dict.fromkeys(("instances", "standby", "lambda", "serving", "overhead", "total"), 0.0),
        "usd_per_hour": 0.0,
        "usd_per_hour_by": {"instances": 0.0, "lambda": 0.0, "overhead": 0.0, "mean_over_s": 0.0},
        "plan": None,
        "decisions": [],
        "notes": [],
    }  # fmt: skip


def busy_model(name: str = "inception-v3") -> dict[str, Any]:
    """An hour of load that rises and surges, seven instances, a forecast of 20 minutes."""
    mean = [28 + 9 * ((7 * n) % 5 - 2) / 5 + n * 0.2 + (16 if 38 <= n <= 46 else 0) for n in range(60)]
    capacity: list[float | None] = [None, *(48.0 if n < 40 else 67.2 for n in range(1, 60))]
    start_at = NOW // UNIT_S * UNIT_S - 60 * UNIT_S
    observed = [instance(n, "c5.large:spot") for n in range(9)]
    observed += [instance(20 + n, "c5.xlarge:spot", state="pending" if n > 7 else "ready") for n in range(9)]
    observed += [instance(40, "t3.xlarge:spot", role="standby", state="stopped", credits=144.0)]
    return {
        **empty_model(name),
        "policy": "mark",
        "market": "spot",
        "objective": {
            "latency_ms": 600.0, "target": 0.98, "answered": 123_456, "late": 402, "shed": 17,
            "attained": 123_054 / 123_476,
        },
        "rates": {"now_rps": 41.2, "last_minute_rps": 40.1, "max_rps": 55.0},
        "series": {
            "start_at": start_at, "unit_s": UNIT_S, "mean_rps": mean, "max_rps": [r * 1.25 for r in mean],
            "capacity_rps": capacity, "forecast_start_at": start_at + 60 * UNIT_S,
            "forecast_max_rps": [50 + n * 0.3 for n in range(20)],
            "forecaster": "lstm-vanilla: under a day of history, last hour's maximum",
        },
        "latency_ms": {"mean": 212.4, "p50": 190.0, "p95": 404.0, "p98": 512.0, "p99": 571.0},
        "by": {"instance": 118_330, "standby": 2_100, "lambda": 3_026, "shed": 17},
        "failed": 3,
        "rejected": 4,
        "redispatched": 12,
        "lambda": {"in_flight": 2, "warm": 5, "invocations": 3_104, "cold": 7},
        "fleet": {
            "planned": {"c5.large:spot": 10, "c5.xlarge:spot": 9},
            "requested": {"c5.large:spot": 1},
            "observed": observed,
        },
        "capacity": capacity_rows(observed),
        "cost_usd": {
            "instances": 1.8342, "standby": 0.0121, "lambda": 0.1034, "serving": 1.9497, "overhead": 0.412,
            "total": 2.3617,
        },
        "usd_per_hour": 0.987,
        "usd_per_hour_by": {"instances": 0.795, "lambda": 0.122, "overhead": 0.07, "mean_over_s": 7500.0},
        "plan": {
            "at": NOW + 270, "made_at": NOW - 30, "required_rps": 55.4, "capacity_rps": 67.2, "usd_per_hour": 0.98,
            "reason": "the highest minute within the lead of 5 minutes, 55.4 requests/s",
        },
        "decisions": [
            {"at": NOW - 30, "kind": "launch", "what": "1 c5.large:spot",
             "reason": "55.4 requests/s are expected at 02:42, the fleet carries 52.8"},
            {"at": NOW - 400, "kind": "warm-lambda", "what": "5 environments", "reason": "a surge of 12/s"},
            {"at": NOW - 1000, "kind": "terminate", "what": "i-0000000000000000c",
             "reason": "not needed for 10 minutes"},
        ],
        "notes": ["profile of t3.xlarge is assumed: nobody measured it", "backend is emulated: it answers zeros"],
    }  # fmt: skip


def instance(number: int, offering: str, **changed: Any) -> dict[str, Any]:
    """One observed instance, serving and ready unless changed."""
    row = {"id": f"i-{number:017x}", "offering": offering, "role": "serving", "state": "ready"}
    return {**row, "gone_in_s": None, "credits": None, **changed}


def capacity_rows(observed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the view makes of the instances."""
    rows = []
    for offering, (rps, usd) in OFFERINGS.items():
        states = [row["state"] for row in observed if row["offering"] == offering]
        counts = {state: states.count(state) for state in ("ready", "pending", "draining", "stopped")}
        billed = len(states) - counts["stopped"]
        rows.append({"offering": offering, **counts, "rps": counts["ready"] * rps, "usd_per_hour": billed * usd})
    return rows


def interrupted_model(name: str = "inception-v3") -> dict[str, Any]:
    """Four spot instances have their notice, a standby wakes, the objective is missed."""
    model = busy_model(name)
    observed = [
        {**row, "gone_in_s": 80.0 + n} if n in (1, 2, 4, 6) else row
        for n, row in enumerate(model["fleet"]["observed"])
    ]
    observed[-1] = {**observed[-1], "state": "pending"}
    observed[5] = {**observed[5], "state": "draining"}
    return {
        **model,
        "objective": {**model["objective"], "late": 3_100, "attained": 120_356 / 123_476},
        "latency_ms": {"mean": 312.4, "p50": 290.0, "p95": 584.0, "p98": 812.0, "p99": 1171.0},
        "fleet": {**model["fleet"], "requested": {"c5.large:spot": 5}, "observed": observed},
        "capacity": capacity_rows(observed),
    }


def document(*models: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A service of these models, its controller at work."""
    return {
        "service": "mark",
        "now": NOW,
        "speed": 1.0,
        "clock_stands": False,
        "behind_wall_s": 3.0,
        "controller": {"holder": "controller-0", "silent_s": 4.2},
        "store": {"reachable": True},
        "models": list(models),
        **changed,
    }
