"""MArk's figure 8, its half under a Markov-modulated load of 4 h; the Twitter half is drawn with table 5.

The paper draws the latencies and gives no parameters of its load, so nothing published stands beside ours but what
the text claims. The states' shares and stays are ours, and stated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mark.simulator.experiment import Experiment
from mark.simulator.results import RunResult
from mark.simulator.traces.generators import mmpp
from mark.simulator.workload import Workload
from mark.studies.measures import Where, ccdf_plot, cut_rows, latency_rows
from mark.studies.plot import Plot
from mark.studies.published import MODELS, ONDEMAND, SAGEMAKER, SLO_CLAIM, SYSTEMS
from mark.studies.setups import SETUPS, assumptions, of_system, run_notes, run_system
from mark.studies.study import Row, Study, StudyContext, View

HOUR_S = 3600.0
FORESEEN = f"{ONDEMAND}, perfect forecast"
"""Not in the paper: how much of the latency is the forecast's doing."""
ARTIFACT_SCALE = {"inception-v3": 1.8, "nasnet": 0.5, "lstm-ptb": 3.0, "opennmt-ende": 0.5}
"""Factor of the paper's artifact on its trace for each model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fig8Parameters:
    """The load: states of `levels` x the model's mean rate, left after `stays_s` on average.

    The mean rate is `unit_rps` x the artifact's factor of the model. `history_s` is what the LSTM learns from:
    24 h in the paper (section 5.2).
    """

    models: tuple[str, ...] = MODELS
    levels: tuple[float, ...] = (0.5, 1.0, 2.0)
    stays_s: tuple[float, ...] = (1800.0, 1800.0, 1800.0)
    unit_rps: float = 60.0
    duration_s: float = 4 * HOUR_S
    history_s: float = 24 * HOUR_S

    @property
    def mean_level(self) -> float:
        """The long-run mean of the levels: every state is entered equally often."""
        return sum(a * b for a, b in zip(self.levels, self.stays_s, strict=True)) / sum(self.stays_s)


_VIEW = View(
    title="Latency, its cut against SageMaker, and cost (the paper draws the latencies)",
    index=("model", "system"),
    quantities=(
        "mean_ms",
        "p50_ms",
        "p98_ms",
        "p99_ms",
        "attained",
        "mean_cut_percent",
        "p99_cut_percent",
        "total_usd",
        "ratio",
    ),
)


def mark_fig8(context: StudyContext, parameters: Fig8Parameters | None = None) -> Study:
    """Run it."""
    asked = parameters or Fig8Parameters()
    rows: list[Row] = []
    plots: list[Plot] = []
    assumed: dict[str, None] = {}
    for place, name in enumerate(asked.models):
        runs: dict[str, tuple[Experiment, RunResult]] = {}
        for step, system in enumerate((*SYSTEMS, FORESEEN)):
            context.progress(f"{name}: {system}", (place + step / 4) / len(asked.models))
            setup = replace(SETUPS[name], oracle=system == FORESEEN)
            paper = ONDEMAND if system == FORESEEN else system
            given = of_system(context, setup, paper, _load(context, asked, name))
            runs[system] = given, run_system(given, setup, paper)
            assumed |= dict.fromkeys(given.supply.assumed)
        rows.extend(_model_rows(name, runs))
        results = {system: result for system, (_, result) in runs.items()}
        plots.append(ccdf_plot(f"mark-fig8-{name}", f"{name}, MMPP", results))
    return Study(
        name="mark-fig8",
        title="MArk, figure 8: latency and cost under MMPP load",
        rows=tuple(rows),
        assumptions=(
            *_load_said(asked),
            *assumptions(tuple(SETUPS[name] for name in asked.models)),
            *(f"Assumed profile: {formula}" for formula in assumed),
        ),
        views=(_VIEW,),
        series=tuple(plots),
    )


def _load(context: StudyContext, asked: Fig8Parameters, name: str) -> Workload:
    mean_rps = asked.unit_rps * ARTIFACT_SCALE[name]
    rates = [mean_rps * level / asked.mean_level for level in asked.levels]
    trace = mmpp(rates, asked.stays_s, duration_s=asked.history_s + asked.duration_s, seed=context.seed)
    return Workload(trace=trace, seed=context.seed, start_s=asked.history_s)


def _load_said(asked: Fig8Parameters) -> tuple[str, ...]:
    levels = "/".join(f"{level / asked.mean_level:.2g}" for level in asked.levels)
    stays = "/".join(f"{stay:g}" for stay in asked.stays_s)
    rates = ", ".join(f"{name} {asked.unit_rps * ARTIFACT_SCALE[name]:g}" for name in asked.models)
    return (
        (
            f"Load: MMPP, {asked.duration_s / HOUR_S:g} h after {asked.history_s / HOUR_S:g} h of history; the "
            f"paper does not state its parameters. Ours: states of {levels} x the mean, mean stays {stays} s."
        ),
        f"Rates: unstated. Long-run means in the proportions of the paper's artifact, requests/s: {rates}.",
    )


def _model_rows(name: str, runs: dict[str, tuple[Experiment, RunResult]]) -> Iterator[Row]:
    rival = runs[SAGEMAKER][1]
    for system, (given, result) in runs.items():
        where: Where = (("model", name), ("system", system))
        yield from latency_rows(where, result, SLO_CLAIM.get(system))
        yield Row(where, "total_usd", result.cost.total, notes=run_notes(given, result))
        if system != SAGEMAKER:
            yield from cut_rows(where, result, rival)
            yield Row(where, "ratio", rival.cost.total / result.cost.total)
