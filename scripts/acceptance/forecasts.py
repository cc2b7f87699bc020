"""Out-of-sample accuracy of the forecasters, on held-out windows: a part of `make acceptance`.

Every family on slices of the World Cup trace and the second week of the Twitter trace, asked through its port as
the controller asks it. Times are measured by themselves, of one process on one core.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mark.domain.demand import HORIZON, KEEP_HISTORY, Demand
from mark.offline.forecast.forecasters import Built, build
from mark.ports import Forecaster
from mark.simulator.backtest import KEPT_LEVELS, TARGETS, BacktestScores, BacktestSpan, run_backtest
from mark.simulator.backtest_span import make_span
from mark.simulator.workload import Workload
from scripts.acceptance.figures_page import Check, FigureTable, Row, Tables, part_tables
from scripts.acceptance.loads import SEED, TWITTER, TWITTER_TWO_WEEKS, WORLD_CUP, Remembering, trace_of

DAY_MIN = 1440
SIMPLE = ("last-value", "moving-mean")
CLASSICAL = (*SIMPLE, "drift", "seasonal-naive", "seasonal", "seasonal-median", "holt-winters", "autoregression")
BESIDE = ("ridge", "boosted", "clock-bursts", "lstm-vanilla")
"""Shown beside the classical families; singles for the mixture to beat, too."""
LEARNED = ("lstm", "mixture")
EVERY_MIN = 7
"""An origin so often: no divisor of an hour or a day, so that every minute of the hour has its turn."""
LEADS = (1, 5)
UPDATES = 40
NIGHT = ((84_660.0, 86_400.0),)
"""Of the Twitter trace: filled in by its collectors, not measured."""
COVERED = KEPT_LEVELS.index(0.9)
OVERALL, ANY_DAY = (0.88, 0.92), (0.83, 0.95)
MOST_UPDATE_MS, MOST_TRAIN_S = 20.0, 45.0
HEAD = (
    *("window", "rates", "forecaster", "wQL", "/ best classical", "WAPE", "wQL at 1 min", "at 5 min"),
    *("0.9 covers", "by day"),
)
TIMES_HEAD = ("forecaster", "made in s", "update ms")
TITLE = "Forecasts"
NOTE = f"""Every forecaster on windows that no choice was made on, with leads of 1 to {HORIZON} minutes. wQL is
the mean quantile loss at 0.5, 0.75, 0.9 and 0.95 over the load, WAPE that of the median. The Twitter trace has
measured maxima in its first week only, on which choices were made: those rows are reported, not judged. `times`
has training on one core and the median update of both rates.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Units of a trace to learn from, and those after them to forecast."""

    label: str
    file: str
    start_min: int
    train_min: int
    test_min: int
    targets: tuple[str, ...] = TARGETS
    names: tuple[str, ...] = (*CLASSICAL, *BESIDE, *LEARNED)
    judged: bool = True

    @property
    def is_first_hours(self) -> bool:
        """True with too little to learn from: only the mixture is held against the simple rules."""
        return self.train_min < DAY_MIN

    def span(self, target: str) -> BacktestSpan:
        """The span of a backtest."""
        return make_span(
            self.workload(),
            history_units=self.train_min,
            leads=tuple(range(1, HORIZON + 1)),
            drawn_lead=LEADS[-1],
            target=target,
            every=EVERY_MIN,
            leave_out=() if self.file == WORLD_CUP else NIGHT,
        )

    def workload(self) -> Workload:
        """Arrivals, the tested part replayed."""
        first = self.start_min + self.train_min
        return Workload(
            trace=trace_of(self.file), seed=SEED, start_s=first * 60.0, duration_s=self.test_min * 60.0
        )


def windows() -> list[Window]:
    """All windows."""
    ten, three, four = 10 * DAY_MIN, 3 * DAY_MIN, 4 * DAY_MIN
    full = [
        Window(label="World Cup, 13 July on", file=WORLD_CUP, start_min=105_270, train_min=ten, test_min=three),
        Window(label="World Cup, 22 June on", file=WORLD_CUP, start_min=75_030, train_min=ten, test_min=three),
        Window(label="Twitter, days 10-13", file=TWITTER_TWO_WEEKS, start_min=0, train_min=ten, test_min=four),
        Window(
            label="Twitter, days 5-6, by the second",
            file=TWITTER,
            start_min=0,
            train_min=5 * DAY_MIN,
            test_min=2 * DAY_MIN,
            targets=("max",),
            judged=False,
        ),
    ]
    begun = [
        replace(
            window,
            label=f"{window.label}: after {hours} h",
            start_min=window.start_min + window.train_min,
            train_min=60 * hours,
            test_min=360,
            names=(*SIMPLE, "mixture"),
        )
        for window in full
        if window.judged
        for hours in (1, 6, 18)
    ]
    return [*full, *begun]


def tables(figures: FigureTable) -> Tables:
    """Tables of the part."""
    found = figures.numbers
    took = [
        (name, *(f"{found[f'{name}: {what}']:.1f}" for what in TIMES_HEAD[1:]))
        for name in LEARNED
        if f"{name}: {TIMES_HEAD[1]}" in found
    ]
    return part_tables(figures, "scores", HEAD) | ({"times": [TIMES_HEAD, *took]} if took else {})


def times() -> FigureTable:
    """Times of the families that learn, on one window."""
    found, window = FigureTable(), _timed_window()
    span = window.span(window.targets[0])
    with tempfile.TemporaryDirectory(prefix="mark-forecasts-") as folder:
        for name in LEARNED:
            made = _make(name, window, span, Path(folder))
            update_ms = _update_ms(made, span)
            numbers = zip((f"{name}: {what}" for what in TIMES_HEAD[1:]), (made.train_s, update_ms), strict=True)
            found.add(FigureTable(numbers=dict(numbers), checks=_pace(name, made, update_ms)))
    return found


def _timed_window() -> Window:
    return next(window for window in windows() if window.file == TWITTER_TWO_WEEKS)


def measure(window: Window) -> FigureTable:
    """All forecasters on one window. What is learned is kept between them, and forgotten after."""
    found: dict[str, Mapping[str, BacktestScores]] = {}
    spans = {target: window.span(target) for target in window.targets}
    with tempfile.TemporaryDirectory(prefix="mark-forecasts-") as folder:
        for name in window.names:
            found[name] = _scores(name, window, spans, Path(folder))
            print(f"{window.label}: {name} asked", flush=True)
    figures = FigureTable()
    for target in window.targets:
        figures.extend(judge(window, target, found))
    return figures


def judge(window: Window, target: str, found: Mapping[str, Mapping[str, BacktestScores]]) -> FigureTable:
    """The rows and checks of one target. found: scores by forecaster and target."""
    where = f"{window.label}, {target}"
    scores = {name: by_target[target] for name, by_target in found.items()}
    wql = {name: one.wql for name, one in scores.items()}
    base = [name for name in CLASSICAL if name in wql]
    best = min(base, key=lambda name: wql[name], default=None)
    best_wql = wql[best] if best else math.nan
    rows = [_cells((window.label, target, name), one, best_wql) for name, one in scores.items()]
    figures = FigureTable(rows=rows)
    if not window.judged:
        return figures
    singles = [name for name in found if name != "mixture"]
    if "lstm" in found and best:
        ratio = wql["lstm"] / wql[best]
        figures.checks.append(_most(f"{where}: wQL, lstm / best classical ({best})", ratio, 1.0))
        figures.numbers[f"{where} lstm / classical"] = ratio
    if "mixture" in found and singles:
        figures.checks += _mixed(where, scores, singles, leads=() if window.is_first_hours else LEADS)
    if not window.is_first_hours:
        for name in LEARNED:
            if name in scores:
                figures.checks += _coverage(where, name, scores[name])
    return figures


def completed(figures: FigureTable) -> FigureTable:
    """With the LSTM beside the best classical family, over all windows."""
    ratios = [value for name, value in figures.numbers.items() if name.endswith("lstm / classical")]
    if not ratios:
        return figures
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    over_all = _most(f"wQL, lstm / best classical, geometric mean of {len(ratios)}", mean, 0.95)
    return replace(figures, checks=[*figures.checks, over_all])


def _scores(
    name: str, window: Window, spans: Mapping[str, BacktestSpan], folder: Path
) -> dict[str, BacktestScores]:
    made = _make(name, window, next(iter(spans.values())), folder)
    remembering = Remembering(lambda: made.forecaster)  # both rates come with one answer
    return {target: run_backtest(own, remembering, lambda _share: None) for target, own in spans.items()}


def _make(name: str, window: Window, span: BacktestSpan, folder: Path) -> Built:
    return build(name, span.history, workload=window.workload(), cache_dir=folder, report=_quietly)


def _update_ms(made: Built, span: BacktestSpan) -> float:
    """A forecast as the service asks for it: one minute after the last. The first one may load libraries."""
    known, past, future = len(span.history), span.history, span.future
    means, maxima = (*past.mean_rps, *future.mean_rps), (*past.max_rps, *future.max_rps)
    took = []
    for step in range(UPDATES + 1):
        units = slice(max(0, known + step - KEEP_HISTORY), known + step)
        end_at = past.end_at + step * past.unit_s
        history = Demand(end_at=end_at, mean_rps=means[units], max_rps=maxima[units], unit_s=past.unit_s)
        took.append(_timed(made.forecaster, history))
    return 1000.0 * statistics.median(took[1:])


def _timed(forecaster: Forecaster, history: Demand) -> float:
    began = time.perf_counter()
    forecaster.forecast(history, HORIZON)
    return time.perf_counter() - began


def _quietly(label: str, share: float) -> None:
    """Report nothing: each forecaster is named when it is done."""


def _mixed(
    where: str, scores: Mapping[str, BacktestScores], singles: Sequence[str], leads: Sequence[int]
) -> list[Check]:
    """The mixture beside the best single one, overall and at single leads."""

    def beside(label: str, most: float, score: Mapping[str, float]) -> Check:
        best = min(singles, key=lambda name: score[name])
        return _most(f"{where}: wQL{label}, mixture / best single ({best})", score["mixture"] / score[best], most)

    overall = {name: one.wql for name, one in scores.items()}
    at_leads = [{name: _at(one, lead) for name, one in scores.items()} for lead in leads]
    return [
        beside("", 1.0, overall),
        *(beside(f" at {lead} min", 1.02, score) for lead, score in zip(leads, at_leads, strict=True)),
    ]


def _coverage(where: str, name: str, scores: BacktestScores) -> list[Check]:
    overall = float(scores.coverage[COVERED])
    days = [float(day.coverage[COVERED]) for day in scores.by_day]
    low, high = min(days), max(days)
    return [
        Check(
            f"{where}, {name}: the 0.9 quantile covers",
            f"{overall:.1%}",
            f"{OVERALL[0]:.0%} to {OVERALL[1]:.0%}",
            OVERALL[0] <= overall <= OVERALL[1],
        ),
        Check(
            f"{where}, {name}: on a day",
            f"{low:.1%} to {high:.1%}",
            f"{ANY_DAY[0]:.0%} to {ANY_DAY[1]:.0%}",
            ANY_DAY[0] <= low and high <= ANY_DAY[1],
        ),
    ]


def _pace(name: str, made: Built, update_ms: float) -> list[Check]:
    took = f"{update_ms:.1f} ms"
    checks = [Check(f"{name}: update", took, f"<= {MOST_UPDATE_MS:g} ms", update_ms <= MOST_UPDATE_MS)]
    cards = (made.card or {}).items()
    seconds = [took for kind, card in cards if kind.startswith("lstm") for took in card["seconds"]]
    if seconds and name == "lstm":
        longest, most = max(seconds), MOST_TRAIN_S
        checks.append(Check("lstm: training a seed", f"{longest:.0f} s", f"<= {most:g} s", longest <= most))
    return checks


def _most(what: str, ratio: float, most: float) -> Check:
    return Check(what, f"{ratio:.3f}", f"<= {most:.2f}", ratio <= most)


def _at(scores: BacktestScores, lead: int) -> float:
    return next(item.wql for item in scores.by_lead if item.lead == lead)


def _cells(place: Row, scores: BacktestScores, best_wql: float) -> Row:
    """place: window, rates and forecaster."""
    days = [float(day.coverage[COVERED]) for day in scores.by_day]
    return (
        *place,
        f"{scores.wql:.4f}",
        f"{scores.wql / best_wql:.3f}",
        f"{scores.wape:.4f}",
        *(f"{_at(scores, lead):.4f}" for lead in LEADS),
        f"{scores.coverage[COVERED]:.1%}",
        f"{min(days):.0%} to {max(days):.0%}",
    )
