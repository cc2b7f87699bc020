"""The engines of a sweep. Ray itself is asked where it is installed, else a small fake of what is called of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from mark.domain.errors import Misconfigured
from mark.offline.sweep import job, progress
from mark.offline.sweep.cells import SweepLayout, lay_out
from mark.offline.sweep.engines import Processes, SweepEngine, make_engine
from mark.offline.sweep.grid import Axis, combinations, parse_axis, setting_names
from mark.offline.sweep.job import Finished, attempt_elsewhere
from mark.offline.sweep.progress import sweep_progress
from mark.offline.sweep.ray_engine import RayCluster
from scripts.acceptance.zoo import ZooModel, write_zoo


@dataclass(frozen=True, eq=False)
class Reference:
    """Of a task that nobody waited for yet."""

    label: str
    call: Callable[[], object]


class FakeRay(ModuleType):
    """Of Ray what is called: tasks run at once, in this process, and are ready in the opposite order."""

    class RayError(Exception):
        """As ray.exceptions.RayError."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.exceptions = SimpleNamespace(RayError=self.RayError)
        self.cancelled: list[object] = []
        self.asked: dict[str, Any] = {}
        self.put_count = 0
        self.up = False
        self.lost: set[str] = set()

    def init(self, address: str | None, **_options: object) -> None:
        if address == "nowhere":
            raise ConnectionError("cannot connect\nto it")
        self.up = True

    def shutdown(self) -> None:
        self.up = False

    def put(self, value: object) -> tuple[str, object]:
        self.put_count += 1
        return "stored", value

    def remote(self, **options: Any) -> Callable[..., Any]:
        self.asked = options
        return lambda function: SimpleNamespace(
            remote=lambda job, stored: Reference(job.label, lambda: function(job, stored[1]))
        )

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return references[-num_returns:], references[:-num_returns]

    def get(self, reference: Any) -> object:
        if reference.label in self.lost:
            raise self.RayError("The node\nwas lost")
        return reference.call()

    def cancel(self, reference: object, *, force: bool) -> None:
        assert force
        self.cancelled.append(reference)


