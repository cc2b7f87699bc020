"""Results of `simulate`: finished runs, their verdict, document, table and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeVar, overload

from mark.policies.present import Present
from mark.report.page import render_notebook
from mark.report.runs.comparison import ComparedRun
from mark.report.runs.run_documents import SimulateDocument, simulate_document
from mark.report.runs.run_verdict import verdict_of
from mark.report.service.service_document import ServiceSimulateDocument, service_document
from mark.report.service.service_page import render_service_notebook
from mark.report.service.service_verdict import service_replay_verdict
from mark.simulator.services.service_run import ServiceRun

Run = TypeVar("Run", ComparedRun, ServiceRun)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure in the colours of the reader's theme."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Finished(Sequence[Run]):
    """Finished runs, one a policy, in their order. A notebook shows the verdict and the table."""

    runs: tuple[Run, ...]
    #: What runs now, which the verdict compares with.
    now: Present
    #: Policies that were left out, and why.
    left_out: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Run | Self:
        """A run, or some of them."""
        return replace(self, runs=self.runs[index]) if isinstance(index, slice) else self.runs[index]

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.runs)

    def __repr__(self) -> str:
        """The verdict: what a terminal shows."""
        return f"<{type(self).__name__}, {len(self)}: {self.verdict}>"

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What to run, in a sentence or two."""

    def _frame(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        # pandas takes half a second to import, and only this needs it
        from pandas import json_normalize  # noqa: PLC0415

        return json_normalize([dict(row) for row in rows]).set_index("policy")


class Runs(_Finished[ComparedRun]):
    """Replays of one trace, one run a policy, in their order. A notebook shows the verdict and the table.

    left_out: policies that could not run, and why.

    >>> runs = simulate("load.csv.gz", model="inception-v3", policies=["hedged"], duration_s=60, reference=False)
    >>> runs.to_frame().shape[0], round(runs.document["runs"][0]["cost_usd"]["total"], 2) > 0
    (1, True)
    """

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """What to run, what it costs a month in USD and what it saves, in a sentence or two."""
        return verdict_of(self.runs, self.now).sentence

    @property
    def document(self) -> SimulateDocument:
        """The document that `mark simulate --json` prints (docs/json.md)."""
        return simulate_document(self.runs, self.now)

    def to_frame(self) -> Any:
        """A pandas.DataFrame of the document's runs, shape (runs, keys), its index the policies.

        Keys of keys have a dot between them, such as `cost_usd.total`, USD, and `latency_ms.p99`.
        """
        return self._frame(self.document["runs"])

    def plot(self, what: Literal["cost", "load"] = "cost") -> Drawing:
        """A figure that a notebook shows.

        what: "cost", what each policy cost, by component, USD, with reference and floor; "load", for each policy
        arrivals, its forecast and the capacity that was ready, requests/s over time.
        """
        return Drawing(render_notebook(self.runs, self.now, drawn=what))

    def _repr_html_(self) -> str:
        return render_notebook(self.runs, self.now)


class ServiceRuns(_Finished[ServiceRun]):
    """Replays of several models together, one run a policy. A notebook shows the verdict and the table.

    left_out: policies that could not run, and why.

    >>> load = {"inception-v3": "load.csv.gz", "resnet-50": "load.csv.gz"}
    >>> runs = simulate(models=load, policies=["hedged"], duration_s=60)
    >>> [model["model"] for model in runs.document["runs"][0]["models"]]
    ['inception-v3', 'resnet-50']
    """

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """What to run for all models, what it costs a month in USD and what it saves, in a sentence or two."""
        return service_replay_verdict(self.runs, self.now).sentence

    @property
    def document(self) -> ServiceSimulateDocument:
        """The document that `mark simulate --json` prints of a service (docs/json.md)."""
        return service_document(self.runs, self.now)

    def to_frame(self) -> Any:
        """A pandas.DataFrame of the models under each policy, shape (runs x models, keys), indexed by policy."""
        rows = [{"policy": run["policy"], **model} for run in self.document["runs"] for model in run["models"]]
        return self._frame(rows)

    def plot(self) -> Drawing:
        """What each policy cost, by model, USD: a figure that a notebook shows."""
        return Drawing(render_service_notebook(self.runs, self.now, drawn=True))

    def _repr_html_(self) -> str:
        return render_service_notebook(self.runs, self.now)
