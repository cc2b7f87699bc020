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

from mark.catalog.type_sets import CPU, PAPER
from mark.cloudmodel.world import TYPICAL
from mark.domain.offering import Market
from mark.studies.setups import SETUPS
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
    asked = _arguments()
    print("load            model         market    serving USD in time  launches  Lambda's calls")
    with TemporaryDirectory() as kept:
        keep_forecasts_in(asked.forecasts or Path(kept))
        for name in asked.loads:
            load = LOADS[name]()
            with Foretold(load) as foretold:
                for model in asked.model:
                    for market in asked.market:
                        _run(name, load, foretold, asked, model=model, market=Market(market))


def _run(
    name: str, load: AcceptanceLoad, foretold: Foretold, asked: argparse.Namespace, *, model: str, market: Market
) -> None:
    world = TYPICAL if asked.quotas else replace(TYPICAL, quotas=())
    spec = spec_of(load, market, model, types=(asked.types,) if asked.types else (), world=world)
    run = experiment_of(spec, foretold.build).run("hedged")
    print(
        f"{name:<15} {model:<13} {market.value:<9} {run.cost.serving:>11,.2f} {run.attained:>7.4f} "
        f"{run.launches:>9,} {run.lambda_invocations:>15,}",
        flush=True,
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.development")
    parser.add_argument("loads", nargs="+", choices=sorted(LOADS), metavar="LOAD", help=", ".join(sorted(LOADS)))
    parser.add_argument("--model", nargs="+", choices=sorted(SETUPS), default=["inception-v3"])
    parser.add_argument(
        "--market", nargs="+", choices=[m.value for m in Market], default=[m.value for m in Market]
    )
    parser.add_argument("--types", choices=(CPU, PAPER), help="of all current types with a profile, these")
    parser.add_argument("--quotas", action="store_true", help="the account's quotas are at their default")
    parser.add_argument("--forecasts", type=Path, help="folder that keeps forecasts for the next run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
