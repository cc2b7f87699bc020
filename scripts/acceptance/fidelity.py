"""Live against replay: an hour of traffic at 20x through both, several seeds (`make fidelity`).

Each seed draws other arrivals, boots and interruptions. Both worlds should agree: attainment within a point, cost
within 5 %, and the same orders by kind and offering in every ten minutes of the trace, within one instance. Exit
status 1 where one of them does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from mark.config.service import OfferingSettings, ServiceSettings
from mark.config.settings import FaultSettings, Settings, TraceSettings
from mark.domain.offering import Market
from mark.live.commands.rehearsal import Rehearsed, largest_difference, rehearse
from mark.simulator.traces.generators import mmpp
from mark.simulator.traces.trace import write_trace

SPEED = 20.0
WARM_UP_S, SLICE_S = 3600.0, 3600.0
POINT, COST, INSTANCES = 0.01, 0.05, 1


def main() -> int:
    """Run the seeds and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--policy", default="mark")
    asked = parser.parse_args()
    print("seed  attained live/replay    serving USD live/replay   orders differ by at most")
    kept = True
    for seed in range(1, asked.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            rehearsed = rehearse(settings(seed, Path(folder), asked.minutes * 60, asked.policy), show_live=False)
        kept &= report(seed, rehearsed)
    return 0 if kept else 1


def settings(seed: int, folder: Path, duration_s: float, policy: str) -> Settings:
    """Two states of load, changing every ten minutes or so, on spot with standbys."""
    trace = mmpp((25.0, 55.0), (600.0, 400.0), duration_s=WARM_UP_S + SLICE_S, seed=seed)
    file = folder / "trace.csv.gz"
    write_trace(trace, file)
    return Settings(
        model="inception-v3",
        market=Market.SPOT,
        policies=(policy,),
        offerings=OfferingSettings(types=("c5.large", "c5.xlarge", "c5.2xlarge")),
        trace=TraceSettings(file=str(file), start_s=WARM_UP_S, duration_s=duration_s, speed=SPEED),
        faults=FaultSettings(stress=1.0),
        service=ServiceSettings(name=f"fidelity-{seed}", port=0, status_port=0),
        seed=seed,
    )


def report(seed: int, rehearsed: Rehearsed) -> bool:
    """Print one seed's line; whether everything agrees."""
    live, replay = rehearsed.live, rehearsed.replay
    attained = rehearsed.load["attained"], replay["slo"]["attained"]
    usd = live["cost_usd"]["serving"], replay["cost_usd"]["serving"]
    orders = largest_difference(rehearsed.live_orders, rehearsed.replay_orders)
    cost = f"{usd[0]:.4f} / {usd[1]:.4f} ({usd[0] / usd[1]:.3f})"
    print(f"{seed:4d}  {attained[0]:.4f} / {attained[1]:.4f}        {cost}        {orders}", flush=True)
    parts = ", ".join(
        f"{part} {live['cost_usd'][part]:.4f} / {replay['cost_usd'][part]:.4f}"
        for part in ("instances", "standby", "lambda")
    )
    print(f"      {parts}; by {live['by']} / {replay['served']}", flush=True)
    for key in sorted(rehearsed.live_orders.keys() | rehearsed.replay_orders.keys()):
        here, there = rehearsed.live_orders[key], rehearsed.replay_orders[key]
        if abs(here - there) > INSTANCES:
            print(f"      minutes {10 * key[0]}-{10 * key[0] + 10}: {key[1]} {key[2]} {here} / {there}")
    agrees = abs(attained[0] - attained[1]) <= POINT and abs(usd[0] / usd[1] - 1) <= COST
    return agrees and orders <= INSTANCES


if __name__ == "__main__":
    sys.exit(main())
