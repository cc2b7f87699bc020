"""Ports: the cores' interfaces to the world. Adapters live in the shells, forecasters in `predictors`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from mark.domain.billing.costs import Transition
from mark.domain.billing.spending import SpendingLimit
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.demand import Demand, DemandUnit, Forecast
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import HostSpec
from mark.domain.fleet.instances import FleetView
from mark.domain.fleet.lease import Lease, LeaseTimes
from mark.domain.fleet.listing import ListedInstance
from mark.domain.fleet.member import Member, Peer
from mark.domain.fleet.orders import Fact, Order
from mark.domain.load.traffic import GatewayReport, Warmed
from mark.domain.models.objective import SloWindow
from mark.domain.models.versions import ModelVersions
from mark.domain.plan import PlanRequest
from mark.domain.supernet import Actuation, ElasticSpace, TrainedSupernet
from mark.domain.tensor import TensorSpec


class Clock(Protocol):
    """Epoch seconds; never goes back."""

    def now(self) -> float: ...


class Cloud(Protocol):
    """A model's fleet: in the simulator, on the emulated AWS, or on AWS."""

    def observe(self) -> FleetView:
        """All instances that are not gone."""
        ...

    def drain_facts(self) -> Sequence[Fact]:
        """Take what happened since the last call: interruption notices, refused launches.

        Notices stay in the queue until `acknowledge`: those of a controller that crashed before it wrote its
        journal are taken by the next one.
        """
        ...

    def acknowledge(self) -> None:
        """Forget the facts drained so far: the journal has them."""
        ...

    def submit(self, order: Order) -> None:
        """Send an order; its result is seen by a later `observe` or `drain_facts`."""
        ...


class DataPlane(Protocol):
    """The controller's view of what gateways and agents report."""

    def next_unit(self) -> DemandUnit | None:
        """Take the oldest unit that has ended and was not taken yet; None between units."""
        ...

    def take_slo_window(self) -> SloWindow | None:
        """Take the monitor's window that closed since the last call; None where none did."""
        ...

    def lambda_warm(self) -> int:
        """Lambda environments believed to be warm."""
        ...

    def recent_rps(self) -> tuple[float, ...]:
        """Rates of the last windows of 5 s, at most twelve, oldest first."""
        ...


class Forecaster(Protocol):
    """Rates to come, from the rates that were. A user's own class needs no more than this."""

    def forecast(self, history: Demand, horizon: int) -> Forecast: ...


@runtime_checkable
class BatchForecaster(Forecaster, Protocol):
    """A forecaster that answers at many instants at once, each as if it were asked there alone, to the bit."""

    def forecast_each(self, load: Demand, ends: Sequence[int], horizon: int) -> Sequence[Forecast]:
        """The forecast after the first n units of a load, for each n of `ends`, rising.

        It looks at nothing that comes after these n, and at no more than `KEEP_HISTORY` units before.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecasterSetup:
    """Arguments of a forecaster's factory: the history to learn from, a seed, a place for what it learned.

    `progress` is called while something long runs, with its label and the share of it that is done, in [0, 1].
    """

    history: Demand
    seed: int
    cache_dir: Path | None = None
    progress: Callable[[str, float], None] | None = None

    def with_truth(self, truth: Demand) -> OracleSetup:
        """The same for a factory that uses the load to come."""
        return OracleSetup(
            history=self.history, seed=self.seed, cache_dir=self.cache_dir, progress=self.progress, truth=truth
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleSetup(ForecasterSetup):
    """Arguments of a factory that declares `uses_truth`: in a replay, the load to come as well."""

    truth: Demand

    def without_truth(self) -> ForecasterSetup:
        """The same for all other factories."""
        return ForecasterSetup(
            history=self.history, seed=self.seed, cache_dir=self.cache_dir, progress=self.progress
        )


class ForecasterFactory(Protocol):
    """A forecaster's factory, loaded by its name: an entry point of `mark.forecasters`, or `module:attribute`."""

    def __call__(self, setup: ForecasterSetup) -> Forecaster: ...


class OracleFactory(Protocol):
    """A forecaster's factory whose forecasts are what will come: it works in a replay only."""

    uses_truth: Literal[True]

    def __call__(self, setup: OracleSetup) -> Forecaster: ...


class Policy(Protocol):
    """Number of instances to rent. A user's own class needs no more than this.

    It may say `period_s`, seconds between two plans (60), and `overflow`, whether Lambda takes requests that would
    be late (False).
    """

    def plan(self, request: PlanRequest) -> Mapping[str, int]:
        """The instances wanted, by the names of `request.offerings`; none of what is not named."""
        ...


PolicyFactory = Callable[[], Policy]
"""A policy's factory, loaded by its name: an entry point of `mark.policies`, or `module:attribute`."""


class Membership(Protocol):
    """The agents of one model, as the controller sees them."""

    def members(self) -> Sequence[Member]:
        """Agents that announced themselves lately, by instance id."""
        ...

    def list_instances(self, instances: Mapping[str, ListedInstance]) -> None:
        """Say which instances there are, by id: gateways take no agent of another."""
        ...

    def drain(self, instances: Sequence[str]) -> None:
        """Ask these to take no new requests and to leave when their last one is answered."""
        ...

    def undrain(self, instances: Sequence[str]) -> None:
        """Forget that they were asked."""
        ...


