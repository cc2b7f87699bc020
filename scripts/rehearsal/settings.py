"""The service that is rolled out in a rehearsal, with bundles that hold no more than our own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from mark.aws.functions.management import pack
from mark.infra.bundles.build import NAMES
from scripts.rehearsal import ministack

HOUSE = Path(__file__).parents[2]
SERVICE = "rehearsal"
FUNCTION, ALIAS = f"mark-{SERVICE}-inception-v3", "live"
"""An alias that somebody made by hand: the stack that wants to make it fails."""
MACHINES = [{"ami": "ami-0123456789abcdef0"}, {"architecture": "arm64", "ami": "ami-0123456789abcdef1"}]
"""ministack publishes no images of its own."""
SERVED = {"model": "inception-v3", "backend": {"kind": "python", "target": "mark.models.digits:Digits"}}
"""A model that is one: an emulated one is not deployed."""
CONFIG: dict[str, Any] = {
    "service": {"name": SERVICE, "serve": [SERVED]},
    "rollout": {
        "owner": "team@example.com",
        "image": f"{ministack.ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/mark:1",
        "machines": MACHINES,
        "network": {"zones": ["us-east-1a", "us-east-1b"]},
        "functions": {"bundles": "bundles"},
        "alarms": {"to": ["team@example.com"], "max_usd_per_hour": 5},
    },
}


SHAPES: dict[str, dict[str, Any]] = {
    "ha": {"certificate": f"arn:aws:acm:us-east-1:{ministack.ACCOUNT}:certificate/0000"},
    "lean": {
        "node": {
            "name": "rehearsal.example.org",
            "certificate": f"arn:aws:secretsmanager:us-east-1:{ministack.ACCOUNT}:secret:tls-AbCdEf",
            "ami": "ami-0123456789abcdef1",
        }
    },
}
"""Settings that each shape wants beside those."""


def settings(shape: str, *, service: str = SERVICE) -> dict[str, Any]:
    """The settings, to be changed at will."""
    copy: dict[str, Any] = yaml.safe_load(yaml.safe_dump(CONFIG))
    copy["rollout"] |= {"shape": shape, **SHAPES[shape]}
    copy["service"]["name"] = service
    return copy


def lay_bundles(folder: Path) -> None:
    """Bundles with our own code: functions that are made, and never called."""
    folder.mkdir(parents=True)
    code = pack(HOUSE / "mark" / "lambda_handlers", HOUSE / "mark" / "models")
    for name in NAMES:
        (folder / f"{name}.zip").write_bytes(code)
