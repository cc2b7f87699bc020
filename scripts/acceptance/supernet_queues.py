"""Supernets in replays, with a queue an instance and with one: `python -m scripts.acceptance.supernet_queues`.

The loads are those of the study `superserve-loads`, for each number of instances. One queue is also taken to cost
what a live gateway's does: a way to the instance and back between two batches, and a queue of each gateway where
there are two, which get half of the requests each and share the instances.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mark.catalog.load import load_variants
from mark.catalog.shipped_models import PROFILE_FILE
from mark.cloudmodel.world import TYPICAL
from mark.config.policies import chosen_overrides
from mark.config.service import OfferingSettings
from mark.config.settings import Settings
from mark.config.trace import TraceSettings
from mark.domain.offerings.offering import Market
from mark.offline.experiments import make_experiment
from mark.simulator.traces.trace import Trace, read_trace, write_trace
from mark.studies.superserve.fig10 import MEAN_RPS, PEAK_RPS, by_second, compressed_rates
from mark.studies.superserve.loads import MODELS, PEAK_SHARE, WORKER, front_models
from scripts.acceptance.loads import AZURE, TWITTER, WORLD_CUP, data_folder
from scripts.acceptance.results import ROOT

LOADS = (WORLD_CUP, TWITTER, AZURE["chat"])
OWN, ONE = "slackfit", "central:slackfit"
HOP_MS = 1000 * TYPICAL.network_s


class Served(NamedTuple):
    """Shares of a replay: in time, and right of what was answered."""

    attained: float
    accuracy: float


def main() -> None:
    """Print a line for each model, number of instances, load and queue: means, least and most of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3, 4, 8])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--hop-ms", type=float, default=HOP_MS, help="to an instance and back")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for model in asked.models:
            hop = write_hop(model, asked.hop_ms, Path(folder))
            for workers in asked.workers:
                for name in LOADS:
                    file = write_load(name, peak_rps(model, workers), asked.seconds, Path(folder))
                    print(f"{model}, {workers} instances, {name}", flush=True)
                    tell("own queues", [replayed(model, OWN, workers, file, seed) for seed in asked.seeds])
                    tell("one queue", [replayed(model, ONE, workers, file, seed) for seed in asked.seeds])
                    far = [replayed(model, ONE, workers, file, seed, profile=hop) for seed in asked.seeds]
                    tell(f"one queue, {asked.hop_ms:g} ms away", far)
                    if workers > 1:
                        tell("a queue of each of two", [split(model, workers, file, seed) for seed in asked.seeds])


def tell(name: str, runs: list[Served]) -> None:
    """Print means, and the least and the most."""
    in_time, accuracy = 100 * np.array(runs).T
    right = float((in_time * accuracy).mean()) / 100
    print(
        f"  {name}: in time {in_time.mean():.2f} ({in_time.min():.2f} to {in_time.max():.2f}), accuracy "
        f"{accuracy.mean():.2f} ({accuracy.min():.2f} to {accuracy.max():.2f}), right and in time {right:.2f} %",
        flush=True,
    )


def replayed(
    model: str, rule: str, workers: int, file: str, seed: int, *, scale: float = 1.0, profile: str = ""
) -> Served:
    """So many instances all the time."""
    settings = Settings(
        model=model,
        profiles=(profile,) if profile else (),
        market=Market.ON_DEMAND,
        policies=(f"static:{workers}",),
        offerings=OfferingSettings(types=(WORKER,), overflow=False, standby_share=0.0),
        dispatch=rule,
        trace=TraceSettings(file=file, scale=scale),
        seed=seed,
    )
    run = make_experiment(settings).run(settings.policies[0], overrides=chosen_overrides(settings))
    return Served(run.attained, run.accuracy or 0.0)


def split(model: str, workers: int, file: str, seed: int) -> Served:
    """Two gateways, a queue each: half of the requests, and as equal a share of the instances as there is."""
    halves = [replayed(model, ONE, part, file, seed, scale=0.5) for part in (workers - workers // 2, workers // 2)]
    return Served(*np.mean(halves, axis=0))


def write_hop(model: str, hop_ms: float, folder: Path) -> str:
    """The model's profile with the way to the instance and back in each batch."""
    shipped = ROOT / "models" / model.replace("-", "_") / PROFILE_FILE
    document = json.loads(shipped.read_text(encoding="utf-8"))
    for one in document["profiles"]:
        one["latency_ms_by_batch"] = {size: ms + hop_ms for size, ms in one["latency_ms_by_batch"].items()}
    (file := folder / f"{model}.json").write_text(json.dumps(document), encoding="utf-8")
    return str(file)


def peak_rps(model: str, workers: int) -> float:
    """The study's share of what so many instances carry with the cheapest model."""
    table = load_variants(model)
    assert table is not None, f"{model} has variants"
    full_s = table.rows(WORKER)[table.number(front_models(table, WORKER)[0])][-1]
    return PEAK_SHARE * workers * table.max_batch / full_s


def write_load(name: str, busiest_rps: float, seconds: float, folder: Path, *, quiet_s: int = 0) -> str:
    """Write the last day of a trace so short, with that busiest second, and as many without requests after it."""
    rates = compressed_rates(read_trace(data_folder() / name), seconds, busiest_rps * MEAN_RPS / PEAK_RPS)
    rates_rps = np.append(by_second(rates, seconds), np.zeros(quiet_s))
    trace = Trace(name=name, start_at=0.0, bin_s=1.0, rates_rps=rates_rps, whole_counts=False)
    write_trace(trace, file := folder / f"{name.partition('.')[0]}.csv")
    return str(file)


if __name__ == "__main__":
    main()
