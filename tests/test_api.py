"""`import mark`: the same road as the command line."""

from __future__ import annotations

import asyncio
import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mark
from mark import api
from tests.offline.test_simulate import without_wall

RUN = {"model": "inception-v3", "start_s": 300}
MINUTES = pd.date_range("2026-03-02", periods=15, freq="min")
SHORT = ["--model", "inception-v3", "--start-s", "300", "--duration-s", "60"]


def same(runs: mark.Runs, answer) -> bool:
    told, found = json.loads(answer.out), json.loads(json.dumps(runs.document))
    return found["verdict"] == told["verdict"] and without_wall(found["runs"]) == without_wall(told["runs"])


def test_importing_it_loads_nothing():
    code = "import mark, sys; print(sys.modules.keys() & {'numpy', 'pydantic', 'mark.api'}, mark.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == f"set() {mark.__version__}\n"
    names = re.findall(
        r"(\w+)(?= as \1$|: str$)", Path(mark.__file__).with_suffix(".pyi").read_text(), re.MULTILINE
    )
    assert sorted(names) == sorted(mark.__all__)
    with pytest.raises(AttributeError, match="simulat3"):
        _ = mark.simulat3


def test_a_replay_is_the_command_lines_to_the_cent(mark, capsys):
    answer = mark("simulate", "--trace", "load.csv.gz", *SHORT, "--seed", "3", "--market", "spot", "--json")
    said: list[str] = []
    runs = api.simulate(
        "load.csv.gz", **RUN, duration_s=60, seed=3, market="spot", progress=lambda what, _share: said.append(what)
    )

    assert capsys.readouterr() == ("", "")
    assert len(runs) == 4
    assert same(runs, answer)
    assert same(api.simulate(api.read_trace("load.csv.gz"), **RUN, duration_s=60, seed=3, market="spot"), answer)
    assert "computing reference and floor" in said
    assert runs.to_frame().loc["hedged", "cost_usd.total"] == runs[0].result.cost.total
    assert runs.verdict == json.loads(answer.out)["verdict"]["sentence"]
    assert [run.result.policy for run in runs[:2]] == ["hedged", "sagemaker"]
    assert "hedged</th>" in re.sub(r"\s", "", runs._repr_html_())
    assert "<svg" in runs.plot()._repr_html_()
    assert runs[:2].plot("load")._repr_html_().count("<figcaption>") == 2


def test_a_frame_is_read_as_the_file_that_it_writes(mark, tmp_path):
    frame = pd.DataFrame({"time": MINUTES, "requests": [1200 + 60 * (row % 3) for row in range(15)]})
    frame.to_csv(tmp_path / "DataFrame.csv", index=False)
    flags = [*SHORT, "--policy", "hedged", "--no-reference", "--json"]
    answer = mark("simulate", "--trace", "DataFrame.csv", *flags)
    options = RUN | {"duration_s": 60, "policies": ["hedged"], "reference": False}

    assert same(api.simulate(frame, **options), answer)
    by_time = frame.set_index("time")
    for other in (by_time, by_time["requests"], by_time.sample(frac=1, random_state=1), frame.assign(x=1)):
        assert (api.read_trace(other).rates_rps == api.read_trace(frame).rates_rps).all()
    paths = by_time.assign(path=["/a", "/b", "/a"] * 5)
    assert api.read_trace(paths, where="path=/a").rates_rps.sum() < api.read_trace(paths).rates_rps.sum()
    assert api.read_trace(pd.Series(MINUTES)).rates_rps.sum() == len(MINUTES)


def test_forecast_plan_and_bound_are_the_command_lines(mark):
    def told(*command: str) -> dict:
        return json.loads(mark(*command, "--json").out)

    load = api.read_trace("load.csv.gz")
    on = ("--trace", "load.csv.gz")
    shown = told("forecast", "show", *on, "--predictor", "last-value", "--at", "600")
    found = api.forecast(load, forecaster="last-value", at_s=600)
    assert {**shown, "train_s": 0, "infer_ms": 0} == {**found, "train_s": 0, "infer_ms": 0}
    model = ("--model", "inception-v3")
    running = {"c5.large": 3, "c5.xlarge": 1}
    planned = told("plan", "--rate", "120", "--running", "c5.large=3,c5.xlarge=1", *model)
    assert api.plan(120, model="inception-v3", running=running) == planned
    assert api.plan(load, model="inception-v3") == told("plan", "--forecast", "load.csv.gz", *model)
    assert api.bound(load, model="inception-v3", duration_s=60) == told("bound", *on, *model, "--duration-s", "60")


MIXED = pd.Index([MINUTES[0], MINUTES[1].tz_localize("Europe/Berlin"), MINUTES[2]], dtype=object)


