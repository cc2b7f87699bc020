"""Live against replay: an hour of traffic at 20x through both, several seeds (`make fidelity`).

Each seed draws other arrivals, boots, interruptions and refusals; service times have their noise. Both worlds
should agree: the total within 3 %, attainment within half a point, and the same orders by kind and offering in
every ten minutes of the trace, within two instances. Exit status 1 where one of them does not.

With --service: six models that may share instances. The total within 3 %, each model's attainment within half a
point, and the same models on the same types of shared instances in nine of ten ticks.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from mark.config.service import OfferingSettings, ServiceSettings
from mark.config.settings import FaultSettings, Settings, load_settings
from mark.config.trace import TraceSettings
from mark.domain.offerings.offering import Market
from mark.live.commands.rehearsal import Rehearsed, rehearse
from mark.live.commands.service_rehearsal import rehearse_service
from mark.report.live.formatting import components
from mark.report.live.service_rehearsal import ServiceComparison
from mark.simulator.rng import seed_of
from mark.simulator.traces.generators import mmpp
from mark.simulator.traces.trace import write_trace
from scripts.acceptance.zoo import ZooModel, write_zoo

SPEED = 20.0
"""The trace's seconds in a real one. A drain of 0.3 s takes 6 s of the trace at this speed and 3 s at half of it:
what shrinks with the speed is its cost, and no difference between the worlds."""
WARM_UP_S, SLICE_S = 3600.0, 3600.0
ATTAINED, TOTAL, INSTANCES = 0.005, 0.03, 2
PLACED_ALIKE = 0.9
MODELS = tuple(
    ZooModel(f"small-{number}", latency_ms, peak_rps, peak_hour=0.0)
    for number, (latency_ms, peak_rps) in enumerate(
        ((100.0, 8.0), (120.0, 7.0), (140.0, 6.0), (160.0, 5.0), (180.0, 4.0), (200.0, 3.0)), start=1
    )
)
"""Of the service: some four instances hold them, each several."""


def main() -> int:
    """Run the seeds and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--policy", default="hedged")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--speed", type=float, default=SPEED, help="times as fast as the trace")
    parser.add_argument("--service", action="store_true", help="six models that may share instances")
    asked = parser.parse_args()
    kept = True
    for seed in range(asked.first, asked.first + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            how = seed, Path(folder), asked.minutes * 60, asked.policy, asked.speed
            if asked.service:
                kept &= report_service(seed, rehearse_service(service_settings(*how), show_live=False))
            else:
                kept &= report(seed, rehearse(settings(*how)))
    return 0 if kept else 1


def settings(seed: int, folder: Path, duration_s: float, policy: str, speed: float) -> Settings:
    """Two states of load, changing every ten minutes or so, on spot with standbys."""
    trace = mmpp((25.0, 55.0), (600.0, 400.0), duration_s=WARM_UP_S + SLICE_S, seed=seed)
    file = folder / "trace.csv.gz"
    write_trace(trace, file)
    return Settings(
        model="inception-v3",
        market=Market.SPOT,
        policies=(policy,),
        offerings=OfferingSettings(types=("c5.large", "c5.xlarge", "c5.2xlarge")),
        trace=TraceSettings(file=str(file), start_s=WARM_UP_S, duration_s=duration_s, speed=speed),
        faults=FaultSettings(stress=1.0),
        service=ServiceSettings(name=f"fidelity-{seed}", port=0, status_port=0),
        seed=seed,
    )


def service_settings(seed: int, folder: Path, duration_s: float, policy: str, speed: float) -> Settings:
    """Small models whose loads change apart from each other, beside Lambda."""
    given = load_settings(write_zoo(folder, list(MODELS), seed), {})
    slices = {}
    for number, model in enumerate(MODELS):
        rates, means_s = (model.peak_rps / 4, model.peak_rps), (400.0 + 100.0 * number, 300.0 + 60.0 * number)
        trace = mmpp(rates, means_s, duration_s=WARM_UP_S + duration_s, seed=seed_of(seed, model.name))
        file = folder / f"{model.name}.csv.gz"
        write_trace(trace, file)
        slices[model.name] = TraceSettings(file=str(file), start_s=WARM_UP_S, duration_s=duration_s, speed=speed)
    serve = tuple(one.model_copy(update={"trace": slices[one.model]}) for one in given.service.serve)
    # one gateway: with two, clients here go to both alike, those of a replay to where the instances are
    own = {"name": f"fidelity-{seed}", "port": 0, "status_port": 0, "gateways": 1, "serve": serve}
    return given.model_copy(
        update={
            "market": Market.SPOT,
            "rollout": given.rollout.model_copy(update={"nodes": 1}),
            "policies": (policy,),
            "faults": FaultSettings(stress=1.0),
            "service": given.service.model_copy(update=own),
            "trace": given.trace.model_copy(
                update={"start_s": WARM_UP_S, "duration_s": duration_s, "speed": speed}
            ),
        }
    )


def report_service(seed: int, compared: ServiceComparison) -> bool:
    """Print one seed's differences; whether the two agree."""
    print(f"seed {seed}. {compared}", flush=True)
    for model, (live, replayed) in compared.attained.items():
        print(f"  {model} in time: {live:.4f} / {replayed:.4f}")
    for part, (live, replayed) in compared.parts_usd.items():
        print(f"  {part}, USD: {live:.4f} / {replayed:.4f}")
    for minute, both in enumerate(compared.placed):
        if minute == 0 or both != compared.placed[minute - 1]:
            print(f"  from minute {minute}, placed: {both[0]} / {both[1]}")
    return (
        abs(compared.total_apart) <= TOTAL
        and compared.most_apart[0] <= ATTAINED
        and compared.placed_alike >= PLACED_ALIKE
    )


def report(seed: int, rehearsed: Rehearsed) -> bool:
    """Print one seed's differences; whether the two agree."""
    live, replay = rehearsed.live, rehearsed.replay
    usd = {part: (amount, replay["cost_usd"][part] or 0.0) for part, _, amount in components(live.cost_usd)}
    total_apart = usd["total"][0] / (usd["total"][1] or 1.0) - 1
    clients, replayed = rehearsed.load["attained"] or 0.0, replay["slo"]["attained"] or 0.0
    orders = {
        key: (rehearsed.live_orders[key], rehearsed.replay_orders[key])
        for key in sorted(rehearsed.live_orders.keys() | rehearsed.replay_orders.keys())
    }
    most_apart = max((abs(here - there) for here, there in orders.values()), default=0)
    serving_apart = usd["serving"][0] / (usd["serving"][1] or 1.0) - 1
    in_time = (live.objective.attained or 0.0) - replayed
    cold = live.lambda_.cold / max(1, live.lambda_.invocations) - (replay["cold_start_rate"] or 0.0)
    print(
        f"seed {seed}. Live against its replay: total {total_apart:+.1%}, serving {serving_apart:+.1%}, in time "
        f"{in_time:+.2%}, cold starts {cold:+.2%}; orders in any ten minutes at most {most_apart} apart.",
        flush=True,
    )
    print(f"  in time, as clients saw it: {clients:.4f} / {replayed:.4f}")
    for part, both in usd.items():
        print(f"  {part}, USD: {both[0]:.4f} / {both[1]:.4f}")
    print(f"  by {live.by} / {replay['served']}")
    for (place, kind, offering), (here, there) in orders.items():
        if abs(here - there) > INSTANCES:
            print(f"  minutes {10 * place}-{10 * place + 10}: {kind} {offering} {here} / {there}")
    return abs(total_apart) <= TOTAL and abs(clients - replayed) <= ATTAINED and most_apart <= INSTANCES


if __name__ == "__main__":
    sys.exit(main())
