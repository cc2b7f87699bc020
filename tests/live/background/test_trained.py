"""What is taken of a training that ran elsewhere, and when one is due: for any input."""

from __future__ import annotations

import io
import json
import math
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.service import RetrainSettings
from mark.config.settings import Settings
from mark.config.training import models_trained_in_function, trains_in_function
from mark.deployment.images import process_images
from mark.domain.demand import Demand
from mark.live.forecasting.retraining import due_cause
from mark.live.models import make_live_models
from mark.plugins.load import build_forecaster
from mark.plugins.train_by_name import train_by_order
from mark.plugins.trained import (
    ResultRefused,
    TrainingOrder,
    compose_failure,
    compose_order,
    compose_result,
    read_order,
    read_result,
)
from mark.ports import ForecasterSetup
from tests.aws.builders import service

ORDER = TrainingOrder(
    forecaster="ridge",
    history=Demand(end_at=120.0, mean_rps=(1.0, 2.5), max_rps=(3.0, 4.1)),
    seed=7,
    version="1.2",
)
FILES = {"a.npz": b"\x00weights", "b.json": b"{}"}
names = st.from_regex(r"[a-z0-9_][a-z0-9_.-]{0,9}", fullmatch=True)
files = st.dictionaries(names, st.binary(max_size=60), max_size=4)
rates = st.lists(st.floats(0, 1e9), max_size=8).map(tuple)
hours = st.one_of(st.floats(0, 400), st.just(math.inf))
asked = st.builds(
    RetrainSettings,
    every_h=st.none() | st.floats(0.5, 100),
    drift=st.none() | st.floats(1.1, 9),
    at_least_h=st.floats(0, 50),
)


@given(files)
def test_what_was_learned_for_an_order_comes_back_as_it_was(found: dict[str, bytes]) -> None:
    assert read_result(compose_result(ORDER, found), ORDER) == found


@given(rates, st.integers(0, 2**32), st.floats(0, 2e9))
def test_an_order_comes_back_as_it_was_with_the_same_digest(
    load: tuple[float, ...], seed: int, end_at: float
) -> None:
    order = replace(ORDER, history=Demand(end_at=end_at, mean_rps=load, max_rps=load), seed=seed)
    read = read_order(compose_order(order))
    assert (read, read.digest, read.name) == (order, order.digest, order.name)


@given(st.data())
def test_a_result_with_any_byte_changed_or_cut_off_is_refused(data: st.DataObject) -> None:
    whole = compose_result(ORDER, FILES)
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    changed = data.draw(st.integers(1, 255))
    broken = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ changed]) + whole[at + 1 :]
    with pytest.raises(ResultRefused):
        read_result(broken, ORDER)


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"seed": 8}, "another order"),
        ({"forecaster": "boosted"}, "another order"),
        ({"history": Demand(end_at=180.0, mean_rps=(1.0, 2.5), max_rps=(3.0, 4.1))}, "another order"),
        ({"version": "1.3"}, "it is of MArk 1.2, and the controller is 1.3"),
    ],
    ids=["seed", "forecaster", "stale", "version"],
)
def test_a_result_of_another_order_or_version_is_refused(differs: dict[str, object], why: str) -> None:
    with pytest.raises(ResultRefused, match=why):
        read_result(compose_result(ORDER, FILES), replace(ORDER, **differs))  # type: ignore[arg-type]


def test_a_failed_training_is_refused_with_its_reason_in_one_line() -> None:
    with pytest.raises(ResultRefused, match=r"^no memory, twice$"):
        read_result(compose_failure(ORDER, "no memory,\n twice"), ORDER)


@pytest.mark.parametrize(
    "document",
    [b"", b"\n", b"[]\n", b"{}\n", b"null\nxy", b"\xff\n"],
    ids=["empty", "a line", "a list", "no fields", "null", "no text"],
)
def test_what_is_no_result_is_refused(document: bytes) -> None:
    with pytest.raises(ResultRefused, match="not a result"):
        read_result(document, ORDER)


@pytest.mark.parametrize(
    "name",
    ["../a.npz", "/etc/a", "x/a.npz", "..", "x\\a", ""],
    ids=["above", "absolute", "below", "the folder above", "a backslash", "no name"],
)
def test_files_stay_in_the_cache(name: str) -> None:
    with pytest.raises(ResultRefused, match="no plain file name"):
        read_result(compose_result(ORDER, {name: b"x"}), ORDER)


def test_files_that_unpack_to_more_than_a_forecaster_keeps_are_refused() -> None:
    with pytest.raises(ResultRefused, match="more than 64 MiB"):
        read_result(compose_result(ORDER, {"a": bytes((64 << 20) + 1)}), ORDER)


def test_what_is_no_order_is_refused() -> None:
    with pytest.raises(ResultRefused, match="not an order"):
        read_order(b"{}")


