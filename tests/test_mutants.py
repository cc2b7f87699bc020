from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("coverage")

from scripts.mutants import DULL, ROOMS, Mutant, SourceFile, again, drawn

MUTANT = Mutant("mark/planner/rates.py", "core/AddNot", 3, 40, 7, "rate", "    if rps > 0:", 0)
EVERY = [replace(MUTANT, path=f"mark/{room}/a.py", line=line) for room in ROOMS for line in range(9)]


def test_a_seed_draws_as_many_of_each_room_and_no_two_at_one_place() -> None:
    twice = [*EVERY, *(replace(mutant, twin=1) for mutant in EVERY)]
    sample = list(drawn(twice, seed=1, count=20))
    assert sample == list(drawn(twice, seed=1, count=20))
    assert sample != list(drawn(twice, seed=2, count=20))
    assert [mutant.path for mutant in sample] == [f"mark/{room}/a.py" for room in ROOMS for _ in range(5)]
    assert len({(mutant.path, mutant.line) for mutant in sample}) == 20


def test_a_fault_is_found_again_in_a_moved_line_and_a_renamed_file() -> None:
    moved, renamed = replace(MUTANT, line=50, occurrence=4), replace(MUTANT, path="mark/planner/old.py")
    other = replace(MUTANT, text="    if rps > 1:")
    assert list(again([renamed, moved], [MUTANT])) == [(MUTANT, moved)]
    assert list(again([renamed], [MUTANT])) == [(MUTANT, renamed)]
    assert list(again([other], [MUTANT])) == [(MUTANT, None)]


def test_the_lines_whose_tests_can_find_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(
        "LIMIT = 3\n@njit(cache=True)\ndef fast(x):\n    return x\ndef slow(\n    x=1,\n):\n"
        "    if x > (\n        LIMIT\n    ):\n        return 1\n    return x\n"
    )
    file = SourceFile(path)
    assert [set(file.run_with(line)) for line in (9, 11)] == [{8, 9, 10}, {11}]
    assert set(file.run_with(1)) == set(file.run_with(6)) == {4, 8, 9, 10, 11, 12}
    assert file.left_out == {2, 3, 4}


@pytest.mark.parametrize(
    ("operator", "is_dull"),
    [
        ("ReplaceComparisonOperator_Eq_NotEq", False),
        ("ReplaceComparisonOperator_Is_IsNot", False),
        ("ReplaceComparisonOperator_NotEq_IsNot", True),
        ("ReplaceComparisonOperator_Is_GtE", True),
        ("ReplaceBinaryOperator_Add_LShift", True),
        ("ReplaceBinaryOperator_Add_Sub", False),
        ("NumberReplacer", False),
    ],
)
def test_operators_that_tell_nothing(operator: str, is_dull: bool) -> None:
    assert bool(DULL.search(f"core/{operator}")) is is_dull
