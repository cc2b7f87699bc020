"""`hedged` on the loads on which choices are made: `python -m scripts.development`, with MARK_DATA set.

Twitter's days 1 to 4 and two days of the World Cup, by the rows that they end at. The loads of docs/figures.md are
judged, and not to be had here. Prints a line a run: decision records compare two commits by them. One that lacks
this file is measured by its path, from a checkout of that commit:

    PYTHONPATH=../before python scripts/development.py twitter-2
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mark.cloudmodel.world import TYPICAL
from mark.domain.offerings.offering import Market
from scripts.acceptance.loads import (
    AcceptanceLoad,
    Foretold,
    experiment_of,
    keep_forecasts_in,
    spec_of,
    twitter_day,
    world_cup_day,
)

LOADS: dict[str, Callable[[], AcceptanceLoad]] = {
    **{f"twitter-{day}": partial(twitter_day, day) for day in (1, 2, 3, 4)},
    **{f"world-cup-{row}": partial(world_cup_day, row) for row in (60_000, 90_000)},
}


def main() -> None:
    """Run all that is asked for, each load's forecasts made once."""
    parser = argparse.ArgumentParser(prog="python -m scripts.development")
    parser.add_argument("loads", nargs="+", choices=sorted(LOADS), metavar="LOAD", help=", ".join(sorted(LOADS)))
    asked = parser.parse_args()
    print("load            market    serving USD in time  launches  Lambda's calls")
    with TemporaryDirectory() as kept:
        keep_forecasts_in(Path(kept))
        for name in asked.loads:
            load = LOADS[name]()
            with Foretold(load) as foretold:
                for market in Market:
                    _run(name, load, foretold, market)


def _run(name: str, load: AcceptanceLoad, foretold: Foretold, market: Market) -> None:
    spec = spec_of(load, market, world=replace(TYPICAL, quotas=()))
    run = experiment_of(spec, foretold.build).run("hedged")
    print(
        f"{name:<15} {market.value:<9} {run.cost.serving:>11,.2f} {run.attained:>7.4f} "
        f"{run.launches:>9,} {run.lambda_invocations:>15,}",
        flush=True,
    )


if __name__ == "__main__":
    main()
