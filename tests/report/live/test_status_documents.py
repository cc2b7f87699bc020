"""The live status as JSON: written and read again, by another version too, under the keys that are documented."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mark.domain.billing.spending import SpendingLimit
from mark.domain.documents import json_text
from mark.domain.fleet.instances import InstanceState, Role
from mark.report.live.service_status import SERVICE, STARTING, StartingStatus, StartStep
from mark.store.published_status import (
    ALERTS,
    ARCHIVE,
    BACKGROUND,
    BUDGET,
    MODEL,
    NIGHTLY,
    PAUSE,
    PROCESSES,
    BudgetStatus,
    LoadSeries,
    PublishedInstance,
    PublishedModel,
    StatusCodec,
    StoredStatus,
)
from tests.report.live.fakes import busy_model, status

OLDER: Mapping[str, Any] = json.loads(Path(__file__).with_name("older_status.json").read_text(encoding="utf-8"))
"""What a service had in its store before these types were, by name, and the status that it printed."""
DOCUMENTED = Path(__file__).parents[3] / "docs" / "json.md"
STORED: Mapping[str, StoredStatus[Any]] = {
    "alerts": ALERTS, "archive": ARCHIVE, "budget": BUDGET, "model": MODEL, "paused": PAUSE,
    "processes": PROCESSES, "replaying": NIGHTLY, "background-failures": BACKGROUND,
}  # fmt: skip
CODECS: Mapping[str, StatusCodec[Any]] = {**STORED, "service": SERVICE, "starting": STARTING}


class Documents:
    """A store of documents alone, which are text there."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self.kept = {name: json_text(document) for name, document in kept.items()}

    def status(self, name: str, /) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = json.loads(self.kept.get(name, "null"))
        return found

    def put_status(self, name: str, document: Mapping[str, Any], /) -> None:
        self.kept[name] = json_text(document, allow_nan=True)


def drawn(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, every field of a dataclass drawn; a number that is none would equal nothing."""
    if is_dataclass(hint):
        return st.builds(hint, **{name: drawn(one) for name, one in get_type_hints(hint).items()})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(drawn, arguments))
    if origin is tuple:
        return st.lists(drawn(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=5), drawn(arguments[1]), max_size=2)
    if origin is Literal:
        return st.sampled_from(arguments)
    simple = {float: st.floats(allow_nan=False), str: st.text(max_size=5)}
    return simple[hint] if hint in simple else st.from_type(hint)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@settings(max_examples=10)
@given(data=st.data())
def test_what_is_written_is_read_again(codec: StatusCodec[Any], data: st.DataObject) -> None:
    document = data.draw(drawn(codec.kind))
    assert codec.load(json.loads(json_text(codec.dump(document), allow_nan=True))) == document


def within(written: Any, older: Any) -> Any:
    """The document without the keys that an older version did not know."""
    if isinstance(written, Mapping) and isinstance(older, Mapping):
        return {key: within(value, older[key]) for key, value in written.items() if key in older}
    if isinstance(written, list) and isinstance(older, list):
        return [within(*pair) for pair in zip(written, older, strict=True)]
    return written


@pytest.mark.parametrize("name", sorted(OLDER["store"]))
def test_a_document_of_an_older_service_is_read_whole(name: str) -> None:
    kind, _, whose = name.partition(":")
    store = Documents(OLDER["store"])
    document = STORED[kind].read(store, whose)
    assert document != STORED[kind].kind()
    store.put_status(name, {})
    STORED[kind].write(store, document, whose)
    assert within(store.status(name), OLDER["store"][name]) == OLDER["store"][name]


def test_figures_of_an_older_service_are_the_ones_that_it_meant() -> None:
    model = MODEL.read(Documents(OLDER["store"]), "inception-v3")
    assert model is not None
    assert model.series is not None
    assert (model.began_at, model.planned) == (1728043200.0, {"c5.large:spot": 7})
    assert model.observed[1] == PublishedInstance(
        id="shadow-t3-1-1", offering="c5.large:on-demand", role=Role.STANDBY, state=InstanceState.PENDING
    )
    assert model.series.capacity_rps == (0.0, 33.13327148455989)
    assert model.trained is not None
    assert (model.trained.from_, model.trained.why) == (1728039000.0, "schedule")


def test_the_printed_status_keeps_each_key_and_figure() -> None:
    read = SERVICE.load(OLDER["status"])
    assert read is not None
    assert within(SERVICE.dump(read), OLDER["status"]) == OLDER["status"]


def test_the_printed_status_has_the_keys_that_are_documented() -> None:
    section = DOCUMENTED.read_text(encoding="utf-8").split("\n## mark status\n")[1].split("\n## ")[0]
    paths = re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)
    service = {path for path in paths if not re.search(r"[.\[]", path)}
    model = {path.removeprefix("models[].") for path in paths if re.fullmatch(r"models\[\]\.\w+", path)}
    printed = SERVICE.dump(status(busy_model()))
    assert printed.keys() == service
    assert printed["models"][0].keys() == model


def test_a_service_that_starts_prints_how_far_it_is() -> None:
    step = StartStep(step="starting gateways", for_s=2.5, said=("m: no plan yet",))
    assert STARTING.dump(StartingStatus(service="shop", starting=step)) == {
        "service": "shop",
        "starting": {"step": "starting gateways", "for_s": 2.5, "said": ["m: no plan yet"]},
        "models": [],
    }


@pytest.mark.parametrize("kind", STORED.values(), ids=STORED)
def test_what_is_absent_has_its_default_and_what_is_unknown_is_left_out(kind: StoredStatus[Any]) -> None:
    store = Documents({kind.name("x"): {"of the next version": {"more": [1]}}})
    assert kind.read(store, "x") == kind.kind()
    assert kind.read(store, "y") is None


def test_a_document_that_cannot_be_read_counts_as_absent_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert BUDGET.read(Documents({"budget": {"limited_by": "half of it"}})) is None
    (record,) = caplog.records
    assert record.message == "a status document cannot be read"
    assert record.__dict__["kind"] == "BudgetStatus"
    assert record.__dict__["why"].startswith("limited_by: ")


def test_what_is_written_holds_plain_values_alone() -> None:
    made: Any = np.int64(3)
    series = LoadSeries(max_rps=tuple(np.array([1.5, 2.5])), capacity_rps=(None, np.float32(0.5)))  # type: ignore[arg-type]
    written = MODEL.dump(PublishedModel(lambda_warm=made, planned={"c5.large": made}, series=series))
    assert (written["lambda_warm"], written["planned"]) == (3, {"c5.large": 3})
    assert (written["series"]["max_rps"], written["series"]["capacity_rps"]) == ([1.5, 2.5], [None, 0.5])
    assert json.loads(json.dumps(written)) == written
    assert BUDGET.dump(BudgetStatus(limited_by=SpendingLimit.FLOOR))["limited_by"] == "floor"