class Ledger(Protocol):
    """The ledger of the fleet's transitions, for the bill."""

    def note(self, transition: Transition) -> None:
        """Write a transition once, however often it is noted (idempotent)."""
        ...

    def transitions(self, model: str) -> Sequence[Transition]:
        """All that was written of a model's instances, by time."""
        ...


class LeaseKeeper(Protocol):
    """Keeper of the one lease of a service: the store, or a table that outlives any node of the store."""

    @property
    def times(self) -> LeaseTimes:
        """Its pace."""
        ...

    def acquire(self, holder: str, ttl_s: float) -> Lease | None:
        """Acquire the lease; None while another holds it. `holder` is a name that no other process has."""
        ...

    def renew(self, lease: Lease) -> None:
        """Hold it for another `ttl_s`. LeaseLost where another has taken it since."""
        ...

    def release(self, lease: Lease) -> None:
        """Let the next one have it at once; who has lost it already releases nothing."""
        ...

    def held_by(self) -> str | None:
        """The holder of the lease; None where nobody has it."""
        ...


class TailLine(NamedTuple):
    """A line of a journal at its place: the header of a segment is at place 0."""

    segment: int
    place: int
    line: bytes


class JournalTail(Protocol):
    """The last lines of the journals, kept where no node's loss takes them along."""

    def put(self, lease: Lease, model: str, line: TailLine) -> None:
        """Write a line, in place of what stood there. LeaseLost where another has the lease."""
        ...

    def lines(self, model: str, *, segment: int, place: int) -> Iterator[TailLine]:
        """The lines that are kept from that place on, in order."""
        ...

    def put_clients(self, lease: Lease, directory: bytes) -> None:
        """Keep the service's clients, in place of those before. LeaseLost where another has the lease."""
        ...

    def clients(self) -> bytes | None:
        """The clients as they were kept last; None before the first."""
        ...


class GatewayLink(Protocol):
    """A gateway's link to the store. RetryLater while unreachable: the gateway goes on with its last view."""

    async def members_version(self) -> int:
        """Rises with each change of the members; cheap to ask."""
        ...

    async def members(self) -> Sequence[Member]:
        """Members of instances that controllers list."""
        ...

    async def clock(self) -> ClockAnchor: ...

    async def warmed(self) -> Sequence[Warmed]:
        """The last warm-up of each model's function."""
        ...

    async def spending_limit(self) -> SpendingLimit:
        """The limit that holds now, because a budget is reached or the service is paused."""
        ...

    async def versions(self) -> Sequence[ModelVersions]:
        """The versions of each model that has some, cheap to ask."""
        ...

    async def clients(self) -> ClientDirectory:
        """The clients and their keys' hashes, cheap to ask."""
        ...

    async def report(self, report: GatewayReport) -> None: ...

    async def announce_gateway(self, peer: Peer) -> Sequence[Peer]:
        """Announce this gateway (again four times a second); returns those announced lately, by name."""
        ...

    async def leave_gateways(self, name: str) -> None:
        """Withdraw this gateway's announcement."""
        ...


class AgentLink(Protocol):
    """An agent's link to the store. RetryLater where it is unreachable: the agent goes on serving."""

    async def announce(self, member: Member) -> bool:
        """Announce a member (again each second); returns whether it shall drain."""
        ...

    async def leave(self, name: str) -> None:
        """Say that this member is there no more."""
        ...

    async def host(self, instance: str) -> HostSpec | None:
        """The models that a shared instance is to hold; None before anybody has said."""
        ...

    async def clock(self) -> ClockAnchor: ...

    async def acted_at(self) -> float | None:
        """The last sign of a controller that acts, service time; None before the first."""
        ...


class Trace(Protocol):
    """A request's place in a distributed trace (W3C Trace Context)."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers for whoever is called for the request: traceparent and tracestate."""
        ...

    @property
    def is_recorded(self) -> bool:
        """True where this process records spans of it."""
        ...

    def call(self, *, remote: bool = False) -> AbstractContextManager[Mapping[str, str]]:
        """One call of the model, recorded until it is left; gives the headers for it.

        remote: the model runs in a server of its own.
        """
        ...


class InferRequest(NamedTuple):
    """One request's bytes as the client sent them.

    `header_length` is OIP v2's Inference-Header-Content-Length where binary tensors follow the JSON, else 0.
    `accept` says on SageMaker's paths in which media types the client takes the answer; empty for any. `size`, in
    items, is what batches and service times are counted in. `trace`: None where it belongs to none. `version`: as
    which version of the model a function answers; empty for what its own files are.
    """

    path: str
    content_type: str
    body: bytes
    header_length: int = 0
    accept: str = ""
    size: int = 1
    trace: Trace | None = None
    version: str = ""


class InferReply(NamedTuple):
    """One answer's bytes; `header_length` as in the request. `status` is HTTP's.

    `variant`: the variant that answered; the agent names it where the model has several.
    """

    status: int
    content_type: str
    body: bytes
    header_length: int = 0
    variant: str = ""


