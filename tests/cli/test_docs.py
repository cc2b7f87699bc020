from __future__ import annotations

import json
import shlex
from importlib import import_module
from pathlib import Path

import joblib
import numpy as np
import pytest
from pydantic import BaseModel
from sklearn.linear_model import LinearRegression

from mark.config.settings import Settings, types_of
from mark.live.commands import demo
from mark.offline.pool_choose import ChooseDocument
from mark.simulator.qos import policy_gradient
from mark.simulator.traces.generators import constant
from mark.simulator.workload import Workload
from mark.studies import registry
from scripts.docs import FOLDER, NOTICE, cli_page, commands, example_lines, settings_page
from scripts.hardware_page import hardware_page
from scripts.json_page import BLOCK, keys, with_tables
from scripts.python_page import python_page
from scripts.trace_formats import with_formats
from tests.offline.own_model.test_init_saved import identity
from tests.offline.own_model.test_profile_here import MODEL

COMMANDS = dict(commands())
LIVE = {
    f"mark {name}"
    for name in (
        "up",
        "load",
        "try",
        "alerts test",
        "status",
        "report",
        "feed",
        "interrupt",
        "logs",
        "chaos",
        "event add",
        "event list",
        "event remove",
        "pause",
        "client create",
        "client list",
        "client rotate",
        "client revoke",
        "client delete",
        "rollout start",
        "rollout status",
        "rollout promote",
        "rollout abort",
        "down",
        "profile",
        "doctor",
    )
}
ROLLOUT = {"mark synth", "mark diff", "mark deploy", "mark rotate", "mark destroy"}
"""They need an account; scripts/rehearsal/run.py runs them."""
TAKE_MINUTES = {"mark supernet train", "mark supernet profile", "mark advise"}
"""tests/offline runs them: test_supernet.py with a smaller network, test_advise.py on a day of load."""
METRICS = {"mark trace prometheus", "mark trace cloudwatch", "mark scaler"}
"""They ask a store of metrics; tests/offline/test_trace_metrics.py, tests/aws/test_metrics.py and
tests/end_to_end/test_scaler.py have one."""
NEED_A_SERVICE = {"mark demo --out demo"}
MAKERS = ("mark trace generate", "mark simulate", "mark qos train")
"""Their examples write what the others' examples read, so they run first."""


def test_the_pages_are_up_to_date():
    assert (FOLDER / "settings.md").read_text() == settings_page(), "run make docs"
    assert (FOLDER / "cli.md").read_text() == cli_page(), "run make docs"
    assert (FOLDER / "hardware.md").read_text() == f"{NOTICE}\n{hardware_page()}", "run make docs"
    assert (FOLDER / "python-reference.md").read_text() == f"{NOTICE}\n{python_page()}", "run make docs"
    assert (FOLDER / "json.md").read_text() == with_tables((FOLDER / "json.md").read_text()), "run make docs"
    assert (FOLDER / "traces.md").read_text() == with_formats((FOLDER / "traces.md").read_text()), "run make docs"


def test_the_page_of_documents_has_a_table_of_each_type_that_it_names():
    blocks = BLOCK.findall((FOLDER / "json.md").read_text())
    assert len(blocks) > 10
    for text, module, name, _ in blocks:
        assert list(keys(getattr(import_module(module), name))), text


def test_keys_within_a_document_are_told_by_their_path():
    found = {key.path: (key.kind, key.words) for key in keys(ChooseDocument)}
    assert found["allowable_qps"][0] == "number or null"
    assert found["measured"][0] == "list of object"
    assert found["measured[].bound_qps"] == ("number", "Its bound.")
    assert found["slo"] == ("number by key", "`latency_ms` and `target`.")


def test_every_setting_has_a_description():
    def undocumented(part: type[BaseModel]) -> list[str]:
        found = [name for name, field in part.model_fields.items() if not field.description]
        inner = [kind for field in part.model_fields.values() for kind in types_of(field.annotation)]
        return found + [name for kind in inner if issubclass(kind, BaseModel) for name in undocumented(kind)]

    assert undocumented(Settings) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_takes_a_config_and_documents_its_parameters(name):
    command = COMMANDS[name]
    flags = {option for parameter in command.params for option in parameter.opts}

    assert command.help
    assert "--config" in flags
    assert all(parameter.help for parameter in command.params)
    assert example_lines(command)
    assert all(line.startswith(f"{name} ") or line == name for line in example_lines(command))


def test_every_command_of_the_documents_page_is_described():
    text = (FOLDER / "json.md").read_text()
    with_json = [name for name, command in COMMANDS.items() if any(p.name == "json" for p in command.params)]

    assert [name for name in with_json if name != "mark demo" and name not in text] == []


@pytest.fixture
def quick(monkeypatch, undrawn):
    """A demo of five minutes, studies of no time, trainings of few steps: the examples show that they run."""
    workload = Workload(trace=constant(20, duration_s=900), seed=0, start_s=600.0)
    monkeypatch.setattr(demo.generators, "demo_workload", lambda _seed: workload)

    for number in ("STREAMS", "CHOOSE_STREAMS"):
        monkeypatch.setattr(policy_gradient, number, 1)

    class Nothing:
        name = "none"
        assumptions, provenance = ("no study ran",), ()

        def figures(self):
            return {"plot": "<svg></svg>"}

        def document(self):
            return {"study": "none", "rows": [], "assumptions": ["no study ran"]}

        def tables(self):
            return []

    monkeypatch.setattr(
        "mark.offline.reproduce.STUDIES", {name: lambda _context: Nothing() for name in registry.STUDIES}
    )


@pytest.mark.slow
def test_every_example_of_a_replay_runs(mark, quick):
    """Those of the live service are run against one in tests/end_to_end."""
    Path("my.py").write_text(f"{MODEL.replace('Doubler', 'Model')}\n\ndef predict(x):\n    return x\n")
    np.save("example.npy", np.ones((1, 4), np.float32))
    joblib.dump(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]), "churn.joblib")
    identity("sentiment.onnx")
    Path("models").mkdir()
    identity("models/same.onnx")
    models = "".join(
        f"    - {{model: {name}, trace: {{file: load.csv.gz}}}}\n" for name in ("inception-v3", "resnet-50")
    )
    Path("service.yaml").write_text(f"service:\n  serve:\n{models}")
    replays = set(COMMANDS) - LIVE - ROLLOUT - METRICS - TAKE_MINUTES
    ordered = sorted(replays, key=lambda name: (MAKERS.index(name) if name in MAKERS else len(MAKERS), name))
    assert set(ordered) == replays

    for line in (line for name in ordered for line in example_lines(COMMANDS[name]) if line not in NEED_A_SERVICE):
        answer = mark(*shlex.split(line)[1:])
        assert answer.status == 0, f"{line}: {answer.err}"
        assert answer.out
        if "--json" in line:
            assert isinstance(json.loads(answer.out), dict)
