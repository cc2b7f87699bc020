"""A result's key is another whenever anything is that its document is made of, and the same otherwise."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mark.config.settings import Settings
from mark.offline.sweep import keys
from mark.offline.sweep.grid import setting_names
from mark.offline.sweep.keys import (
    COMPUTES_WITH,
    DECIDING,
    HOUSE,
    code_digest,
    forecaster_digest,
    job_key,
    portable,
    trace_digest,
)
from mark.simulator.traces.trace import Trace

APART = (
    *("accounting/", "aws/", "config/budget", "config/rollout", "config/service", "config/telemetry"),
    *("extras", "offline/out_folder", "report/files"),
    *("offline/sweep/keys", "offline/trace_source", "report/page", "report/runs/plots", "report/runs/series"),
    *("report/figures", "report/html", "report/runs/runs_table", "report/table", "report/terminal", "telemetry/"),
)
"""What the worker imports and no document depends on: it shows, or reads the trace, whose content counts."""
FILES = (
    "models",
    "prices",
    "service_prices",
    "profiles",
    "qos_policy",
    "forecaster",
    "trace.file",
    "account.commitments",
)
"""Settings that name files."""
LIVE = ("account.read_commitments",)
"""Settings that no replay reads."""


def key(tree: dict[str, Any], **changed: Any) -> str:
    return job_key(tree, **{"trace": "t", "code": "c", "forecasters": ("last-value",), **changed})


def test_every_setting_of_a_replay_counts() -> None:
    usual = portable(Settings.model_validate({"rollout": {}}))
    kept = key(usual)
    for name in [name for name in setting_names() if name not in (*FILES, *LIVE)]:
        other = copy.deepcopy(usual)
        part, *path = name.split(".")
        place = other
        for step in path:
            place[part] = place.get(part) or {}  # a section that is left out
            place, part = place[part], step
        place[part] = "another value"
        assert key(other) != kept, name


@pytest.mark.parametrize("name", ["models", "prices", "service_prices", "profiles"])
def test_a_file_counts_by_its_content(name: str, tmp_path: Path) -> None:
    made = []
    for place, text in (("a", "one"), ("b", "one"), ("b", "two")):
        path = tmp_path / place / "file.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        made.append(key({**portable(Settings()), name: [str(path)] if name == "profiles" else str(path)}))
    assert made[0] == made[1] != made[2]
    assert made[0] != key(portable(Settings()))


def test_trace_code_and_forecaster_count() -> None:
    tree = portable(Settings())
    others = [{"trace": "x"}, {"code": "x"}, {"forecasters": ("oracle",)}, {"forecasters": ()}]
    assert len({key(tree), *(key(tree, **other) for other in others)}) == 1 + len(others)


TRACE = Trace(name="day", start_at=60.0, bin_s=1.0, rates_rps=np.array([1.0, 2.0]), whole_counts=False)
TRACES: dict[str, dict[str, Any]] = {
    "name": {"name": "night"},
    "start_at": {"start_at": 61.0},
    "bin_s": {"bin_s": 2.0},
    "rates_rps": {"rates_rps": np.array([1.0, 3.0])},
    "whole_counts": {"whole_counts": True},
    "arrivals_s": {"arrivals_s": np.array([0.5])},
    "notes": {"notes": ("1 missing bins became 0 rps",)},
}


@pytest.mark.parametrize("changes", TRACES.values(), ids=TRACES)
def test_all_of_a_trace_counts(changes: dict[str, Any]) -> None:
    assert trace_digest(replace(TRACE, **changes)) != trace_digest(TRACE)
    assert TRACES.keys() == TRACE.__dataclass_fields__.keys()


@pytest.mark.parametrize("name", COMPUTES_WITH)
def test_versions_of_what_it_computes_with_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = code_digest(), keys.version
    monkeypatch.setattr(keys, "version", lambda asked: "0.0" if asked == name else known(asked))
    assert code_digest() != before


def test_forecasters_of_one_name_in_two_modules_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ownforecasts"
    package.mkdir()
    for module in ("__init__", "one", "other"):
        (package / f"{module}.py").write_text("from mark.predictors.naive import LastValue as Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert forecaster_digest("ownforecasts.one:Mine") != forecaster_digest("ownforecasts.other:Mine")


def test_all_code_that_a_worker_runs_counts() -> None:
    listing = (
        "import sys, mark.offline.sweep.job\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith('mark.')))"
    )
    said = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)  # noqa: S603
    files = [Path(name).relative_to(HOUSE) for name in said.stdout.split()]
    assert files
    counted = [HOUSE / name for name in DECIDING]
    assert all(path.exists() for path in counted)
    missing = [
        str(file)
        for file in files
        if file.name != "__init__.py"
        and not any((HOUSE / file).is_relative_to(path) for path in counted)
        and not str(file).startswith(APART)
    ]
    assert missing == []


def test_a_learned_policy_counts_by_its_content_and_only_where_it_serves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    learned = Settings(dispatch="qos-rl")
    assert key(portable(Settings(qos_policy=Path("one.npz")))) == key(portable(Settings()))
    missing = key(portable(learned))
    made = []
    for content in (b"one", b"two", b"one"):
        Path("qos-policy.npz").write_bytes(content)
        made.append(key(portable(learned)))
    assert made[0] == made[2] != made[1]
    Path("elsewhere.npz").write_bytes(b"one")
    assert key(portable(learned.model_copy(update={"qos_policy": Path("elsewhere.npz")}))) == made[0] != missing
