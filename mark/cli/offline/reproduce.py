"""`mark reproduce`: flags and help."""
# ruff: noqa: PLC0415 - what takes long to import is imported when it is needed

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mark.cli import complete
from mark.cli import options as given

EXAMPLES = (
    "mark reproduce mark-table5",
    "mark reproduce mark-fig9 --out fig9",
    "mark reproduce kairos-fig8 --json",
    "mark reproduce superserve-fig8",
    "mark reproduce fang-table2 --trace two-days.csv.gz",
    "mark reproduce hetsev-fig7 --pairs pairs.json",
)
STUDIES = (
    "mark-table5",
    "mark-fig8",
    "mark-fig9",
    "mark-ratio",
    "kairos-fig8",
    "kairos-fig9",
    "kairos-fig10",
    "kairos-fig11",
    "kairos-fig12",
    "kairos-fig13",
    "kairos-fig14",
    "kairos-fig15",
    "kairos-fig16",
    "superserve-fig8",
    "superserve-fig9",
    "superserve-fig10",
    "superserve-fig11",
    "superserve-fig11b",
    "superserve-appb",
    "superserve-loads",
    "fang-table2",
    "fang-table4",
    "fang-loads",
    "hetsev-fig5",
    "hetsev-fig6",
    "hetsev-fig7",
    "hetsev-rules",
)


def reproduce(
    study: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help=f"Experiment: {', '.join(STUDIES)}.",
            autocompletion=complete.choices(*STUDIES),
        ),
    ],
    *,
    trace: given.Trace = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="How much models slow each other down on a GPU, for hetsev-fig5, 6, 7 (docs/papers.md#hetsev).  "
            "[default: what others measured]",
        ),
    ] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Another trace to judge on, for fang-loads and superserve-loads; repeat it for more.  "
            "[default: none]",
        ),
    ] = None,
    seed: given.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the document and the plots (SVG).  [default: printed only]"),
    ] = None,
    json: given.Json = False,
    config: given.Config = None,
) -> None:
    """Repeat an experiment of a published paper.

    The papers are MArk, Kairos, SuperServe, Fang et al. (QoS-aware scheduling) and HetSev. Prints our numbers
    beside the published ones, with every assumption.
    """
    settings = given.settings_of(locals())
    from mark.offline.reproduce import reproduce_study

    reproduce_study(study, settings, pairs=pairs, others=others or (), as_json=json)