def test_a_failing_forecaster_gives_its_reason_as_the_result() -> None:
    order = replace(ORDER, forecaster="no-such")
    document, why = train_by_order(order)
    assert "no-such" in why
    with pytest.raises(ResultRefused, match="no-such"):
        read_result(document, order)


@pytest.mark.slow  # its quick siblings are in test_function_trainer.py
def test_what_the_function_learned_with_torch_is_used_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    load = tuple(20 + 10 * math.sin(at * math.tau / 1440) for at in range(1440))
    history = Demand(end_at=86_400.0, mean_rps=load, max_rps=tuple(rate + 1 for rate in load))
    order = TrainingOrder(forecaster="lstm-vanilla", history=history, seed=1, version="1")
    document, why = train_by_order(order)
    assert why == ""
    for name, content in read_result(document, order).items():
        (tmp_path / name).write_bytes(content)

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "mark.predictors.lstm.vanilla_training", raising=False)
    made = build_forecaster(order.forecaster, ForecasterSetup(history=history, seed=1, cache_dir=tmp_path))
    forecast = made.forecast(history, 60)
    assert forecast.degraded is None
    assert 10 < forecast.mean_rps[0][0] < 30


@given(asked, hours, hours, st.booleans(), st.none() | st.floats(0, 20))
def test_a_training_is_due_for_a_reason_and_never_sooner_than_the_pause_after_the_last(
    settings: RetrainSettings, since_trained_h: float, since_tried_h: float, lacking: bool, drift: float | None
) -> None:
    cause = due_cause(
        settings, since_trained_h=since_trained_h, since_tried_h=since_tried_h, lacking=lacking, drift=drift
    )
    if since_tried_h < settings.at_least_h:
        assert cause is None
    elif lacking:
        assert cause == "first"
    elif since_trained_h < settings.at_least_h:
        assert cause is None
    else:
        on_time = settings.every_h is not None and since_trained_h >= settings.every_h
        worse = settings.drift is not None and drift is not None and drift >= settings.drift
        assert cause == ("schedule" if on_time else "drift" if worse else None)


IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"


@pytest.mark.parametrize(
    ("serve", "differs", "count"),
    [
        ([{"model": "inception-v3"}], {}, 1),
        ([{"model": "inception-v3", "policy_name": "mark"}], {}, 1),
        ([{"model": "inception-v3", "policy_name": "milp", "forecaster": "ridge"}], {}, 0),
        ([{"model": "inception-v3"}], {"forecaster": "ridge"}, 0),
        ([{"model": "inception-v3", "policy_name": "reactive"}], {}, 0),
        ([{"model": "inception-v3"}, {"model": "resnet-50", "forecaster": "seasonal"}], {}, 1),
        ([{"model": "inception-v3"}], {"rollout": {}}, 0),
    ],
    ids=["hedged", "mark", "ridge", "ridge for all", "reactive", "one of two", "no image"],
)
def test_only_a_forecaster_that_learns_with_torch_has_a_function(
    serve: list[dict[str, object]], differs: dict[str, object], count: int
) -> None:
    """By the settings alone, as the bill knows it, and by the models, as what is made."""
    given = {"service": {"serve": serve}, "rollout": {"training_image": IMAGE}, **differs}
    settings = Settings.model_validate(given)
    assert models_trained_in_function(settings) == count
    assert trains_in_function(settings) == (count > 0)


def test_a_forecaster_that_is_a_file_is_trained_where_the_file_is(tmp_path: Path) -> None:
    """The function's image has no file of the team's, so the controllers' image has torch, for all one knows."""
    (file := tmp_path / "own.py").write_text("def own(setup): ...\n")
    rollout = {"training_image": IMAGE, "image": IMAGE, "agent_image": IMAGE}
    served = [{"model": "inception-v3", "forecaster": f"{file}:own"}]
    settings = Settings.model_validate({"service": {"serve": served}, "rollout": rollout})
    models = make_live_models(settings)
    assert not trains_in_function(settings)
    assert [one.target for one in process_images(settings, models) if one.key == "image"] == ["models"]


def test_a_service_without_such_a_forecaster_has_nothing_of_a_training() -> None:
    with_it, without = service(trains=True).resources, service().resources
    assert [one.role for one in with_it.functions if one not in without.functions] == ["train"]
    assert [one.prefix for one in with_it.expiries if one not in without.expiries] == ["training/"]
    assert replace(with_it, functions=without.functions, expiries=without.expiries) == without


def test_the_zip_of_a_result_is_the_same_for_the_same_files() -> None:
    packed = compose_result(ORDER, FILES).partition(b"\n")[2]
    assert compose_result(ORDER, dict(reversed(FILES.items()))).partition(b"\n")[2] == packed
    assert zipfile.ZipFile(io.BytesIO(packed)).namelist() == sorted(FILES)
    assert json.loads(compose_result(ORDER, FILES).partition(b"\n")[0])["error"] == ""