class ReplyParts(Protocol):
    """The body of an answer, part by part as the model gives it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """End the model's work for it; called once, also where no part was taken."""
        ...


class StreamedReply(NamedTuple):
    """An answer that comes in parts. `status` is HTTP's."""

    status: int
    content_type: str
    parts: ReplyParts


@dataclass(frozen=True, slots=True, kw_only=True)
class OverflowReply:
    """Lambda's answer, its billed memory time (GiB seconds), and whether it started cold.

    `lost`: its environment ended while it worked, so that `reply` is no answer of the model. `not_run`: it could
    not get the model's files, so that nothing was executed either.
    """

    reply: InferReply
    gib_s: float
    cold: bool
    lost: bool = False
    not_run: bool = False


class Overflow(Protocol):
    """Lambda as gateways see it."""

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        """Call it. RetryLater where it throttles or cannot be reached, OutcomeUnknown where it may have run."""
        ...

    async def warm(self, function: str, timeout_s: float, version: str = "") -> OverflowReply:
        """Have an environment load the model, or that version; `reply` has no meaning. Errors as `invoke`."""
        ...


class BackendGone(RetryLater):
    """No process of the backend was there to read the batch."""


class Backend(Protocol):
    """The model server behind an agent: answers batches."""

    async def start(self) -> None:
        """Load the model, or wait until its server is ready. Misconfigured where it never will be."""
        ...

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Answer a batch, in its order. A request that is wrong gets a 4xx of its own and harms no other."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class VariantBackend(Backend, Protocol):
    """A backend whose model has variants."""

    async def infer_variant(self, batch: Sequence[InferRequest], variant: str) -> Sequence[InferReply]:
        """Answer a batch with that variant, as `infer` does with the model's own choice."""
        ...


@runtime_checkable
class ReplacingBackend(Backend, Protocol):
    """A backend that can end what hangs of it, and go on."""

    def replace_hung(self) -> bool:
        """End what has not answered its part of the batch, which then ends. False where that is no help."""
        ...


@runtime_checkable
class MortalBackend(Backend, Protocol):
    """A backend whose processes may end, and that is then made anew by whoever has it."""

    @property
    def is_gone(self) -> bool:
        """True once nothing of it is left to answer. Later batches raise BackendGone: none was read."""
        ...


@runtime_checkable
class StreamingBackend(Backend, Protocol):
    """A backend that answers in parts, and batches by itself what runs at the same time."""

    async def stream(self, request: InferRequest) -> StreamedReply:
        """Begin to answer one request. Cancelled, or its parts closed, it works for it no more.

        A request that is wrong gets a reply of status 4xx. What raises later ends its own stream alone.
        """
        ...


class PythonModel(Protocol):
    """A model that runs in the agent's own process: a user's class needs no more than this."""

    @property
    def inputs(self) -> Sequence[TensorSpec]: ...

    @property
    def outputs(self) -> Sequence[TensorSpec]: ...

    def predict(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a batch. inputs, outputs: numpy arrays by tensor name, the batch first.

        BadRequest where a request in the batch is its client's mistake; any other exception is a failure.
        """
        ...


class VariantModel(PythonModel, Protocol):
    """A Python model that has variants. Until `switch` is called it answers with the most accurate one."""

    def switch(self, variant: str) -> None:
        """Answer with that variant from the next batch on: in place, in far less time than a batch takes."""
        ...


class SupernetSource(Protocol):
    """A network of torch to make a supernet of: a user's class needs no more than this."""

    @property
    def space(self) -> ElasticSpace: ...

    def network(self) -> Any:
        """Make the whole network, an `nn.Module` from a batch of inputs to scores of shape (batch, classes)."""
        ...

    def examples(self, *, held_out: bool) -> tuple[Any, Any]:
        """Inputs, shape (n, ...) in FP32, and labels, shape (n,): those to judge by, or those to learn from."""
        ...


class OpenSupernet(Protocol):
    """A trained supernet in memory."""

    @property
    def figures(self) -> TrainedSupernet: ...

    @property
    def gpu(self) -> str:
        """Name of the GPU that it is on; empty on a CPU."""
        ...

    def save(self, path: Path) -> None:
        """Write all weights and statistics to one file."""
        ...

    def model(self, variant: str) -> VariantModel:
        """The model that answers with that subnet until it is switched to another.

        All of them share one network, and are called in turn.
        """
        ...

    def actuation(self) -> Actuation:
        """Measure what it takes to change the subnet, and compare subnets with extracted ones."""
        ...


class SupernetWorkshop(Protocol):
    """Training and opening of supernets, in torch."""

    def train(self, source: SupernetSource, *, name: str, target: str, seed: int, epochs: int) -> OpenSupernet:
        """Train, calibrate and search. Shows its progress on stderr."""
        ...

    def open(self, source: SupernetSource, figures: TrainedSupernet, path: Path, *, gpu: bool) -> OpenSupernet:
        """Make the supernet that was trained before, with the weights of that file, on a CPU or a GPU."""
        ...