@pytest.fixture
def fake_ray(monkeypatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    return ray


@pytest.fixture
def layout(mark) -> SweepLayout:
    """Two replays and the yardsticks of their load, in the folder of `mark`."""
    axes = [
        Axis(key="trace.file", flag="--trace", values=("load.csv.gz",)),
        Axis(key="trace.start_s", flag="--start-s", values=(780,)),
        Axis(key="model", flag="--model", values=("inception-v3",)),
        Axis(key="policies", flag="--policy", values=(["reactive", "sagemaker"],)),
    ]
    return lay_out(list(combinations(None, axes)), lambda _label, _share: None)


@pytest.fixture(params=["local", "fake ray", "ray"])
def engine(request, monkeypatch) -> Iterator[SweepEngine]:
    """Every engine; the real Ray where it is installed."""
    job._own_code.cache_clear()  # the sources may have changed since this process began
    if request.param == "local":
        yield Processes(2)
        return
    if request.param == "fake ray":
        monkeypatch.setitem(sys.modules, "ray", FakeRay())
    else:
        pytest.importorskip("ray", reason="needs the extra ray")
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yield RayCluster(None)


def test_every_job_is_done_once_as_here_whatever_becomes_of_another(engine, layout):
    """The traces of a service's models travel as one load, to processes that have no such files."""
    file = write_zoo(Path("zoo"), [ZooModel("a", 40.0, 8.0, 0.0), ZooModel("b", 20.0, 12.0, 0.0)], seed=1)
    known = yaml.safe_load(file.read_text())
    known["trace"]["duration_s"] = 600
    file.write_text(yaml.safe_dump(known | {"forecaster": "last-value"}))
    axes = [Axis(key="policies", flag="--policy", values=(["hedged", "lambda-only"],))]
    service = lay_out(list(combinations(file, axes)), lambda _label, _share: None)
    loads = {**layout.loads, **service.loads}
    good = (*layout.jobs, *service.jobs)
    here = {one.key: attempt_elsewhere(one, loads[one.trace]).document for one in good}
    for trace in Path("zoo").glob("*.csv"):
        trace.unlink()
    bad = replace(layout.jobs[1], key="bad", policy="none such")

    with closing(engine.run((*good, bad), loads)) as stream:
        found = {finished.job.key: finished for finished in stream}

    assert set(found) == {"bad", *here}
    assert found["bad"].failure is not None
    assert found["bad"].failure.startswith("unknown policy 'none such'")
    names = ("cost_usd", "models", "floor_usd", "reference_usd", "policy")  # and not how long it took
    for key, document in here.items():
        assert document is not None
        done = found[key].document
        assert done is not None
        assert [done.get(name) for name in names] == [document.get(name) for name in names]
    yardsticks = [one for one in here.values() if one and "reference_usd" in one and "policy" not in one]
    assert len(yardsticks) == 2
    assert sum(len(document.get("models", ())) for document in here.values() if document) == 4


def test_a_worker_with_other_code_refuses(layout):
    finished = attempt_elsewhere(replace(layout.jobs[0], code="other"), next(iter(layout.loads.values())))

    assert finished.document is None
    assert finished.failure is not None
    assert finished.failure.startswith("the worker has other code of mark than the sweep")


def test_a_lost_node_is_the_failure_of_its_task_alone(fake_ray, layout):
    fake_ray.lost = {layout.jobs[0].label}

    found = list(RayCluster("ray://there").run(layout.jobs, layout.loads))

    assert [finished.failure for finished in found if finished.failure] == ["RayError: The node was lost"]
    assert len(found) == 3
    assert fake_ray.put_count == 1  # the load travels once
    assert fake_ray.asked["num_cpus"] == 1
    assert not fake_ray.up


def test_a_sweep_that_ends_early_cancels_what_ray_still_runs(fake_ray, layout):
    with closing(RayCluster(None).run(layout.jobs, layout.loads)) as stream:
        next(stream)

    assert len(fake_ray.cancelled) == len(layout.jobs) - 1
    assert not fake_ray.up


def test_a_cluster_that_is_not_there_is_one_line(fake_ray, layout):
    with pytest.raises(Misconfigured, match=r"^no Ray cluster at nowhere: cannot connect$"):
        list(RayCluster("nowhere").run(layout.jobs, layout.loads))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:70000"])
def test_an_address_where_nobody_listens_is_refused_at_once(fake_ray, address):
    with pytest.raises(Misconfigured, match=f"^no Ray cluster at {address}: "):
        RayCluster(address)


def test_engines_go_by_their_names(fake_ray):
    assert isinstance(make_engine("ray", workers=None, address=None), RayCluster)
    assert isinstance(make_engine("local", workers=None, address=None), Processes)


def test_what_can_be_swept_is_what_decides_a_replay():
    names = setting_names()

    assert {"policy.lead_min", "policy.monitor.requests", "objective.latency_ms", "faults.interrupts"} <= set(
        names
    )
    others = [name for name in names if name.startswith(("service.", "out"))]
    assert others == ["service.aws.max_usd_per_hour", "service.aws.max_vcpus", "service.aws.max_gpus"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("policy.lead_min=3,5", (3, 5)),
        ("offerings.types=[c5.large],[c5.large, c5.xlarge]", (["c5.large"], ["c5.large", "c5.xlarge"])),
        ("offerings.overflow=true,false", (True, False)),
        ("dispatch=null,least-finish", (None, "least-finish")),
        ("faults.interrupts=[],[{at_min: 1, share: 0.5}]", ([], [{"at_min": 1, "share": 0.5}])),
    ],
)
def test_values_are_read_as_yaml(text, values):
    assert parse_axis(text).values == values


def test_the_bar_of_a_terminal_says_only_what_failed_in_lines(monkeypatch, capsys, layout):
    monkeypatch.setattr(
        progress,
        "Console",
        lambda file: Console(file=file, force_terminal=True, width=120, color_system=None),
    )
    good = Finished(job=layout.jobs[0], document={"reference_usd": None, "floor_usd": None})
    with sweep_progress(1, 4) as tell:
        tell(good)
        tell(Finished(job=layout.jobs[1], failure="it broke", wall_s=1.25))

    said = capsys.readouterr().err
    assert f"{layout.jobs[1].label}: failed: it broke (1.2 s)" in said
    assert "3/4" in said
    assert f"{good.job.label}: " not in said
