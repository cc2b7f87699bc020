"""Machine code on disk: compiled once for all checkouts of the same sources, and by one process of several."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numba.core import codegen

from mark.simulator.engine.machine_code import compiled

SOURCE = """
from numba.extending import register_jitable

@register_jitable
def itself(x):
    return x

def twice(x):
    return 2 * itself(x)
"""
COMPILED, READ = 10, 11
"""What a process ends with."""
Checkout = Callable[[str, Path], Any]


@pytest.fixture
def code_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """The function of a checkout of that name, with its code kept under that folder."""

    def code_of(name: str, cache: Path) -> Any:
        (tmp_path / name).mkdir()
        (tmp_path / name / "sums_of_tests.py").write_text(SOURCE)
        monkeypatch.syspath_prepend(tmp_path / name)
        monkeypatch.delitem(sys.modules, "sums_of_tests", raising=False)
        return compiled(importlib.import_module("sums_of_tests").twice, cache, {})

    return code_of


def test_another_checkout_reads_what_one_has_compiled(tmp_path: Path, code_in: Checkout) -> None:
    first, second = (code_in(name, tmp_path / "cache") for name in ("one", "two"))
    assert (first(2), second(3)) == (4, 6)
    assert second.stats.cache_hits
    assert not second.stats.cache_misses
    assert second(1.5) == 3.0
    assert first(2.5) == 5.0
    assert len(first.stats.cache_hits) == 1, "each signature has code of its own"


def test_what_is_asked_for_is_optimised_and_made_machine_code_and_what_it_calls_only_in_it(
    tmp_path: Path, code_in: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As numba names them: with other names, all would run as slowly as without it."""
    done = list[str]()

    def noted(library: type[Any], step: str) -> None:
        whole = getattr(library, step)
        monkeypatch.setattr(library, step, lambda made: (done.append(made.name), whole(made)))

    noted(codegen.CPUCodeLibrary, "_optimize_final_module")
    noted(codegen.JITCodeLibrary, "_finalize_specific")
    assert code_in("one", tmp_path / "cache")(2) == 4
    assert done == ["twice", "twice"]


def test_of_processes_that_start_together_one_compiles(tmp_path: Path, code_in: Checkout) -> None:
    code, fork = code_in("one", tmp_path / "cache"), multiprocessing.get_context("fork")
    together = fork.Barrier(3)

    def process() -> None:
        together.wait()
        assert code(2) == 4
        sys.exit(COMPILED if code.stats.cache_misses else READ)

    processes = [fork.Process(target=process) for _ in range(3)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    assert sorted(one.exitcode or 0 for one in processes) == [COMPILED, READ, READ]


def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path, code_in: Checkout) -> None:
    (tmp_path / "file").touch()
    assert code_in("one", tmp_path / "file" / "cache")(2) == 4
