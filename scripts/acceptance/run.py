"""The figures on real traces: `make acceptance`, with MARK_DATA naming the folder that holds them.

`hedged` beside the cheapest rival that keeps the objective on judged days; `hedged`, `mark`, `greedy-oracle`
and rivals that nobody tunes (`sagemaker`, `reactive`, `static-peak`, `lambda-only`) on one day of the Twitter
trace, on demand and on spot; other loads and models; six hours on spot in which instances are taken back; other
days; what each part and each constant of `hedged` is worth; forecasts. What is measured is kept at once, and a
command that was stopped goes on from there. Parts that are whole at this commit are written to
docs/figures/ and docs/figures.md; one that is there already, of this commit, is measured again only where it is
named. Ends with code 1 when a figure misses what it has to reach, on the page or measured now, with 2 when the
tree has changes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from scripts.acceptance.figures_page import FigureTable, joined_checks
from scripts.acceptance.loads import data_folder, keep_forecasts_in
from scripts.acceptance.page import figures_of, misses, missing_parts, tables_at, write
from scripts.acceptance.parts import PARTS, FigureTask, tasks
from scripts.acceptance.results import RESULTS, MeasuredFigures, ResultFolder, clean_commit, refuse


def main(given: Sequence[str] | None = None) -> None:
    """Measure the parts that are asked for, by default all that the page lacks."""
    asked = _arguments(given)
    data_folder()
    commit, folder = clean_commit(), ResultFolder(asked.out)
    print(f"measuring {commit}", flush=True)
    there = tables_at(commit)
    parts = asked.parts or [part for part in PARTS if part not in there]
    chosen = [task for task in tasks() if task.part in parts]
    found = measured(chosen, folder, commit, jobs=asked.jobs)
    whole = {task: folder.find(task.part, task.label) for task in tasks()}
    current = {task: one if one is not None and one.commit == commit else None for task, one in whole.items()}
    lacking = missing_parts({task: one for task, one in current.items() if task.part not in there})
    if lacking:
        print(f"at {commit} these parts are not measured: {', '.join(lacking)}")
    write(current)
    figures = {part: PARTS[part].completed(figures_of(part, found)) for part in dict.fromkeys(parts)}
    missed = [c.what for table in figures.values() for c in joined_checks(table.checks) if not c.kept]
    missed += [what for part, tables in there.items() if part not in figures for what in misses(tables)]
    if missed:
        sys.exit(f"{len(missed)} figures miss: " + "; ".join(missed))


def measured(
    chosen: Sequence[FigureTask],
    folder: ResultFolder,
    commit: str,
    *,
    jobs: int,
    now: Callable[[], str] = clean_commit,
) -> list[MeasuredFigures]:
    """The figures of each task at this commit; those that are not there are measured and print theirs."""
    kept = {task: folder.find(task.part, task.label) for task in chosen}
    there = {task: one for task, one in kept.items() if one is not None and one.commit == commit}
    if there:
        print(f"{len(there)} of {len(chosen)} tasks are measured already", flush=True)
    began, forecasts = time.monotonic(), folder.forecasts(commit)
    for task, figures in _run([task for task in chosen if task not in there], jobs, forecasts):
        if now() != commit:
            refuse(f"the commit is no longer {commit}: what is measured now is of neither, run it again")
        there[task] = MeasuredFigures(commit=commit, part=task.part, task=task.label, figures=figures)
        folder.keep(there[task])
        took_s = time.monotonic() - began
        print(f"[{len(there)}/{len(chosen)}, {took_s:.0f} s] {task.part}: {task.label}", flush=True)
    return [there[task] for task in chosen]


def _run(chosen: Sequence[FigureTask], jobs: int, forecasts: Path) -> Iterator[tuple[FigureTask, FigureTable]]:
    """Each task's figures, as they are finished; those that run alone at last, one after the other.

    forecasts: the folder of what is forecast once for all tasks.
    """
    alone = [task for task in chosen if task.alone or jobs == 1]
    together = [task for task in chosen if task not in alone]
    if together:
        fresh = multiprocessing.get_context("spawn")  # threads of numba and torch do not survive a fork
        with ProcessPoolExecutor(
            jobs, mp_context=fresh, initializer=keep_forecasts_in, initargs=(forecasts,)
        ) as pool:
            waiting = {pool.submit(task.measure): task for task in together}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
    keep_forecasts_in(forecasts)
    try:
        yield from ((task, task.measure()) for task in alone)
    finally:
        keep_forecasts_in(None)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.acceptance.run", description="The figures on real traces."
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of the page: {', '.join(PARTS)}; else all that it lacks"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of results (default: out/figures)")
    asked = parser.parse_args(given)
    unknown = set(asked.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    return asked


if __name__ == "__main__":
    main()
