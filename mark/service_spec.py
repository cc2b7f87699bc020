"""A live service as one value: its models, each with objective, dispatch, offerings, overflow and backend.

`mark up` or a rollout writes it into the store; gateways, agents and handlers read it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from mark.dispatch.central.policy import CentralPolicy
from mark.dispatch.policy import DispatchPolicy
from mark.dispatch.variants.serving import VariantServing
from mark.domain.billing.footprint import Footprint
from mark.domain.errors import unknown
from mark.domain.fleet.host_spec import SHARED
from mark.domain.models.objective import ModelSpec, Slo
from mark.domain.offerings.offering import LambdaOffering, Offering
from mark.domain.telemetry import Telemetry
from mark.domain.tensor import TensorSpec

BackendKind = Literal["emulated", "python", "oip", "tf-serving", "invocations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """The backend that runs the model behind an agent.

    `emulated` takes the time that the offering's profile states and answers zeros: an emulated time, named so.
    `python` loads `target`, a `module:attribute` or `path/file.py:Name`, whose call gives an object with
    `predict` (see `mark.ports.PythonModel`). The other three are servers at the URL `target`.
    folder: where `target`'s modules are looked for first, on this machine; empty for what is installed. streams:
    every answer comes in parts and keeps a slot of its instance until it ends (docs/protocols.md). packages:
    folder of the model's own ones where it runs (`plugins/packages.py`); empty where it takes those beside MArk.
    """

    kind: BackendKind
    target: str = ""
    folder: str = ""
    streams: bool = False
    packages: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model of a service. `offerings`: all it may run on, fallbacks and standbys included."""

    model: ModelSpec
    slo: Slo
    dispatch: DispatchPolicy
    offerings: tuple[Offering, ...]
    backend: BackendSpec
    overflow: LambdaOffering | None = None
    function: str = ""
    #: the model has two functions, which answer as the version that a call names (`domain/models/versions.py`)
    function_versions: bool = False
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    variants: tuple[str, ...] = field(default_factory=tuple)
    #: Variants from which agents choose one for each batch; None for a model that has one.
    variant_serving: VariantServing | None = None
    #: the version that this is (`domain/models/versions.py`); empty where versions are not told apart
    version: str = ""
    #: what a request costs that an instance in another zone answers than it came in, USD; 0 where nobody tells
    crossing_usd: float = 0.0
    #: the queue that gateways keep; None where requests are bound to an instance when they arrive
    central: CentralPolicy | None = None

    @property
    def has_central_queue(self) -> bool:
        """True where gateways keep the requests until an instance is idle."""
        serving = self.variant_serving
        return self.central is not None or (serving is not None and serving.dispatch.is_central)

    @property
    def name(self) -> str:
        """The model's name, which is also the name of its SageMaker endpoint."""
        return self.model.name

    def offering(self, name: str) -> Offering:
        """The offering of that name; Misconfigured where there is none."""
        for offering in self.offerings:
            if offering.name == name:
                return offering
        raise unknown("offering", name, [offering.name for offering in self.offerings])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The part of a service that agents of one model read. `seed`: the service's."""

    served: ServedModel
    seed: int = 0
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service: its name, models, the seed of whatever is drawn, and what stands around its fleets and is billed.

    Where it only observes nothing is rented: its fleet is one that would have been, beside another that serves and
    costs `existing_usd_per_hour`, where somebody said so.
    """

    name: str
    models: tuple[ServedModel, ...]
    #: None: nothing is billed beside instances and Lambda.
    footprint: Footprint | None = None
    seed: int = 0
    observed: bool = False
    #: Models share instances.
    shares: bool = False
    existing_usd_per_hour: float | None = None
    #: what gateways and agents send to a collector; None for nothing
    telemetry: Telemetry | None = None

    def existing_usd(self, seconds: float) -> float | None:
        """What the fleet that serves costs in that time, where this only observes; None where nobody said."""
        hourly = self.existing_usd_per_hour if self.observed else None
        return None if hourly is None else hourly * seconds / 3600.0

    @property
    def shared(self) -> ServedModel | None:
        """What bills take for the model of shared instances; None where nothing is shared."""
        if not self.shares:
            return None
        offerings = {item.name: item for model in self.models for item in model.offerings}
        first = self.models[0]
        return replace(
            first,
            model=replace(first.model, name=SHARED),
            offerings=tuple(offerings[name] for name in sorted(offerings)),
            overflow=None,
            function="",
        )

    @property
    def billed(self) -> tuple[ServedModel, ...]:
        """Whatever has a ledger: the models, and the shared instances."""
        return self.models if self.shared is None else (*self.models, self.shared)

    def served(self, name: str) -> ServedModel:
        """The model of that name; Misconfigured where there is none."""
        for model in self.models:
            if model.name == name:
                return model
        raise unknown("model", name, [model.name for model in self.models])
