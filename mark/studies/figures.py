"""Published figures and tables of the papers: which study has each, and why some have none.

A study that this list does not name stands on the page all the same, as the figure that its name says. A figure
without a study and without a reason fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mark.studies.study import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """A row of docs/studies.md: one figure or table, and what of a study's rows stands beside it."""

    paper: str
    #: Such as `figure 8` or `table 5`.
    name: str
    study: str
    #: Conditions that differ from the paper's; empty where the study's assumptions tell them.
    differs: str = ""
    #: Quantities that are shown; empty for all that have a published number or a claim.
    quantities: tuple[str, ...] = ()
    #: Values that a row's case must have to be shown.
    where: Mapping[str, str] = field(default_factory=dict)

    @property
    def figure(self) -> str:
        """The figure or table that it is of, or of a part of."""
        return self.name.partition(",")[0]

    @property
    def is_in_paper(self) -> bool:
        """False for a question of ours."""
        return self.figure in PAPERS[self.paper].published

    def shows(self, row: Row) -> bool:
        """True for a row of the study that stands beside this figure."""
        case = dict(row.where)
        if any(case.get(column) != value for column, value in self.where.items()):
            return False
        if self.quantities:
            return row.quantity in self.quantities
        return row.published is not None or row.claim is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper. The key of `PAPERS` is the first word of its studies' names."""

    title: str
    #: Every figure and table, in the paper's order; without appendices that repeat one.
    published: tuple[str, ...]
    #: What holds here, and what does not.
    verdict: str
    #: Figures that no study repeats, with the reason.
    left_out: Mapping[str, str] = field(default_factory=dict)


def _numbered(kind: str, names: str) -> tuple[str, ...]:
    return tuple(f"{kind} {name}" for name in names.split())


