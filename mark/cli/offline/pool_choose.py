"""`mark pool choose`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from mark.cli import options as given
from mark.domain.errors import unknown

METHODS = ("kairos", "kairos+", "random", "genetic", "annealing", "bayesian")

Table = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="FILE",
        help="CSV instance_type,model,batch_size,mean_ms[,usd_per_hour][,s0,s1,...].  [default: shipped profiles]",
    ),
]
Model = Annotated[str, typer.Option(metavar="NAME", help="Model whose rows are read.")]
SloMs = Annotated[float, typer.Option(metavar="MS", help="Latency objective of a query.")]
SloTarget = Annotated[float, typer.Option(metavar="SHARE", help="Share of queries that must be in time.")]
Sizes = Annotated[
    str,
    typer.Option(
        metavar="SPEC",
        help="Sizes of queries: lognormal:MU,SIGMA,MIN,MAX, normal:MU,SIGMA,MIN,MAX, constant:N, kairos (its "
        "artifact's mix), or a CSV size,probability.",
    ),
]
Arrivals = Annotated[
    str,
    given.choice("poisson|integer", "Gaps between queries: exponential, or Poisson in whole milliseconds."),
]
ServiceTimes = Annotated[
    str,
    given.choice(
        "mean|sample|learned",
        "Time of a query: the mean of its row, or one of the row's single timings; learned: the mean, which rules "
        "know from answers alone.",
    ),
]
Queries = Annotated[int, typer.Option(metavar="NUMBER", help="Queries of one run.")]

Kind = TypeVar("Kind", bound=StrEnum)


def one_of(flag: str, value: str, kinds: type[Kind]) -> Kind:
    """The member of this value."""
    if value not in {str(kind) for kind in kinds}:
        raise unknown(flag, value, map(str, kinds))
    return kinds(value)


EXAMPLES = (
    "mark pool choose --model rm2 --slo-ms 350 --pool-usd-per-hour 2.5",
    "mark pool choose --model wnd --slo-ms 25 --pool-usd-per-hour 1.2 --method kairos+ --queries 1000 --json",
)


def choose(
    *,
    profiles: Table = None,
    model: Model,
    slo_ms: SloMs,
    slo_target: SloTarget = 0.99,
    pool_usd_per_hour: Annotated[
        float, typer.Option(metavar="USD", help="Budget: what the pool may cost an hour.")
    ],
    sizes: Sizes = "kairos",
    method: Annotated[
        str,
        given.choice(
            "|".join(METHODS), "kairos measures no pool; the others search and measure, with the same prunings."
        ),
    ] = "kairos",
    arrivals: Arrivals = "poisson",
    latency: ServiceTimes = "mean",
    queries: Queries = 20_000,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Choose the mix of instance types that serves most within a budget.

    Every mix within the budget gets an upper bound of its throughput, from latencies and sizes alone; one is
    chosen among the best bounds (docs/papers.md).
    """
    settings = given.settings_of(locals(), "seed")
    from mark.domain.models.objective import Slo
    from mark.offline.pool_choose import ChooseOptions, choose_pool
    from mark.simulator.fixed import fixed_pool

    options = ChooseOptions(
        profiles=profiles,
        model=model,
        slo=Slo(latency_s=slo_ms / 1000, target=slo_target),
        budget_usd_per_hour=pool_usd_per_hour,
        sizes=sizes,
        method=method,
        arrivals=one_of("--arrivals", arrivals, fixed_pool.Arrivals),
        latency=one_of("--latency", latency, fixed_pool.ServiceTimes),
        queries=queries,
        seed=settings.seed,
    )
    choose_pool(options, as_json=json)
