"""The figures on real traces: `make acceptance`, with MARK_DATA naming the folder that holds them.

Every policy on one day of the Twitter trace, on demand and on spot; other loads and models; six hours on spot in
which instances are taken back; other days; what each part of `hedged` is worth. Writes each part of
docs/figures.md when all of it is measured, and ends with code 1 when a figure misses what it has to reach.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import NamedTuple

from scripts.acceptance import ablation, elsewhere
from scripts.acceptance.days import DAYS_NOTE, JUDGED_NOTE, OTHER_DAYS, RISK_NOTE, judged_day, one_day, taken_back
from scripts.acceptance.figures_page import FigureTable, commit, part_text, write_parts
from scripts.acceptance.loads import ELSEWHERE, SLICE_ENDS, data_folder


class FigureTask(NamedTuple):
    """Something to measure, for a part of the page. Tasks of one part keep their order."""

    part: str
    label: str
    measure: Callable[[], FigureTable]


def tasks() -> Iterator[FigureTask]:
    """All that is measured, the longest first."""
    for day in ablation.DAYS:
        yield FigureTask("ablation", f"ablation, Twitter day {day}", partial(ablation.on_day, day))
    for name in reversed(ELSEWHERE):
        yield FigureTask("elsewhere", f"all models on {name}", partial(elsewhere.on_load, name))
    yield FigureTask("judged", "the judged day", judged_day)
    yield FigureTask("risk", "interruptions", taken_back)
    for day in OTHER_DAYS:
        yield FigureTask("days", f"Twitter day {day}", partial(one_day, "twitter", day))
    for row in SLICE_ENDS:
        yield FigureTask("days", f"World Cup to row {row}", partial(one_day, "world-cup", row))


def texts() -> dict[str, Callable[[FigureTable], str]]:
    """Writer of each part."""
    return {
        "judged": partial(part_text, "The judged day", JUDGED_NOTE),
        "elsewhere": elsewhere.summary,
        "risk": partial(part_text, "Instances are taken back", RISK_NOTE),
        "days": partial(part_text, "Other days", DAYS_NOTE),
        "ablation": ablation.summary,
    }


def main(given: Sequence[str] | None = None) -> None:
    """Measure the parts that are asked for, all by default."""
    asked = _arguments(given)
    data_folder()
    print(f"measuring {commit()}", flush=True)
    chosen = [task for task in tasks() if task.part in asked.parts]
    found = measured(chosen, asked.jobs, write=lambda part, figures: write_parts({part: texts()[part](figures)}))
    missed = [check for figures in found.values() for check in figures.missed]
    if missed:
        sys.exit(f"{len(missed)} figures miss: " + "; ".join(check.what for check in missed))


def measured(
    chosen: Sequence[FigureTask], jobs: int, *, write: Callable[[str, FigureTable], None]
) -> dict[str, FigureTable]:
    """The figures of each part, told to `write` when all of it is measured; tasks print theirs as they go."""
    done: dict[int, FigureTable] = {}
    found: dict[str, FigureTable] = {}
    began = time.monotonic()
    for place, figures in _run(chosen, jobs):
        done[place] = figures
        took_s = time.monotonic() - began
        print(f"[{len(done)}/{len(chosen)}, {took_s:.0f} s] {chosen[place].label}", flush=True)
        part = chosen[place].part
        places = [at for at, task in enumerate(chosen) if task.part == part]
        if all(at in done for at in places):
            found[part] = FigureTable()
            for at in places:
                found[part].extend(done[at])
            write(part, found[part])
    return found


def _run(chosen: Sequence[FigureTask], jobs: int) -> Iterator[tuple[int, FigureTable]]:
    """Each task's place and figures, as they are finished."""
    if jobs == 1:
        yield from ((place, task.measure()) for place, task in enumerate(chosen))
        return
    fresh = multiprocessing.get_context("spawn")  # threads of numba and torch do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=fresh) as pool:
        waiting = {pool.submit(task.measure): place for place, task in enumerate(chosen)}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.acceptance.run", description="The figures on real traces."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of the page: {', '.join(texts())}; else all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    asked = parser.parse_args(given)
    unknown = set(asked.parts) - set(texts())
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    asked.parts = asked.parts or list(texts())
    return asked


if __name__ == "__main__":
    main()
