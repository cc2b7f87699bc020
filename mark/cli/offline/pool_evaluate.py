"""`mark pool evaluate`: flags and help."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from typing import Annotated

import typer

from mark.cli import options as given
from mark.cli.offline import pool_choose as flags
from mark.dispatch.central.policy import CentralRule

DISPATCH = tuple(map(str, CentralRule))

EXAMPLES = (
    'mark pool evaluate --model rm2 --slo-ms 350 --pool "g4dn.xlarge=1,r5n.large=13" --queries 2000',
    'mark pool evaluate --model wnd --slo-ms 25 --pool "g4dn.xlarge=4" --dispatch fcfs --qps 800 --json',
)


def evaluate(
    *,
    profiles: flags.Table = None,
    model: flags.Model,
    slo_ms: flags.SloMs,
    slo_target: flags.SloTarget = 0.99,
    pool: Annotated[
        str, typer.Option(metavar="TYPE=COUNT,...", help="Instances by type; the first type is the base.")
    ],
    dispatch: Annotated[
        str,
        given.choice("|".join(DISPATCH), "Rule of the central queue."),
    ] = "kairos",
    qps: Annotated[
        float | None,
        typer.Option(metavar="QPS", help="Rate to serve.  [default: search the most that keeps the objective]"),
    ] = None,
    arrivals: flags.Arrivals = "poisson",
    latency: flags.ServiceTimes = "mean",
    queries: flags.Queries = 20_000,
    sizes: flags.Sizes = "kairos",
    noise: Annotated[
        float,
        typer.Option(
            metavar="SHARE", help="Standard deviation of a query's time around its prediction, as a share of it."
        ),
    ] = 0.0,
    too_late: Annotated[
        str,
        given.choice(
            "hold|commit|overflow",
            "What becomes of a query that no instance can answer in time any more: served when an instance "
            "would idle, served in turn, or handed on and missed.",
        ),
    ] = "hold",
    feasible: Annotated[
        str,
        given.choice("earliest|latest|first", "Instance that clockwork takes among those in time."),
    ] = "earliest",
    gateways: Annotated[
        int,
        typer.Option(
            metavar="COUNT", help="Gateways that share the pool, each with a central queue of its own.", min=1
        ),
    ] = 1,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Replay queries of many sizes on a fixed pool of unlike instances.

    Without --qps it searches the most queries/s that the pool serves within the objective; with it, it says what
    share is in time at that rate (docs/papers.md).
    """
    settings = given.settings_of(locals(), "seed")
    from mark.dispatch.central import policy as central
    from mark.domain.models.objective import Slo
    from mark.offline.pool_evaluate import EvaluateOptions, evaluate_pool
    from mark.simulator.fixed import fixed_pool

    options = EvaluateOptions(
        profiles=profiles,
        model=model,
        slo=Slo(latency_s=slo_ms / 1000, target=slo_target),
        pool=pool,
        policy=central.CentralPolicy(
            rule=flags.one_of("--dispatch", dispatch, central.CentralRule),
            too_late=flags.one_of("--too-late", too_late, central.TooLate),
            feasible=flags.one_of("--feasible", feasible, central.Feasible),
        ),
        qps=qps,
        arrivals=flags.one_of("--arrivals", arrivals, fixed_pool.Arrivals),
        latency=flags.one_of("--latency", latency, fixed_pool.ServiceTimes),
        queries=queries,
        sizes=sizes,
        noise=noise,
        gateways=gateways,
        seed=settings.seed,
    )
    evaluate_pool(options, as_json=json)