def _because(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


_DRAWING = "a drawing of the system or of an idea"
_INPUT = "an input: its numbers are our profiles or settings"
_HARDWARE = "a measurement of hardware that is not at hand"

PAPERS: dict[str, Paper] = {
    "mark": Paper(
        title="MArk",
        published=(*_numbered("table", "1 2 3 4 5"), *_numbered("figure", "1 2 3 4 5 6 7 8 9")),
        verdict=(
            "MArk costs less than SageMaker for every model, as claimed; the ratio is below the printed one for "
            "three of four, latency falls for NASNet alone, and NASNet and OpenNMT miss their objective."
        ),
        left_out={
            **_because(_DRAWING, "table 1", "figure 5"),
            **_because(_INPUT, "table 2", "table 3", "table 4", "figure 1", "figure 2"),
            **_because(_HARDWARE, "figure 3", "figure 4"),
            "figure 6": "the load, which is not published",
        },
    ),
    "kairos": Paper(
        title="Kairos",
        published=(*_numbered("table", "1 2 3 4"), *_numbered("figure", " ".join(map(str, range(1, 17))))),
        verdict=(
            "Kairos serves more than the homogeneous pool and every rival on the mix of sizes, and the best bound "
            "is of the best pool, as claimed; on Gaussian sizes the gain depends on the Gaussian."
        ),
        left_out={
            **_because(_DRAWING, "table 1", "table 2", "figure 4", "figure 5", "figure 6", "figure 7"),
            **_because(_INPUT, "table 3", "table 4"),
            "figure 1": "a sample of pools; figure 13 has twenty of each model",
            "figure 2": "annealing from pool to pool; figure 11 counts its measurements",
            "figure 3": "a sample of pools under four rules; figure 14 has ten of each model",
        },
    ),
    "superserve": Paper(
        title="SuperServe",
        published=(
            *_numbered("figure", "1 2 3 4 5 6 7 8 9 10 11a 11b 11c 12 13"),
            "appendix B",
        ),
        verdict=(
            "Near capacity our rule keeps 0.99 in time with more accuracy than a fixed variant, and the rate "
            "grows with the workers, as claimed; the published rule attains less here than the paper "
            "prints, and least on our supernets."
        ),
        left_out={
            **_because(_DRAWING, "figure 3", "figure 6", "figure 7"),
            **_because(_HARDWARE, "figure 1", "figure 2", "figure 4", "figure 5"),
            "figure 13": _INPUT,
        },
    ),
    "fang": Paper(
        title="Fang et al.",
        published=(*_numbered("table", "1 2 3 4 5"), *_numbered("figure", "1 2 3 4 5 6 7")),
        verdict=(
            "Eq. 2 beats the fixed rule only where the small model serves batches above 8; our heuristic beats "
            "both, and the learned scheduler gains nothing over it."
        ),
        left_out={
            **_because(_DRAWING, "figure 1", "figure 2", "figure 3", "figure 4"),
            "table 1": _INPUT,
            "figure 5": "the load, which is not published",
        },
    ),
    "hetsev": Paper(
        title="HetSev",
        published=(*_numbered("table", "1"), *_numbered("figure", "1 2 3 4 5 6 7")),
        verdict=(
            "HetSev is cheaper than Kubernetes and carries more once GPUs run out, as claimed; the choice of type "
            "saves it and not the sharing, and its published cost is not a bill."
        ),
        left_out={
            **_because(_DRAWING, "figure 4"),
            "table 1": _INPUT,
            **_because(_HARDWARE, "figure 2", "figure 3"),
        },
    ),
}
"""By the first word of its studies' names."""

_OTHER_DAYS = "the Twitter trace of 2021 for the paper's; spot prices of 2025; l is half of the objective"
_PROFILES = "the artifact's timings, replayed; no network, no matching time"
_SLACKFIT = {"policy": "slackfit-published", "noise": "none"}
_OTHER_LOAD = "World Cup days for the paper's log; other days judged, not later hours"

LISTED: tuple[FigureRow, ...] = (
    FigureRow(
        paper="mark",
        name="table 5",
        study="mark-table5",
        differs=_OTHER_DAYS,
        quantities=("ratio",),
        where={"system": "MArk-ondemand"},
    ),
    FigureRow(
        paper="mark",
        name="table 5, spot",
        study="mark-table5",
        differs=_OTHER_DAYS,
        quantities=("ratio",),
        where={"system": "MArk-spot"},
    ),
    FigureRow(
        paper="mark",
        name="figure 7",
        study="mark-table5",
        differs="as table 5; SageMaker refuses what would be late, 3 %; drawn as CCDF",
        quantities=("mean_cut_percent", "p50_cut_percent", "p99_cut_percent"),
    ),
    FigureRow(
        paper="mark",
        name="figure 8, Twitter",
        study="mark-table5",
        differs="as table 5; overflow is late on Lambda for NASNet and OpenNMT",
        quantities=("attained",),
    ),
    FigureRow(
        paper="mark",
        name="figure 8, MMPP",
        study="mark-fig8",
        differs="states and rates assumed; overflow is late on Lambda for NASNet and OpenNMT",
        quantities=("attained",),
    ),
    FigureRow(
        paper="mark",
        name="section 5.2, ratios",
        study="mark-ratio",
        differs="one change a case",
        quantities=("ratio", "over_base"),
    ),
    FigureRow(
        paper="mark", name="figure 9", study="mark-fig9", differs="rates assumed; forecast of the last minute"
    ),
    *(
        FigureRow(paper="kairos", name=f"figure {number}", study=f"kairos-fig{number}", differs=differs)
        for number, differs in (
            (8, _PROFILES),
            (9, f"{_PROFILES}; rivals are their rules on this queue"),
            (10, "as figure 9; DeepRecSys' climb counts as one measurement"),
            (11, "as figure 8; other draws"),
            (12, "a Gaussian of our own"),
            (13, _PROFILES),
            (14, "five models for rm2"),
            (15, _PROFILES),
            (16, "a Gaussian of our own; noise on the time taken"),
        )
    ),
    *(
        FigureRow(
            paper="superserve",
            name=f"figure {name}",
            study=f"superserve-fig{study}",
            differs=differs,
            where=_SLACKFIT,
        )
        for name, study, differs in (
            ("8", "8", "latencies and rates assumed"),
            ("9", "9", "latencies and rates assumed"),
            ("10", "10", "a Twitter day for Azure's, whose peak no variant carries here"),
            ("11a", "11", "load assumed"),
            ("12", "9", "drawn; 12a is drawn by superserve-fig8"),
        )
    ),
    FigureRow(
        paper="superserve",
        name="figure 11b",
        study="superserve-fig11b",
        differs="latencies assumed",
        where={"policy": "slackfit-published"},
    ),
    FigureRow(
        paper="superserve",
        name="figure 11c",
        study="superserve-fig8",
        differs="latencies assumed; lost and least over CV^2, for each of three rates",
        quantities=("maxbatch_lost", "over_maxacc"),
        where={"noise": "none"},
    ),
    *(
        FigureRow(
            paper="superserve",
            name=f"three loads, {task}{rule}",
            study="superserve-loads",
            differs="a supernet trained here; five fixed models of its front; means and spreads of three seeds",
            quantities=(
                "attained",
                "attained_spread",
                "accuracy",
                "accuracy_spread",
                "over_best_fixed",
                "dominated_by",
            ),
            where={"model": model, "policy": policy},
        )
        for task, model in (("digits", "supernet"), ("text", "supernet-text"))
        for rule, policy in (("", "slackfit"), (", SlackFit", "slackfit-published"))
    ),
    *(
        FigureRow(paper="fang", name=f"table {number}", study=study, differs=_OTHER_LOAD, quantities=(quantity,))
        for number, study, quantity in (
            (2, "fang-table2", "quality"),
            (3, "fang-table2", "small_percent"),
            (4, "fang-table4", "quality"),
            (5, "fang-table4", "small_percent"),
        )
    ),
    FigureRow(
        paper="fang",
        name="section 3.2, actions",
        study="fang-table2",
        differs=_OTHER_LOAD,
        quantities=("fewer_actions_percent",),
    ),
    *(
        FigureRow(paper="hetsev", name=f"figure {number}", study=f"hetsev-fig{number}", differs=differs)
        for number, differs in (
            (5, "serving times assumed"),
            (6, "rates and windows assumed"),
            (7, "rates assumed; the accounting of the paper and rent"),
        )
    ),
    *(
        FigureRow(
            paper="fang",
            name=name,
            study="fang-table2",
            differs=f"{_OTHER_LOAD}; drawn",
            quantities=quantities,
            where={"scheduler": "learned"},
        )
        for name, quantities in (
            ("figure 6", ("quality", "quality_deviation")),
            ("figure 7", ("small_percent", "fewer_actions_percent")),
        )
    ),
    FigureRow(
        paper="fang",
        name="loads of other sites",
        study="fang-loads",
        quantities=("quality",),
    ),
    FigureRow(paper="hetsev", name="figure 1", study="hetsev-rules", differs="our model of a GPU, V100 and T4"),
)
"""Rows that say more than a study's name."""
_LABEL = re.compile(r"(fig|table|app)(\w+)$")
_WORD = {"fig": "figure", "table": "table", "app": "appendix"}


def figure_rows(studies: Iterable[str]) -> tuple[FigureRow, ...]:
    """All rows in the papers' order: those of the list, and those that the names of other studies say."""
    listed = {row.study for row in LISTED}
    named = [_by_name(study) for study in studies if study not in listed]
    order = [(key, name) for key, paper in PAPERS.items() for name in (*paper.published, None)]

    def place(row: FigureRow) -> int:
        return order.index((row.paper, row.figure if row.is_in_paper else None))

    return tuple(sorted((*LISTED, *named), key=place))


def _by_name(study: str) -> FigureRow:
    """The row of a study that the list does not have: `superserve-fig11b` is SuperServe's figure 11b."""
    paper, _, rest = study.partition("-")
    found = _LABEL.match(rest)
    name = rest if found is None else f"{_WORD[found[1]]} {found[2].upper() if found[1] == 'app' else found[2]}"
    return FigureRow(paper=paper, name=name, study=study)


def covered(name: str, rows: Iterable[FigureRow]) -> bool:
    """True where a row is of that figure, or of a part of it: `figure 8, MMPP` is of `figure 8`."""
    return any(row.figure == name for row in rows)
