"""KEDA as a client of an external scaler: its calls, with the messages of its protocol."""

from __future__ import annotations

from typing import Any

from mark.serving.grpc.external_scaler import CLASSES
from tests.waiting import PATIENCE_S

METHODS = "/externalscaler.ExternalScaler/"


def reference(**metadata: str) -> Any:
    """A trigger, whose metadata has what every trigger has."""
    named = {"scalerAddress": "mark-scaler.models:6000", **metadata}
    return CLASSES["ScaledObjectRef"](name="classifier", namespace="models", scalerMetadata=named)


class Keda:
    """The calls of KEDA's operator, over a channel that waits until the scaler listens."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def is_active(self, of: Any) -> bool:
        return bool(self._call("IsActive", of, "IsActiveResponse").result)

    def spec(self, of: Any) -> list[tuple[str, float]]:
        found = self._call("GetMetricSpec", of, "GetMetricSpecResponse").metricSpecs
        return [(one.metricName, one.targetSizeFloat) for one in found]

    def metrics(self, of: Any, name: str) -> tuple[dict[str, float], str]:
        """Values by metric, and the reason."""
        asked = CLASSES["GetMetricsRequest"](scaledObjectRef=of, metricName=name)
        answer, call = self._method("GetMetrics", "GetMetricsResponse").with_call(
            asked, timeout=PATIENCE_S, wait_for_ready=True
        )
        values = {one.metricName: one.metricValueFloat or float(one.metricValue) for one in answer.metricValues}
        return values, dict(call.trailing_metadata())["x-mark-reason"]

    def active_stream(self, of: Any) -> Any:
        return self._channel.unary_stream(
            f"{METHODS}StreamIsActive",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=CLASSES["IsActiveResponse"].FromString,
        )(of, timeout=PATIENCE_S)

    def _call(self, method: str, message: Any, answer: str) -> Any:
        return self._method(method, answer)(message, timeout=PATIENCE_S, wait_for_ready=True)

    def _method(self, method: str, answer: str) -> Any:
        return self._channel.unary_unary(
            f"{METHODS}{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=CLASSES[answer].FromString,
        )
