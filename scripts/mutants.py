"""Mutation tests of the rooms that decide: how many small faults do the tests find?

A mutant is one small fault in one file: another comparison, another number, a condition turned round. cosmic-ray
makes them. Each one runs in a copy of a commit against the tests that ran its statement, which coverage's contexts
name. A mutant that no test fails on has survived: a test is missing, or nobody could tell the difference.

    python -m scripts.mutants --seed 1 --count 200 --out out/mutants.json
    python -m scripts.mutants --at COMMIT --survivors-of out/mutants.json --out out/mutants-before.json

The second command asks whether the tests of an earlier commit find what survives now. Each result is written at
once, and a second run goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from coverage import CoverageData

from scripts.own_venvs import tool

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "out" / "mutants"
ROOMS = ("planner", "dispatch", "controller", "serving")
OUTCOMES = ("killed", "survived", "timed out", "untested", "not there")
MOST_TESTS, MOST_TESTS_S = 80, 30.0
DULL = re.compile(r"Shift|Bit|Invert|Decorator|(Eq|LtE?|GtE?)_Is|Is(Not)?_(Eq|NotEq|Lt|Gt)")
"""Operators on bits, which floats refuse; `is` for `==`, as small numbers are one object; a dataclass's slots."""
CONFIG = """[cosmic-ray]
module-path = [{paths}]
timeout = 60.0
test-command = "true"
[cosmic-ray.distributor]
name = "local"
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small fault; `occurrence` is cosmic-ray's count of places for this operator in the file."""

    path: str
    operator: str
    occurrence: int
    line: int
    column: int
    definition: str
    text: str
    twin: int
    """Faults of the same operator at the same place, such as a number's +1 and -1, are numbered."""

    @property
    def fault(self) -> tuple[str, str, str, int, int]:
        """What stays the same where a file is renamed and a line moves."""
        return self.definition, self.text, self.operator, self.column, self.twin


