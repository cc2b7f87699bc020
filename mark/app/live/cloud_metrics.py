"""What controllers tell CloudWatch of a model each minute, as lines of its embedded metric format in their log.

Burn is the share of requests that missed the objective or were shed over the share that may: 1 lasts exactly.
"""

from __future__ import annotations

import json

from mark.domain.traffic import ModelTraffic

NAMESPACE = "MArk"
BURN, SPEND, OVERFLOW, ACTING = "BurnRate", "UsdPerHour", "OverflowShare", "Acting"


def metric_line(
    service: str, before: ModelTraffic, now: ModelTraffic, *, target: float, usd_per_hour: float, at: float
) -> str:
    """One line for the time between two totals of a model's traffic. at: epoch seconds. target: in (0, 1]."""
    answered = now.answered - before.answered
    shed = now.shed - before.shed
    finished = answered + shed
    missed = now.late - before.late + shed
    values = {ACTING: 1.0, SPEND: usd_per_hour}
    if finished > 0:
        values[BURN] = missed / finished / max(1.0 - target, 1e-6)
    if answered > 0:
        values[OVERFLOW] = (now.lambda_ - before.lambda_) / answered
    described = {
        "Namespace": NAMESPACE,
        "Dimensions": [["service", "model"]],
        "Metrics": [{"Name": name} for name in values],
    }
    head = {"_aws": {"Timestamp": round(at * 1000), "CloudWatchMetrics": [described]}}
    return json.dumps({**head, "service": service, "model": now.model, **values}, separators=(",", ":"))
