"""docs/forecasters.md names what there is, and its example works. tests/docs runs its commands."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from mark.cli.main import run
from mark.domain.demand import Demand
from mark.plugins import load
from mark.plugins.load import build_forecaster, forecaster_names
from mark.ports import ForecasterSetup

HOUSE = Path(__file__).parents[2]
PAGE = (HOUSE / "docs" / "forecasters.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(ENTRY_POINT,) = re.findall(r"^(\S+) = \"(\S+)\"$", PAGE, re.MULTILINE)
RATES = tuple(float(n) for n in range(1, 102))
HISTORY = Demand(end_at=6060.0, mean_rps=RATES, max_rps=tuple(2 * rate for rate in RATES))
SETUP = ForecasterSetup(history=HISTORY, seed=1)


@pytest.fixture
def saved(mark):
    Path("last_hour.py").write_text(EXAMPLE)
    return mark


def test_every_name_is_on_the_page_and_every_one_there_is_a_name():
    listed = re.findall(r"^\| `([a-z][a-z0-9-]*)` \|", PAGE, re.MULTILINE)

    shipped = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]["entry-points"][load.FORECASTERS]
    assert sorted(listed) == sorted(shipped)


def test_the_example_is_short_and_gives_quantiles(saved):
    forecast = build_forecaster("last_hour.py:LastHour", SETUP).forecast(HISTORY, 60)

    assert len([line for line in EXAMPLE.splitlines() if line and "import" not in line]) <= 18
    # of 42 ... 101
    assert forecast.quantiles == (0.5, 0.75, 0.9, 0.95)
    assert forecast.mean_rps == (tuple(np.quantile(np.arange(42, 102), forecast.quantiles)),) * 60
    assert forecast.max_rps[0] == tuple(2 * rate for rate in forecast.mean_rps[0])
    assert (forecast.start_at, forecast.source) == (6060.0, "last hour")


def test_the_example_does_with_no_history_at_all(saved):
    nothing = Demand(end_at=0.0, mean_rps=(), max_rps=())

    assert build_forecaster("last_hour.py:LastHour", SETUP).forecast(nothing, 2).max_at(0.9) == (0.0, 0.0)


def test_the_example_plugs_in_by_module_and_by_entry_point(saved, monkeypatch, capsys):
    name, value = ENTRY_POINT
    package = Path("site/my_package")
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "last_hour.py").write_text(EXAMPLE)
    monkeypatch.syspath_prepend("site")
    entry = EntryPoint(name=name, value=value, group=load.FORECASTERS)
    ours = load.entry_points

    def with_theirs(**asked):
        theirs = [entry] if asked.get("name", name) == name else []
        return [*ours(**asked), *theirs]

    monkeypatch.setattr(load, "entry_points", with_theirs)
    try:
        for given in (name, value):
            forecast = build_forecaster(given, SETUP).forecast(HISTORY, 1)
            assert forecast.source == "last hour"
        assert name in forecaster_names()
        capsys.readouterr()
        assert run(["forecast", "show", "--trace", "load.csv.gz", "--predictor", name]) == 0
    finally:
        for module in [module for module in sys.modules if module.startswith("my_package")]:
            del sys.modules[module]
