"""The figures on real traces: `make acceptance`, with MARK_DATA naming the folder that holds them.

Inception-v3 on one day of the Twitter trace under every policy, on demand and on spot; the other days and the last
day of each slice of the World Cup trace under `mark`. Each line ends with what it has to reach.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mark.app.plugins import build_forecaster
from mark.app.settings import cache_dir
from mark.catalog.load import model
from mark.domain.offering import Market
from mark.simulator.compiled import compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.results import RunResult
from mark.simulator.traces import Trace, read_trace
from mark.simulator.workload import Workload

DAY_S = 86_400.0
TWITTER, WORLD_CUP = "twitter_2021_08_d01_07_1s.csv.gz", "worldcup98_1min.csv.gz"
JUDGED_DAY = 5
SLICE_ENDS = (33_270, 54_870, 75_030, 105_270, 123_990)
"""Rows at which the World Cup slices end (the trace's README)."""
RATIOS = {Market.ON_DEMAND: 1.45, Market.SPOT: 2.8}


def main() -> None:
    """All acceptance figures of the replay."""
    folder = os.environ.get("MARK_DATA")
    if not folder:
        sys.exit("set MARK_DATA to the folder that holds traces/")
    twitter = read_trace(Path(folder) / "traces" / TWITTER)
    for market in Market:
        judged_day(twitter, market)
    for day in (1, 2, 3, 4, 6):
        one_day(twitter, f"twitter day {day}", day * DAY_S)
    world_cup = read_trace(Path(folder) / "traces" / WORLD_CUP)
    for row in SLICE_ENDS:
        one_day(world_cup, f"worldcup98 to row {row}", row * 60.0 - DAY_S)


def judged_day(trace: Trace, market: Market) -> None:
    """Every policy on the judged day: the order of the costs and the ratio to SageMaker."""
    experiment = prepare(trace, JUDGED_DAY * DAY_S, market)
    bound, floor = experiment.bounds()
    assert bound is not None
    assert floor is not None
    names = ("mark", "greedy-oracle", "sagemaker", "reactive", "static-peak", "lambda-only")
    runs = {name: experiment.run(name) for name in names}
    print(f"\n{TWITTER}, day {JUDGED_DAY}, {market.value}: bound {bound:.2f}, floor {floor:.2f} USD")
    for name, run in runs.items():
        print(line(name, run) + f"  {run.cost.serving / bound:.2f}x bound")
    ratio = runs["sagemaker"].cost.total / runs["mark"].cost.total
    print(f"sagemaker / mark {ratio:.2f} (>= {RATIOS[market]})")
    serving = [bound, runs["greedy-oracle"].cost.serving, runs["mark"].cost.serving]
    dearer = min(runs[name].cost.total for name in ("lambda-only", "sagemaker", "static-peak"))
    ordered = serving == sorted(serving) and runs["mark"].cost.total < dearer
    print(f"bound <= greedy-oracle <= mark < lambda-only, sagemaker, static-peak: {ordered}")


def one_day(trace: Trace, label: str, start_s: float) -> None:
    """`mark` on one day: its attainment."""
    run = prepare(trace, start_s, Market.ON_DEMAND).run("mark")
    print(line(label, run) + "  (>= 0.98)", flush=True)


def prepare(trace: Trace, start_s: float, market: Market) -> Experiment:
    """Inception-v3 on one day."""
    spec = model("inception-v3")
    return Experiment(
        ExperimentSpec(
            model=spec,
            slo=spec.slo,
            market=market,
            workload=Workload(trace=trace, seed=1, start_s=start_s, duration_s=DAY_S),
            cache_dir=cache_dir(),
        ),
        kernel=compiled_kernel(cache_dir()),
        build_forecaster=build_forecaster,
    )


def line(label: str, run: RunResult) -> str:
    """One run in a line."""
    return (
        f"{label:<26} total {run.cost.total:8.2f} USD  attained {run.attained:.4f}  shed {run.served.shed:>7,}"
        f"  p99 {run.latency.p99_s * 1000:7.0f} ms  {run.wall_s:4.1f} s"
    )


if __name__ == "__main__":
    main()
