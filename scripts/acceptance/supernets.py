"""Trained supernets live beside their replay: `python -m scripts.acceptance.supernets DIR`.

DIR is what `mark supernet train` wrote. Two instances serve it by `mark up`, on the loads of the study
`superserve-loads`, once by each rule and once by each fixed model. The weights answer. Each answer waits until a
machine would have given it that is so much slower than the profile's that the load is one which this machine can
send, receive and answer beside other work. The replay has the same arrivals, profile and objective. Exit status 1
where the share in time or the mean accuracy is more than a point apart.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from mark.catalog.load import load_variants
from mark.config.service import (
    BackendSettings,
    ObjectiveSettings,
    OfferingSettings,
    ServedSettings,
    ServiceSettings,
)
from mark.config.settings import Settings
from mark.config.trace import TraceSettings
from mark.domain.models.variants import VariantTable
from mark.domain.offerings.offering import Market
from mark.live.commands.rehearsal import Rehearsed, rehearse
from mark.simulator.traces.trace import Trace, read_trace, write_trace
from mark.studies.superserve.fig10 import MEAN_RPS, PEAK_RPS, by_second, compressed_rates
from mark.studies.superserve.loads import FIXED, PEAK_SHARE, front_models
from scripts.acceptance import slowed_supernet
from scripts.acceptance.loads import AZURE, TWITTER, WORLD_CUP, data_folder
from scripts.acceptance.results import ROOT
from scripts.acceptance.slowed_supernet import MODEL, WORKER

LOADS = (WORLD_CUP, TWITTER, AZURE["chat"])
OWN, ONE = "slackfit", "central:slackfit"
WORKERS, LARGEST = 2, 8
BUSIEST_RPS = 50.0
"""Of the busiest second."""
FULL_BATCHES = 4.0
"""The objective holds so many full batches of the most accurate model; that of the shipped digits holds 3.9."""
QUIET_S = 20
"""After the load: a replay counts what is answered until its end, clients all that they sent."""
APART = 0.01


def main() -> int:
    """Run each load and rule, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("supernet", type=Path, metavar="DIR", help="what `mark supernet train` wrote")
    parser.add_argument("--load", action="append", metavar="FILE", help="of $MARK_DATA; left out, three")
    parser.add_argument("--rule", action="append", help="left out, ours: with own queues, and with one")
    parser.add_argument("--fixed", type=int, default=FIXED, help="models of the front that also serve alone")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        slower, objective_s, fixed = write_slowed(asked.supernet, home, asked.fixed)
        print(f"{asked.supernet}: {slower:.0f} times slower, objective {1000 * objective_s:.0f} ms", flush=True)
        rules = (*(asked.rule or (OWN, ONE)), *(f"fixed:{one}" for one in fixed[: asked.fixed]))
        for name in asked.load or LOADS:
            file = write_load(name, asked.seconds, home)
            for rule in rules:
                print(f"{name}, {rule}, seed {asked.seed}", flush=True)
                kept &= report(rehearse(settings(home, objective_s, file, rule, asked.seed)))
    return 0 if kept else 1


def write_slowed(supernet: Path, home: Path, count: int) -> tuple[float, float, tuple[str, ...]]:
    """Write the model for the slower machine; how much slower, its objective in s, and the fixed models."""
    shutil.copytree(supernet, home / "net")
    shutil.copy(slowed_supernet.__file__, home / "serve.py")
    described = json.loads((ROOT / "models" / "supernet" / "model.json").read_text(encoding="utf-8"))
    described["models"][0]["name"] = MODEL
    (home / "model.json").write_text(json.dumps(described), encoding="utf-8")
    table = write_profile(home, 1.0)
    fixed = front_models(table, WORKER, max(2, count))
    full_s = [table.rows(WORKER)[table.number(one)][-1] for one in fixed]
    slower = PEAK_SHARE * WORKERS * LARGEST / full_s[0] / BUSIEST_RPS
    write_profile(home, slower)
    return slower, FULL_BATCHES * slower * full_s[-1], fixed


def write_load(name: str, seconds: float, folder: Path) -> str:
    """Write the last day of a trace so short, with the busiest second, and what is quiet after it."""
    rates = compressed_rates(read_trace(data_folder() / name), seconds, BUSIEST_RPS * MEAN_RPS / PEAK_RPS)
    rates_rps = np.append(by_second(rates, seconds), np.zeros(QUIET_S))
    trace = Trace(name=name, start_at=0.0, bin_s=1.0, rates_rps=rates_rps, whole_counts=False)
    write_trace(trace, file := folder / f"{name.partition('.')[0]}.csv")
    return str(file)


def write_profile(home: Path, slower: float) -> VariantTable:
    """Write the supernet's profile, so much slower and without its large batches; its table."""
    document = json.loads((home / "net" / "profile.json").read_text(encoding="utf-8"))
    for one in document["profiles"]:
        measured = {size: slower * ms for size, ms in one["latency_ms_by_batch"].items() if int(size) <= LARGEST}
        one |= {"model": MODEL, "latency_ms_by_batch": measured, "unstable_batches": []}
        one.pop("cv", None)  # of a busy machine; the world's holds
    (file := home / "profile.json").write_text(json.dumps(document), encoding="utf-8")
    table = load_variants(MODEL, [file])
    assert table is not None, "a supernet has variants"
    return table


def settings(home: Path, objective_s: float, file: str, rule: str, seed: int) -> Settings:
    """Two instances on demand all the time, and one gateway: one queue means one."""
    served = ServedSettings(
        model=MODEL, backend=BackendSettings(kind="python", target=str(home / "serve.py:model"))
    )
    return Settings(
        model=MODEL,
        models=str(home / "model.json"),
        profiles=(str(home / "profile.json"),),
        market=Market.ON_DEMAND,
        policies=(f"static:{WORKERS}",),
        offerings=OfferingSettings(types=(WORKER,), overflow=False, standby_share=0.0),
        objective=ObjectiveSettings(latency_ms=1000 * objective_s),
        dispatch=rule,
        trace=TraceSettings(file=file),
        service=ServiceSettings(name=f"supernet-{seed}", port=0, status_port=0, gateways=1, serve=(served,)),
        seed=seed,
    )


def report(rehearsed: Rehearsed) -> bool:
    """Print what both did; whether they agree."""
    load, replay = rehearsed.load, rehearsed.replay
    pairs = {
        "in time": (load["attained"] or 0.0, replay["slo"]["attained"] or 0.0),
        "accuracy": (rehearsed.live.objective.accuracy or 0.0, replay["accuracy"] or 0.0),
    }
    for name, (here, there) in pairs.items():
        print(f"  {name}: {100 * here:.2f} / {100 * there:.2f} %, {100 * (here - there):+.2f} points")
    for name in ("p50", "p99"):
        print(f"  {name}: {load['latency_ms'][name]:.0f} / {replay['latency_ms'][name]:.0f} ms")
    print(f"  {load['sent']} / {replay['requests']} sent, errors {load['errors']}")
    print(f"  {len(load['variants'])} variants answered: {load['variants']}", flush=True)
    return all(abs(here - there) <= APART for here, there in pairs.values())


if __name__ == "__main__":
    sys.exit(main())