class Checkout:
    """A copy of a commit, with its possible mutants and the tests of each line; made once and kept."""

    def __init__(self, revision: str) -> None:
        self.commit = _git("rev-parse", "--short=12", f"{revision}^{{commit}}").decode().strip()
        self.folder = WORK / self.commit
        self.tree = self.folder / "tree"
        self.tree.mkdir(parents=True, exist_ok=True)
        archive = _git("archive", self.commit)  # each time: an interrupted run leaves its mutant behind
        subprocess.run(["/usr/bin/env", "tar", "-x"], cwd=self.tree, input=archive, check=True)

    @cached_property
    def mutants(self) -> list[Mutant]:
        """All mutants of plain Python code, in the order of their places."""
        dump = self.folder / "all.jsonl"
        if not dump.exists():
            config, session = self.folder / "cosmic-ray.toml", self.folder / "session.sqlite"
            config.write_text(CONFIG.format(paths=", ".join(f'"mark/{room}"' for room in ROOMS)))
            self._cosmic_ray("init", str(config), str(session))
            dump.write_text(self._cosmic_ray("dump", str(session)))
        found = [json.loads(line)[0]["mutations"][0] for line in dump.read_text().splitlines()]
        found = [spec for spec in found if not DULL.search(spec["operator_name"])]
        found.sort(key=lambda spec: (spec["module_path"], spec["operator_name"], spec["occurrence"]))
        twins: Counter[tuple[Any, ...]] = Counter()
        mutants = []
        for spec in found:
            path, operator, (line, column) = spec["module_path"], spec["operator_name"], spec["start_pos"]
            text, definition = _source(self.tree / path).lines[line - 1], spec["definition_name"] or ""
            same = (path, definition, text, operator, column)
            if line not in _source(self.tree / path).left_out:
                places = (spec["occurrence"], line, column)
                mutants.append(Mutant(path, operator, *places, definition, text, twins[same]))
            twins[same] += 1
        return mutants

    @cached_property
    def tests(self) -> tuple[CoverageData, dict[str, float]]:
        """What each test runs, and how long each passing test takes."""
        data, log = self.folder / "coverage", self.folder / "tests.log"
        if not log.exists():
            wanted = re.compile(rf"\bmark\.({'|'.join(ROOMS)})\b")
            paths = [path for path in self.tree.glob("tests/**/test_*.py") if wanted.search(path.read_text())]
            files = sorted(str(path) for path in paths if "end_to_end" not in path.parts)
            rooms = [f"--cov=mark/{room}" for room in ROOMS]
            options = ["-rfE", "-m", "not slow", "--durations=0", "--durations-min=0", "--cov-context=test"]
            self._pytest([*options, *rooms, "--cov-report=", *files], self.folder / "making.log")
            (self.folder / "making.log").rename(log)
        took: dict[str, float] = defaultdict(float)
        text = log.read_text()
        for seconds, test in re.findall(r"^([\d.]+)s (?:setup|call|teardown) +(\S.*)$", text, re.MULTILINE):
            took[test] += float(seconds)
        for test in re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE):
            took.pop(test, None)
        found = CoverageData(str(data))
        found.read()
        return found, took

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The cheapest tests of each function that ran the statement; of a file's constants, those of the file."""
        data, took = self.tests
        place = next((path for path in data.measured_files() if path.endswith(f"/{mutant.path}")), None)
        contexts = data.contexts_by_lineno(place) if place else {}
        lines = _source(self.tree / mutant.path).run_with(mutant.line)
        names = {name for line in lines for name in contexts.get(line, ())}
        functions: dict[str, list[str]] = defaultdict(list)
        for test in sorted({name.rpartition("|")[0] for name in names} & took.keys(), key=lambda t: (took[t], t)):
            functions[test.partition("[")[0]].append(test)
        ranks = {test: rank for tests in functions.values() for rank, test in enumerate(tests)}
        chosen: list[str] = []
        seconds = 0.0
        for test in sorted(ranks, key=lambda test: (ranks[test], took[test], test))[:MOST_TESTS]:
            seconds += took[test]
            if chosen and seconds > MOST_TESTS_S:
                break
            chosen.append(test)
        return chosen

    def outcome_of(self, mutant: Mutant, tests: list[str], limit_s: float) -> str:
        """What the tests say to a mutant; the file is as before afterwards."""
        if not tests:
            return "untested"
        path = self.tree / mutant.path
        plain = path.read_bytes()
        try:
            self._cosmic_ray("apply", mutant.path, mutant.operator, str(mutant.occurrence))
            assert path.read_bytes() != plain, mutant
            code = self._pytest(["-x", *tests], self.folder / "mutant.log", limit_s)
        finally:
            path.write_bytes(plain)
        return {None: "timed out", 0: "survived"}.get(code, "killed")

    def _cosmic_ray(self, *arguments: str) -> str:
        command = [str(tool("cosmic-ray") / "cosmic-ray"), *arguments]
        return subprocess.run(command, cwd=self.tree, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - ours

    def _pytest(self, arguments: Iterable[str], log: Path, limit_s: float | None = None) -> int | None:
        """Pytest's exit code; None past the limit."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.tree), "COVERAGE_FILE": str(self.folder / "coverage")}
        with log.open("w") as out:
            process = subprocess.Popen(  # noqa: S603 - our tests
                command, cwd=self.tree, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class SourceFile:
    """One file's lines, statements and functions."""

    def __init__(self, path: Path) -> None:
        self.lines = path.read_text().splitlines()
        nodes = list(ast.walk(ast.parse(path.read_text())))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        self._bodies = [_lines(node.body[0], node) for node in functions]
        self._statements = [_own_lines(node) for node in nodes if isinstance(node, ast.stmt)]
        compiled = [node for node in functions if any("njit" in ast.dump(by) for by in node.decorator_list)]
        decorators = [by for node in nodes for by in getattr(node, "decorator_list", ())]
        self.left_out = {line for node in (*compiled, *decorators) for line in _lines(node, node)}

    def run_with(self, line: int) -> Iterable[int]:
        """Lines whose tests can find a fault here: those of its statement; outside functions, all that run."""
        if not any(line in body for body in self._bodies):
            return {number for body in self._bodies for number in body}
        return min((own for own in self._statements if line in own), key=len, default=(line,))


def _lines(first: ast.stmt | ast.expr, last: ast.stmt | ast.expr) -> range:
    return range(first.lineno, (last.end_lineno or last.lineno) + 1)


def _own_lines(node: ast.stmt) -> range:
    """A statement's lines; of one with a body, those of its head."""
    body = getattr(node, "body", None)
    return range(node.lineno, max(body[0].lineno, node.lineno + 1)) if body else _lines(node, node)


_source = cache(SourceFile)


def drawn(mutants: Iterable[Mutant], seed: int, count: int, rooms: Collection[str] = ROOMS) -> Iterator[Mutant]:
    """As many of each room, no two at one place."""
    for room in rooms:
        places: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            if mutant.path.startswith(f"mark/{room}/"):
                places[mutant.path, mutant.line, mutant.column].append(mutant)
        rng = random.Random(f"{seed} {room}")  # noqa: S311 - a sample
        size = min(count // len(rooms), len(places))
        yield from (rng.choice(places[place]) for place in rng.sample(sorted(places), size))


def again(mutants: Iterable[Mutant], survivors: Iterable[Mutant]) -> Iterator[tuple[Mutant, Mutant | None]]:
    """Each survivor with the same fault here: in its own file if that has it, else wherever it is."""
    known: dict[tuple[Any, ...], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        known[mutant.fault].append(mutant)
    for survivor in survivors:
        found = sorted(known[survivor.fault], key=lambda mutant: mutant.path != survivor.path)
        yield survivor, found[0] if found else None


def main() -> None:
    """Run the mutants that have no result yet, then print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS)
    parser.add_argument("--at", default="HEAD", help="the commit whose code and tests run")
    parser.add_argument("--survivors-of", type=Path, help="a file of results: only what survived there")
    parser.add_argument("--limit-s", type=float, default=60.0, help="more on a busy machine")
    parser.add_argument("--out", type=Path, default=Path("out/mutants.json"))
    asked = parser.parse_args()
    checkout = Checkout(asked.at)
    if asked.survivors_of:
        before = json.loads(asked.survivors_of.read_text())["results"]
        survivors = [Mutant(**entry["mutant"]) for entry in before if entry["outcome"] in {"survived", "untested"}]
        pairs = list(again(checkout.mutants, survivors))
    else:
        pairs = [(mutant, mutant) for mutant in drawn(checkout.mutants, asked.seed, asked.count, asked.rooms)]
    kept: dict[str, Any] = {"commit": checkout.commit, "results": []}
    kept |= json.loads(asked.out.read_text()) if asked.out.exists() else {}
    assert kept["commit"] == checkout.commit, f"{asked.out} is of {kept['commit']}"
    results = kept["results"]
    done = {json.dumps(entry["mutant"]) for entry in results}
    for mutant, here in pairs:
        if (key := json.dumps(asdict(mutant))) in done:
            continue
        tests = checkout.tests_of(here) if here else []
        outcome = checkout.outcome_of(here, tests, asked.limit_s) if here else "not there"
        results.append({"mutant": json.loads(key), "outcome": outcome, "tests": len(tests)})
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{outcome:9} {mutant.path}:{mutant.line} {mutant.operator} {mutant.text.strip()}", flush=True)
    counts = Counter((entry["mutant"]["path"].split("/")[1], entry["outcome"]) for entry in results)
    print(f"{'':12}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES))
    for room in ROOMS:
        print(f"{room:12}" + "".join(f"{counts[room, outcome]:>11}" for outcome in OUTCOMES))


def _git(*arguments: str) -> bytes:
    return subprocess.run(["/usr/bin/env", "git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603 - ours


if __name__ == "__main__":
    main()
