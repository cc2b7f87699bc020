"""`mark qos`: flags and help of its commands."""
# ruff: noqa: PLC0415, PLR0913 - what takes long to import is imported when it is needed; a command has many flags

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

SCHEDULERS = ("qos-fixed", "qos-heuristic", "qos-rl")

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A model with variants, of whose instances one decides for its own queue.  [default: devices of the "
        "paper]",
        autocompletion=complete.models,
    ),
]
Pool = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE=COUNT,...",
        help="Devices by type, p2.xlarge and g2.2xlarge; free ones are served in this order.  "
        "[default: p2.xlarge=1, or an instance of --model]",
    ),
]
Qps = Annotated[float, typer.Option(metavar="QPS", help="Mean queries/s of each day between 12 and 24 h.")]

TRAIN_EXAMPLES = (
    "mark qos train --trace two-days.csv.gz --qps 20 --iterations 2 --job-s 30",
    'mark qos train --trace two-days.csv.gz --pool "p2.xlarge=1,g2.2xlarge=1" --qps 9 --iterations 1 --out g.npz',
    "mark qos train --trace two-days.csv.gz --model supernet --qps 900 --iterations 1 --job-s 1 --out own.npz",
)
EVALUATE_EXAMPLES = (
    "mark qos evaluate --trace two-days.csv.gz --qps 20 --scheduler qos-heuristic --jobs 1",
    "mark qos evaluate --trace two-days.csv.gz --qps 20 --policy qos-policy.npz --jobs 1 --json",
)


def train(
    *,
    trace: given.Trace = None,
    model: Model = None,
    pool: Pool = None,
    qps: Qps,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Checkpoint to write; one that is there is gone on with.")
    ] = Path("qos-policy.npz"),
    iterations: Annotated[int, typer.Option(metavar="NUMBER", help="Iterations in all.")] = 60,
    job_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Length of a stream of queries to learn from.  [default: 600 soft deadlines]"
        ),
    ] = None,
    windowed: Annotated[
        bool,
        typer.Option(
            "--windowed", help="Learn by the paper's reward, the mean quality of the last 1000 responses."
        ),
    ] = False,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    accuracy_floor: given.AccuracyFloor = None,
    world: given.World = None,
    profiles: given.Profiles = None,
    models: given.Models = None,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Train the learned scheduler of a pool.

    Learns from the first half of the trace's last eight days which batch to take and which model answers it. With
    --model it is a policy of that model's instances, for the dispatch rule qos-rl.
    Interrupted, it goes on from its last checkpoint when it is called again (docs/papers.md).
    """
    settings = given.settings_of(
        locals(), "trace", "model", "slo_ms", "slo_target", "accuracy_floor", "world", "profiles", "models", "seed"
    )
    from mark.offline.qos import TrainOptions, train_scheduler

    options = TrainOptions(
        model=model, pool=pool, qps=qps, out=out, iterations=iterations, job_s=job_s, windowed=windowed
    )
    train_scheduler(options, settings, as_json=json)


def evaluate(
    *,
    trace: given.Trace = None,
    model: Model = None,
    pool: Pool = None,
    qps: Qps,
    scheduler: Annotated[
        str,
        given.choice("|".join(SCHEDULERS), "Scheduler to judge."),
    ] = "qos-rl",
    policy: Annotated[Path, typer.Option(metavar="FILE", help="What `mark qos train` wrote, for qos-rl.")] = Path(
        "qos-policy.npz"
    ),
    jobs: Annotated[int, typer.Option(metavar="NUMBER", help="Streams in each period of three hours.")] = 3,
    job_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Length of a stream of queries.  [default: 600 soft deadlines]"),
    ] = None,
    slo_ms: given.SloMs = None,
    slo_target: given.SloTarget = None,
    accuracy_floor: given.AccuracyFloor = None,
    world: given.World = None,
    profiles: given.Profiles = None,
    models: given.Models = None,
    seed: given.Seed = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Judge a quality-aware scheduler on days that none learned from.

    Prints the mean quality of responses: the weight of the model that answered times the utility of the delay,
    which falls from 1 at 1 s to 0 at 2 s, with --model from the soft deadline to the hard one (docs/papers.md).
    """
    settings = given.settings_of(
        locals(), "trace", "model", "slo_ms", "slo_target", "accuracy_floor", "world", "profiles", "models", "seed"
    )
    from mark.offline.qos import EvaluateOptions, evaluate_scheduler

    options = EvaluateOptions(
        model=model, pool=pool, qps=qps, scheduler=scheduler, policy=policy, jobs=jobs, job_s=job_s
    )
    evaluate_scheduler(options, settings, as_json=json)
