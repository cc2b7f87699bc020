"""Sensitivity to the constants of sharing: `hedged` on zoos (`zoo.py`), one constant changed at a time.

`python -m scripts.acceptance.sharing_constants FOLDER --seeds 11 12 13 --constant MOST_BUSY --values 0.5 0.6 0.7`

Each line is one zoo: serving and total in USD, the share in time of the worst model, models that miss their
objective, and instances rented. What is measured is kept in FOLDER, so the same command goes on where it was
stopped. Seeds 1 to 31 have been looked at.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import yaml

from mark.config.settings import load_settings
from mark.controller.hosts import sharing
from mark.domain.offerings.offering import Market
from mark.offline.simulate_service import ServiceReplays
from scripts.acceptance.zoo import DAY_S, GPU_MODELS, GPUS, draw, draw_for_gpus, write_zoo

CONSTANTS = ("MOST_BUSY", "MOST_BUSY_BACKED", "PLAN_HOURS", "BLOCK_UNITS", "BATCH_SHARE", "OWN_BUSY")
BEGIN_S = 8 * 3600.0
"""Of the second day, whose peaks lie at any hour."""
KINDS = ("cpu", "mixed", "alone", "gpu")
"""`mixed`, `alone`: the CPU zoo, every other model or all without Lambda."""


def main() -> None:
    """Measure what is not there yet, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=KINDS, default="cpu")
    parser.add_argument("--market", choices=[market.value for market in Market], default=Market.ON_DEMAND.value)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--constant", choices=CONSTANTS, required=True)
    parser.add_argument("--values", type=float, nargs="+", required=True)
    parser.add_argument("--hours", type=float, default=4.0)
    given = parser.parse_args()
    for seed in given.seeds:
        for value in given.values:
            label = f"{given.kind}, {given.market}, {given.hours:g} h, seed {seed}, {given.constant} {value:g}"
            kept = given.folder / f"{label}.json"
            if not kept.is_file():
                zoo = zoo_of(given.folder, given.kind, seed)
                with patch.object(sharing, given.constant, type(getattr(sharing, given.constant))(value)):
                    figures = figures_of(zoo, given.kind, given.market, given.hours)
                kept.write_text(json.dumps(figures))
            serving_usd, total_usd, worst, missed, rented = json.loads(kept.read_text())
            print(f"{label}: {serving_usd:.3f}  {total_usd:.3f}  {worst:.4f}  {missed}  {rented:.2f}", flush=True)


def zoo_of(folder: Path, kind: str, seed: int) -> Path:
    """Settings of the zoo of this seed, written where it is not there yet."""
    place = folder / f"{kind}-{seed}"
    if (place / "service.yaml").is_file():
        return place / "service.yaml"
    if kind == "gpu":
        return write_zoo(place, draw_for_gpus(seed, GPU_MODELS), seed, GPUS)
    written = write_zoo(place, draw(seed, 17, 3), seed)
    if kind == "mixed":
        given = yaml.safe_load(written.read_text())
        for model in given["service"]["serve"][1::2]:
            model["offerings"] = given["offerings"] | {"overflow": False}
        written.write_text(yaml.safe_dump(given))
    return written


def figures_of(zoo: Path, kind: str, market: str, hours: float) -> Sequence[float]:
    """Serving and total in USD, the worst model's share in time, models that miss, and instances rented."""
    flags = {
        "market": market,
        "policies": ["hedged"],
        "forecaster": "moving-mean",  # a learned one takes minutes to train for each model
        "trace.start_s": DAY_S + BEGIN_S,
        "trace.duration_s": hours * 3600.0,
    }
    if kind in ("alone", "gpu"):
        flags["offerings.overflow"] = False
    settings = load_settings(zoo, {key: ("", value) for key, value in flags.items()})
    replays = ServiceReplays.of(settings, compare=False)
    [run] = list(replays.run(lambda _label, _share: None))[-1]
    worst = min(model.attained for model in run.models if model.attained is not None and model.is_sure)
    missed = sum(not model.keeps_objective for model in run.models)
    return run.cost.serving, run.cost.total, worst, missed, run.instances_rented


if __name__ == "__main__":
    main()
