"""Triton's extensions of Open Inference Protocol v2, as far as a gateway can answer: index, config, statistics.

Statistics are of the one gateway that is asked, since it started. A gateway sees neither batches nor which part of
a request's time was queue: each request counts as one execution, and `success` has its whole time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from mark.domain.tensor import TensorSpec
from mark.protocols.oip.bodies import BadRequest
from mark.service_spec import ServedModel
from mark.serving.gateway.telemetry.traffic_tally import Tally
from mark.serving.routes import versions_of

_NO_INSTANCE = "no instance accepts requests"


def repository_index(models: Sequence[tuple[ServedModel, bool]], body: bytes) -> list[dict[str, str]]:
    """The response to `POST /v2/repository/index`. models: each with its readiness. Errors: BadRequest."""
    only_ready = False
    if body.strip():
        try:
            asked = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is not JSON: {error}") from None
        only_ready = isinstance(asked, dict) and asked.get("ready") is True
    return [
        {
            "name": served.name,
            "version": version,
            "state": "READY" if ready else "UNAVAILABLE",
            "reason": "" if ready else _NO_INSTANCE,
        }
        for served, ready in models
        if ready or not only_ready
        for version in versions_of(served)
    ]


def model_config(served: ServedModel) -> dict[str, Any]:
    """The response to `GET /v2/models/NAME/config`; the first dimension of each tensor is the batch."""
    sizes = [offering.batch.max_batch for offering in served.offerings]
    return {
        "name": served.name,
        "platform": "mark",
        "backend": served.backend.kind,
        "version_policy": {"all": {}} if served.variants else {"latest": {"num_versions": 1}},
        "max_batch_size": max(sizes, default=1),
        "input": [_tensor(spec) for spec in served.inputs],
        "output": [_tensor(spec) for spec in served.outputs],
        "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": 0},
        "parameters": {
            "objective_ms": {"string_value": f"{served.slo.latency_s * 1000:g}"},
            "objective_share": {"string_value": f"{served.slo.target:g}"},
        },
    }


def model_statistics(served: ServedModel, tally: Tally) -> dict[str, Any]:
    """One model's entry in the response to `GET /v2/models/NAME/stats`; durations in ns."""
    answered = sum(tally.by.values())
    success = {"count": answered, "ns": round(tally.latency_sum_s * 1e9)}
    none = {"count": 0, "ns": 0}
    return {
        "name": served.name,
        "version": versions_of(served)[0],
        "inference_count": answered,
        "execution_count": answered,
        "inference_stats": {
            "success": success,
            "fail": {"count": tally.failed + tally.shed + tally.rejected, "ns": 0},
            **dict.fromkeys(
                ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"), none
            ),
        },
        "batch_stats": [],
        "memory_usage": [],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.shape[1:])}