@pytest.mark.parametrize(
    ("values", "index", "says"),
    [
        ([1.5, 2, 3], MINUTES[[0, 1, 1]], "Series, line 4: time 1772409660 stands twice; keep one row of it"),
        ([1.5, -2, 3], MINUTES[:3], "Series, line 3: rate -2 is negative; rates are 0 or more"),
        ([1.5, float("nan"), 3], MINUTES[:3], "Series, line 3: '' is not a number; correct the row"),
        ([1.5, 2, 3], MIXED, "Series, line 3: '2026-03-02 00:01:00+01:00' names its zone, and rows"),
        ([1.5, 2, 3], None, "a Series of numbers needs their times as its index"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_series_is_one_line(values, index, says):
    with pytest.raises(mark.Misconfigured) as caught:
        mark.read_trace(pd.Series(values, index=index, name="rate_rps"))
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"start": 3}, "unknown setting 'start'"),
        ({"policy.lead": 3}, "policy.lead: unknown key in policy 'lead'"),
        ({"no.such": 3}, "settings: unknown key 'no'"),
        ({"slo_target": 7}, "slo_target should be less than or equal to 1, not 7"),
        ({"out": "run"}, "mark.simulate takes no out"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, says):
    with pytest.raises(mark.Misconfigured) as caught:
        mark.simulate(pd.Series([2.0, 2.0], index=MINUTES[:2], name="rps"), model="inception-v3", **settings)
    assert str(caught.value).startswith(says)


def test_what_is_no_trace_is_refused():
    with pytest.raises(
        mark.Misconfigured, match="a trace is a path, a DataFrame, a Series or what read_trace gave"
    ):
        mark.read_trace([1, 2, 3])


MINE = """
from mark.domain.tensor import TensorSpec


class Mine:
    inputs = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)
    outputs = (TensorSpec(name="y", datatype="FP32", shape=(-1, 4)),)

    def predict(self, inputs):
        return {"y": 2 * inputs["x"]}
"""


def test_a_model_brings_its_profiles_along(mark, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)

    async def in_a_notebook() -> api.Model:
        return api.Model.measure("mine.py:Mine", out="own", slo_ms=200, memory_gib=0.5, seconds=0.1)

    mine = asyncio.run(in_a_notebook())
    assert mine == api.Model.from_profile("own/profile.json")
    files = ("--models", "own/model.json", "--profiles", "own/profile.json")
    told = json.loads(mark("plan", "--rate", "120", "--model", "mine", *files, "--json").out)
    assert api.plan(120, model=mine) == told
    runs = api.simulate("load.csv.gz", model=mine, policies=["hedged"], duration_s=60, reference=False)
    assert (runs[0].result.model, runs[0].result.slo.latency_s) == ("mine", 0.2)
    with pytest.raises(api.Misconfigured, match=r"model\.json.*; force overwrites, out names another folder"):
        api.Model.measure("mine.py:Mine", out="own")
    with pytest.raises(api.Misconfigured, match=r"unknown model in own/profile\.json 'other'"):
        api.Model.from_profile("own/profile.json", name="other")


def test_ctrl_c_keeps_the_policies_that_had_finished(mark):
    def stop_at(policy: str):
        def heard(what: str, _share: float) -> None:
            if policy in what:
                raise KeyboardInterrupt

        return heard

    options = RUN | {"duration_s": 60, "policies": ["hedged", "reactive"], "reference": False}
    runs = api.simulate("load.csv.gz", **options, progress=stop_at("reactive"))
    assert [run.result.policy for run in runs] == ["hedged"]
    assert runs.left_out == ("interrupted: 1 of 2 policies finished",)
    with pytest.raises(KeyboardInterrupt):
        api.simulate("load.csv.gz", **options, progress=stop_at("hedged"))


def test_its_examples_hold(mark):
    offered = {name: getattr(api, name) for name in api.__all__}
    for part in (api.calls, api.model, api.runs, api.service):
        assert doctest.testmod(part, extraglobs=offered).failed == 0


def test_rows_that_were_taken_out_are_not_counted_as_times():
    """A filter leaves gaps in pandas' numbers of rows."""
    log = pd.DataFrame({"when": MINUTES, "requests": range(100, 115)})
    whole, part = (api.read_trace(one, rows="counts") for one in (log, log[log.index != 7]))
    assert (whole.bin_s, part.bin_s, part.start_at) == (60.0, 60.0, whole.start_at)
    assert part.rates_rps.sum() == pytest.approx((log.requests.sum() - 107) / 60)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: api.read_trace(pd.Series(100, index=MINUTES)), "a Series without a name holds counts or rates"),
        (lambda: api.read_trace(pd.Series([1, 2], index=[3, 5], name="rps")), "needs their times as its index"),
        (lambda: api.simulate(models={}), "models= takes names of models"),
        (lambda: api.simulate(models=["a"]), "models= takes names of models"),
        (lambda: api.simulate(models={"a": "x.csv"}, model="a"), "model= of one trace, or models="),
        (lambda: api.plan(1.0, types=5), "types takes texts, not 5"),
        (lambda: api.plan(1.0, types=[5]), "types takes texts"),
        (lambda: api.simulate("x.csv", interrupt=[7]), "interrupt takes texts"),
        (lambda: api.simulate("x.csv", config=3), "config= takes the path"),
        (lambda: api.plan(-1.0, model="inception-v3"), "load must be 0 rps or more"),
        (lambda: api.plan(1.0, model=5), "model= takes a name or a mark.Model, not 5"),
        (lambda: api.Model.from_profile("no.json"), "no.json: cannot be read"),
        (
            lambda: api.plan(1.0, model=api.Model("m", Path("p.json")), profiles="q.json"),
            "profiles should be a list",
        ),
        (lambda: api.Service({"service": {"port": "many"}}), "settings: service.port"),
        (lambda: api.Service({"models": object()}), "settings hold what no file can"),
        (lambda: api.Service("no.yaml"), "cannot read the configuration no.yaml"),
        (lambda: api.Service(5), "config= takes the path of a settings file or what it holds, not 5"),
        (lambda: api.simulate("x.csv", interrupt=["7"]), "interrupt '7' must read MINUTE:SHARE"),
    ],
)
def test_what_python_gives_wrong_is_one_line(call, says):
    with pytest.raises(mark.Misconfigured, match=re.escape(says)) as refused:
        call()
    assert "\n" not in str(refused.value)
