"""A model on an instance: its queue, its backend, and what is announced of it.

An instance has one model from its start to its end, or is shared and gets its models while it runs
(`agent/tenancies.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from mark.dispatch.policy import Late
from mark.domain.errors import Misconfigured
from mark.domain.fleet.instances import Role
from mark.domain.fleet.member import Member, MemberState
from mark.domain.offerings.offering import Offering
from mark.ports import Backend, StreamingBackend, VariantBackend
from mark.protocols.handshake import new_key
from mark.service_spec import ServedModel
from mark.serving.agent.access import AgentAccess
from mark.serving.agent.batch_trace import AgentTracing
from mark.serving.agent.device import Device
from mark.serving.agent.queue import AgentCore
from mark.serving.agent.streams import StreamCore
from mark.serving.agent.variants import AgentVariants
from mark.telemetry.otlp.sender import TelemetrySender


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Identity and ports of an agent; port 0 takes a free one. `epoch` counts its starts.

    `encrypted`: frames come over TLS, as they have to where they leave the host. `standalone`: no gateway ever
    comes, and its HTTP port takes requests from whoever reaches it. `zone`: availability zone, if known.
    """

    instance: str
    role: Role
    host: str
    frame_port: int = 8001
    http_port: int = 8000
    epoch: int = 0
    encrypted: bool = False
    standalone: bool = False
    zone: str = ""


class _Rules(TypedDict):
    """Rules of admission, and of what hangs, as AgentCore takes them."""

    admission_factor: float | None
    admission_sigmas: float
    give_up_s: float
    cv: float
    hung_after_s: float


class Tenant:
    """One model on this instance; its queue is in `core`. A gateway that knows `wire_key` talks to this one.

    share_rps, device: of a shared instance (`domain/fleet/member.py`, `agent/device.py`); None where the model has
    the instance to itself.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        served: ServedModel,
        offering: Offering,
        backend: Backend,
        telemetry: TelemetrySender | None = None,
        share_rps: float | None = None,
        device: Device | None = None,
    ) -> None:
        self.served, self.offering, self.backend = served, offering, backend
        self.share_rps, self.device = share_rps, device
        self.generation = 0
        self.state = MemberState.STARTING
        self.wire_key = new_key()
        self.access = AgentAccess(self.wire_key, b"" if config.standalone else None)
        serving = served.variant_serving
        if serving is not None and not isinstance(backend, VariantBackend):
            raise Misconfigured(f"{served.name} has variants, and its backend cannot switch between them")
        self._config = config
        self._variants = None if serving is None else AgentVariants(
            serving, offering.instance_type.name, horizon_s=served.slo.latency_s, cv=offering.cv
        )  # fmt: skip
        profile_s, most = offering.profile.latencies_s(offering.profile.max_batch), offering.batch.max_batch
        self._profile_s = profile_s[:most]
        self.core = self._core(self._profile_s, profile_s[most:], telemetry)

    def _core(
        self, profile_s: Sequence[float], beyond_s: Sequence[float], telemetry: TelemetrySender | None
    ) -> AgentCore:
        served, backend = self.served, self.backend
        rules = _Rules(
            admission_factor=served.dispatch.admission_factor,
            admission_sigmas=served.dispatch.admission_sigmas,
            give_up_s=served.dispatch.give_up_s,
            cv=self.offering.cv,
            hung_after_s=served.dispatch.hung_after_s,
        )
        tracing = None
        if telemetry is not None and telemetry.spans is not None:
            tracing = AgentTracing(telemetry.spans, model=served.name, instance=self._config.instance)
        if not served.backend.streams:
            return AgentCore(
                backend,
                profile_s=profile_s,
                beyond_s=beyond_s,
                variants=self._variants,
                tracing=tracing,
                device=self.device,
                sheds_late=served.dispatch.late is Late.SHED,
                **rules,
            )
        if self.device is not None:
            raise Misconfigured(f"{served.name} streams, and shares no instance: set sharing: alone")
        if not isinstance(backend, StreamingBackend):
            raise Misconfigured(f"{served.name} is to stream, and its backend cannot: leave backend.streams out")
        return StreamCore(backend, profile_s=profile_s, tracing=tracing, **rules)

    @property
    def name(self) -> str:
        """The name of the model's version."""
        return f"{self.served.name} {self.served.version}".rstrip()

    @property
    def is_ready(self) -> bool:
        """True while it takes requests."""
        return self.state is MemberState.READY

    def accept(self) -> None:
        """Take requests from now on: the model is loaded."""
        if self.device is not None:
            self.device.join(self.core)
        self.state, self.core.accepting = MemberState.READY, True
        self.core.publish_if_changed()

    def refuse(self, state: MemberState) -> None:
        """Take no more requests; those that wait are answered."""
        self.state, self.core.accepting = state, False
        self.core.publish_if_changed()

    async def close(self) -> None:
        """End its backend. A batch that runs is not answered."""
        await self.core.close()
        if self.device is not None:
            self.device.leave(self.core)
        await self.backend.close()

    def member(self, host: Member) -> Member:
        """Its entry in the store, beside what `host` says of the instance.

        Its times are those of the profile that plans count on.
        """
        core, variants = self.core, self._variants
        batch_s = core.measured.batch_s if variants is None else variants.counted_s(self._profile_s)
        return replace(
            host,
            model=self.served.name,
            offering=self.offering.name,
            state=self.state,
            max_batch=len(batch_s),
            batch_s=batch_s,
            capacity_rps=len(batch_s) / batch_s[-1],
            wire_key=self.wire_key,
            version=self.served.version,
            share_rps=self.share_rps,
            busy_s=0.0 if self.device is None else core.busy_s,
            generation=self.generation,
        )
