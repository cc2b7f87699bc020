"""Small stateful stand-ins for what gateways and agents ask of the world."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mark.domain.billing.spending import SpendingLimit
from mark.domain.clients import ClientDirectory
from mark.domain.clock import ClockAnchor
from mark.domain.errors import RetryLater
from mark.domain.fleet.host_spec import HostSpec
from mark.domain.fleet.member import Member, Peer
from mark.domain.load.traffic import GatewayReport, ModelTraffic, Warmed
from mark.domain.models.versions import ModelVersions
from mark.ports import InferReply, InferRequest, OverflowReply
from mark.protocols.oip import bodies as oip
from mark.protocols.oip.replies import compose_infer_reply
from mark.serving.passed_on_trace import model_call, trace_of


class FakeStore:
    """Both links in one: GatewayLink and AgentLink. `away`: every call raises RetryLater."""

    def __init__(self) -> None:
        self.listed: dict[str, Member] = {}
        self.peers: dict[str, Peer] = {}
        self.drained: set[str] = set()
        self.hosts: dict[str, HostSpec] = {}
        self.anchor = ClockAnchor()
        self.directory = ClientDirectory()
        self.versioned: tuple[ModelVersions, ...] = ()
        self.reports: dict[tuple[str, int], GatewayReport] = {}
        self.warmings: tuple[Warmed, ...] = ()
        self.asked_warmed = self.told_clock = self.refused = self.asked_host = 0
        self.away = False
        self.acted: float | None = None
        self.lose_report_answers = 0
        self.spending = SpendingLimit.NONE
        self._version = 0

    async def members_version(self) -> int:
        self._ask()
        return self._version

    async def members(self) -> Sequence[Member]:
        self._ask()
        return tuple(self.listed.values())

    async def clock(self) -> ClockAnchor:
        self._ask()
        self.told_clock += 1
        return self.anchor

    async def acted_at(self) -> float | None:
        self._ask()
        return self.acted

    async def spending_limit(self) -> SpendingLimit:
        return self.spending

    async def versions(self) -> Sequence[ModelVersions]:
        self._ask()
        return self.versioned

    async def clients(self) -> ClientDirectory:
        self._ask()
        return self.directory

    async def warmed(self) -> Sequence[Warmed]:
        self._ask()
        self.asked_warmed += 1
        return self.warmings

    async def report(self, report: GatewayReport) -> None:
        self._ask()
        self.reports[report.gateway, report.sequence] = report
        if self.lose_report_answers:
            self.lose_report_answers -= 1
            raise RetryLater("the answer was lost")

    async def announce_gateway(self, peer: Peer) -> Sequence[Peer]:
        self._ask()
        self.peers[peer.name] = peer
        return tuple(self.peers.values())

    async def leave_gateways(self, name: str) -> None:
        self._ask()
        self.peers.pop(name, None)

    async def announce(self, member: Member) -> bool:
        self._ask()
        if self.listed.get(member.name) != member:
            self.listed[member.name] = member
            self._version += 1
        return member.name in self.drained

    async def leave(self, name: str) -> None:
        self._ask()
        self.forget(name)

    def forget(self, name: str) -> None:
        self.listed.pop(name, None)
        self._version += 1

    async def host(self, instance: str) -> HostSpec | None:
        self._ask()
        self.asked_host += 1
        return self.hosts.get(instance)

    def total(self, field: str) -> float:
        """Of all reports, each sequence number once."""
        models: list[ModelTraffic] = [model for report in self.reports.values() for model in report.models]
        return sum(getattr(model, field) for model in models)

    def arrivals(self) -> int:
        models = [model for report in self.reports.values() for model in report.models]
        return sum(count for model in models for _, count in model.arrivals)

    def _ask(self) -> None:
        if self.away:
            self.refused += 1
            raise RetryLater("the store is unreachable")


class EchoBackend:
    """Answers each Open Inference request with its inputs. It can be slow, held up, or broken."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.batches: list[int] = []
        self.requests: list[InferRequest] = []
        self.variants: list[str] = []
        self.broken = False
        self.answers: InferReply | None = None
        """Given to everybody, if set."""
        self.free = asyncio.Event()
        self.free.set()
        self.started = self.closed = False

    async def start(self) -> None:
        self.started = True

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        self.batches.append(len(batch))
        self.requests += batch
        with model_call(trace_of(batch)):
            if self.takes_s:
                await asyncio.sleep(self.takes_s)
            await self.free.wait()
        if self.broken:
            raise RuntimeError("the model is broken")
        return [self.answers or self._echo(request) for request in batch]

    async def infer_variant(self, batch: Sequence[InferRequest], variant: str) -> Sequence[InferReply]:
        self.variants.append(variant)
        return await self.infer(batch)

    async def close(self) -> None:
        self.closed = True

    def _echo(self, request: InferRequest) -> InferReply:
        if request.path.startswith("/invocations"):
            return InferReply(status=200, content_type="application/json", body=request.body)
        try:
            call = oip.parse_infer(request.body, request.header_length)
        except oip.BadRequest as error:
            return oip.error_reply(error.status, str(error))
        return compose_infer_reply("echo", call.inputs, call)


class FakeLambda:
    """Answers at once, or refuses, or fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, InferRequest]] = []
        self.warmed: list[str] = []
        self.refuses = self.fails = False

    async def invoke(self, function: str, request: InferRequest, timeout_s: float) -> OverflowReply:
        self.calls.append((function, request))
        if self.refuses:
            raise RetryLater("throttled")
        if self.fails:
            raise RuntimeError("a defect")
        await asyncio.sleep(0)
        reply = InferReply(status=200, content_type="application/json", body=b'{"from": "lambda"}')
        return OverflowReply(reply=reply, gib_s=0.5, cold=len(self.calls) == 1)

    async def warm(self, function: str, timeout_s: float, version: str = "") -> OverflowReply:
        self.warmed.append(function)
        if self.refuses:
            raise RetryLater("throttled")
        reply = InferReply(status=200, content_type="application/json", body=b"{}")
        return OverflowReply(reply=reply, gib_s=0.5, cold=True)
