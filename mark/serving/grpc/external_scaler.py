"""KEDA's external scaler protocol: the pods of each offering, for ScaledObjects of a Kubernetes cluster.

A trigger names its offering in its metadata and has one metric, whose value is the number of pods: with the
target 1 that every metric has, Kubernetes runs as many. The protocol has no place for a reason: it goes with the
answer as metadata. Messages and methods are those of KEDA's `pkg/scalers/externalscaler/externalscaler.proto`
(commit 8b4f083c, 2026-08-20), but for the optional StreamMetricSpec: targets never change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from grpc import aio

from mark.domain.errors import unknown
from mark.domain.plans.pod_plan import PodCount, PodPlan
from mark.serving.grpc.grpc_server import Context, GrpcConfig, bind
from mark.serving.grpc.messages import Fields, Message, message_classes

PACKAGE = "externalscaler"
SERVICE = f"{PACKAGE}.ExternalScaler"
FIELDS: Fields = {
    "ScaledObjectRef": {1: "string name", 2: "string namespace", 3: "map string scalerMetadata"},
    "IsActiveResponse": {1: "bool result"},
    "GetMetricSpecResponse": {1: "repeated MetricSpec metricSpecs"},
    "MetricSpec": {1: "string metricName", 2: "int64 targetSize", 3: "double targetSizeFloat"},
    "GetMetricsRequest": {1: "ScaledObjectRef scaledObjectRef", 2: "string metricName"},
    "GetMetricsResponse": {1: "repeated MetricValue metricValues"},
    "MetricValue": {1: "string metricName", 2: "int64 metricValue", 3: "double metricValueFloat"},
}
CLASSES = message_classes(PACKAGE, FIELDS)
OFFERING = "offering"
"""Key of the trigger's metadata that names an offering, or its type alone."""
REASON = "x-mark-reason"
MESSAGE_BYTES = 64 * 1024
MOST_REASON = 1000
"""Characters of a reason: it travels among the trailing metadata."""


def metric_name(offering: str) -> str:
    """The metric of an offering: Kubernetes has it in paths, where dots and colons of names are no help."""
    return offering.replace(".", "-").replace(":", "-")


class ScalerServer:
    """`externalscaler.ExternalScaler` for these offerings. Made and used in one event loop."""

    def __init__(self, config: GrpcConfig, offerings: Sequence[str]) -> None:
        """Bind the port. Errors: Misconfigured where it cannot be used."""
        self._offerings = {offering.partition(":")[0]: offering for offering in offerings}
        self._plan: PodPlan | None = None
        self._trouble = "the first plan is not made yet"
        self._told = asyncio.Event()
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
        self._server = aio.server(options=options)
        methods = {
            "IsActive": _unary(self._is_active, "ScaledObjectRef"),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(self._stream, **_codec("ScaledObjectRef")),
            "GetMetricSpec": _unary(self._spec, "ScaledObjectRef"),
            "GetMetrics": _unary(self._metrics, "GetMetricsRequest"),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        self.port = bind(self._server, config)

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()

    async def stop(self) -> None:
        """End all calls."""
        await self._server.stop(None)

    def tell(self, plan: PodPlan | None, trouble: str = "") -> None:
        """Answer with this plan from now on. trouble: why there is none."""
        self._plan, self._trouble = plan, trouble
        self._told.set()
        self._told = asyncio.Event()

    async def _is_active(self, reference: Message, context: Context) -> Message:
        return CLASSES["IsActiveResponse"](result=(await self._count(reference, context)).count > 0)

    async def _stream(self, reference: Message, context: Context) -> AsyncIterator[Message]:
        """Say whether it is active, and again whenever that changes."""
        before: bool | None = None
        while True:
            told = self._told
            now = (await self._count(reference, context)).count > 0
            if now != before:
                yield CLASSES["IsActiveResponse"](result=now)
            before = now
            await told.wait()

    async def _spec(self, reference: Message, context: Context) -> Message:
        name = metric_name(await self._offering(reference, context))
        spec = CLASSES["MetricSpec"](metricName=name, targetSize=1, targetSizeFloat=1.0)
        return CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])

    async def _metrics(self, request: Message, context: Context) -> Message:
        reference = request.scaledObjectRef
        offering = await self._offering(reference, context)
        if request.metricName != metric_name(offering):
            text = f"no metric {request.metricName[:200]!r}; {offering} has {metric_name(offering)!r}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        found = await self._count(reference, context)
        reason = found.reason[:MOST_REASON].encode("ascii", "replace").decode()
        context.set_trailing_metadata(((REASON, reason),))
        value = CLASSES["MetricValue"](
            metricName=request.metricName, metricValue=found.count, metricValueFloat=float(found.count)
        )
        return CLASSES["GetMetricsResponse"](metricValues=[value])

    async def _offering(self, reference: Message, context: Context) -> str:
        """The offering that a trigger names."""
        asked = str(reference.scalerMetadata.get(OFFERING, ""))
        found = self._offerings.get(asked) or (asked if asked in self._offerings.values() else None)
        if found is None:
            names = ", ".join(self._offerings)
            text = (
                str(unknown("offering", asked[:200], self._offerings))
                if asked
                else (f"the trigger's metadata needs {OFFERING}: one of {names}")
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            raise AssertionError
        return found

    async def _count(self, reference: Message, context: Context) -> PodCount:
        offering = await self._offering(reference, context)
        found = None if self._plan is None else self._plan.of(offering)
        if found is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"no answer yet: {self._trouble}")
            raise AssertionError
        return found


def _codec(request: str) -> dict[str, Callable[..., Any]]:
    return {
        "request_deserializer": CLASSES[request].FromString,
        "response_serializer": lambda message: message.SerializeToString(),
    }


def _unary(method: Callable[[Message, Context], Any], request: str) -> Any:
    return grpc.unary_unary_rpc_method_handler(method, **_codec(request))
