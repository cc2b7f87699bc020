"""A model as a Lambda function: a function URL's event (payload version 2.0) in, its reply out.

MARK_BACKEND_KIND `python` calls the object that MARK_BACKEND_TARGET names; `emulated` answers zeros of
MARK_OUTPUTS after MARK_EMULATED_LATENCY_S: an emulated time, named so. {"mark-warm": true, "hold_s": 0.1} loads
the model, holds the environment that long and answers nothing else.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import runpy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from mark.domain.errors import Misconfigured
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest, PythonModel
from mark.protocols.exchange import read_exchange, row_count, zeros
from mark.protocols.oip import HEADER_LENGTH, BadRequest, Tensors, error_reply

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

HOLD_AT_MOST_S = 10.0
logger = Logger(service="mark-infer")
_loading = threading.Lock()
_served: list[Served] = []


@dataclass(frozen=True, slots=True)
class Served:
    """The model of this environment. `least_s`: an answer takes that long at least, for an emulated one."""

    name: str
    inputs: Sequence[TensorSpec]
    predict: Callable[[Tensors], Mapping[str, Any]]
    least_s: float = 0.0


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Answer one request; whatever is wrong with it is a 4xx in the reply, a model that fails a 500."""
    began = time.perf_counter()
    served = served_model()
    if event.get("mark-warm"):
        time.sleep(min(max(float(event.get("hold_s", 0.0)), 0.0), HOLD_AT_MOST_S))
        return {"mark-warm": True}
    reply = _answer(event, served)
    if reply.status == 200:
        time.sleep(max(0.0, served.least_s - (time.perf_counter() - began)))
    _count(served.name, reply.status)
    return _event_of(reply)


def served_model() -> Served:
    """Loaded once; environments that are threads of one process share it."""
    with _loading:
        if not _served:
            _served.append(load(os.environ))
        return _served[0]


def load(environment: Mapping[str, str]) -> Served:
    """The model that these variables describe. Errors: Misconfigured."""
    name, kind = environment["MARK_MODEL"], environment["MARK_BACKEND_KIND"]
    if kind == "python":
        model = _named(environment["MARK_BACKEND_TARGET"])()
        return Served(name, model.inputs, model.predict)
    if kind != "emulated":
        raise Misconfigured(f"a function runs python or emulated models, not {kind}: that server is not there")
    inputs, outputs = (_specs(environment.get(key, "[]")) for key in ("MARK_INPUTS", "MARK_OUTPUTS"))
    latency_s = float(environment["MARK_EMULATED_LATENCY_S"])
    return Served(name, inputs, lambda tensors: zeros(outputs, row_count(tensors)), latency_s)


def _named(target: str) -> Callable[[], PythonModel]:
    where, _, attribute = target.rpartition(":")
    if where.endswith(".py"):
        found: Callable[[], PythonModel] = runpy.run_path(str(Path(where)))[attribute]
        return found
    factory: Callable[[], PythonModel] = attrgetter(attribute)(importlib.import_module(where))
    return factory


def _specs(text: str) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name=entry["name"], datatype=entry["datatype"], shape=tuple(entry["shape"]))
        for entry in json.loads(text)
    )


def _answer(event: Mapping[str, Any], served: Served) -> InferReply:
    try:
        exchange = read_exchange(_request_of(event), served.name, served.inputs)
        outputs = served.predict(exchange.inputs)
        return exchange.reply({name: np.asarray(value) for name, value in outputs.items()})
    except BadRequest as error:
        return error_reply(error.status, str(error))
    except Exception as error:  # a user's model may raise anything: the request is answered with it
        logger.exception("the model failed")
        return error_reply(500, f"the model failed: {type(error).__name__}: {error}")


def _request_of(event: Mapping[str, Any]) -> InferRequest:
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    body, length = event.get("body") or "", headers.get(HEADER_LENGTH, "0")
    try:
        raw = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
        header_length = int(length)
    except ValueError as error:
        raise BadRequest(f"the body or {HEADER_LENGTH} cannot be read: {error}") from error
    kind = headers.get("content-type", "")
    return InferRequest(path=event.get("rawPath", ""), content_type=kind, body=raw, header_length=header_length)


def _event_of(reply: InferReply) -> dict[str, Any]:
    headers = {"content-type": reply.content_type}
    if reply.header_length:
        headers[HEADER_LENGTH] = str(reply.header_length)
    binary = bool(reply.header_length)
    body = base64.b64encode(reply.body).decode() if binary else reply.body.decode()
    return {"statusCode": reply.status, "headers": headers, "body": body, "isBase64Encoded": binary}


def _count(model: str, status: int) -> None:
    """One line of embedded metrics, of its own for each call: environments may share this process."""
    metrics = EphemeralMetrics(namespace="MArk", service="mark-infer")
    metrics.add_dimension("model", model)
    metrics.add_metric("Answered" if status == 200 else f"Status{status}", MetricUnit.Count, 1)
    metrics.flush_metrics()
