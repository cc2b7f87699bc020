"""Any server of the Open Inference Protocol v2: Triton, MLServer, KServe's runtimes.

Where its metadata says that the model takes batches, requests are merged into one call, in binary where the server
offers that. Otherwise, and for a single request, bytes pass as they are.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from mark.domain.errors import RetryLater
from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest, StreamedReply, Trace
from mark.protocols.exchange import SAGEMAKER_PATHS
from mark.protocols.oip.bodies import DTYPES, BadRequest, Tensors, compose_infer, error_reply, parse_infer_reply
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.awaited_answering import answer_async
from mark.serving.backends.servers import (
    READY_WITHIN_S,
    forward,
    forward_stream,
    header_length,
    post,
    wait_until_ready,
    whole,
)
from mark.serving.http.client import MAX_CONNECTIONS, HttpClient
from mark.serving.passed_on_trace import trace_of

METADATA_WITHIN_S = 10.0
BINARY = "binary_tensor_data"


class OipBackend:
    """A model on an OIP v2 server. `inputs` and `outputs` are the server's own, known once it is ready."""

    platform = "oip"

    def __init__(
        self,
        url: str,
        *,
        name: str,
        ready_within_s: float = READY_WITHIN_S,
        connections: int = MAX_CONNECTIONS,
        version: str = MODEL_VERSION,
    ) -> None:
        """url: `http://host:port`, or with `/v2/models/NAME` where the server calls the model otherwise.

        connections: calls at once; streams keep one each.
        """
        self._client = HttpClient(url, connections=connections)
        self._name = name
        self._path = urlsplit(url).path.rstrip("/") or f"/v2/models/{name}"
        self._ready_within_s = ready_within_s
        self._version = version
        self._binary = False
        self._takes_batches = False
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()

    async def start(self) -> None:
        """Wait until the server says that the model is ready, and ask what it takes."""
        await wait_until_ready(
            self._client,
            f"{self._path}/ready",
            is_ready=lambda answer: answer.status == 200,
            within_s=self._ready_within_s,
        )
        server, model = await self._document("/v2"), await self._document(self._path)
        self._binary = BINARY in (server.get("extensions") or ())
        self.inputs, self.outputs = _specs(model.get("inputs")), _specs(model.get("outputs"))
        self._takes_batches = bool(self.inputs) and all(spec.shape[:1] == (-1,) for spec in self.inputs)

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """One call for all that fit together, or one for each."""
        if self._takes_batches and len(batch) > 1:
            return await self._together(batch)
        return await asyncio.gather(*(self._alone(request) for request in batch))

    async def stream(self, request: InferRequest) -> StreamedReply:
        """Pass on what the server answers at the same end of the model's path, as it comes."""
        if request.path.startswith(SAGEMAKER_PATHS):
            return whole(error_reply(400, "the model's server streams at /v2/models/NAME/generate_stream only"))
        return await forward_stream(self._client, f"{self._path}/{request.path.rpartition('/')[2]}", request)

    async def close(self) -> None:
        """Close the connections; the server goes on."""
        await self._client.close()

    async def _alone(self, request: InferRequest) -> InferReply:
        if request.path.startswith(SAGEMAKER_PATHS):
            return (await self._together([request]))[0]
        return await forward(self._client, f"{self._path}/infer", request)

    async def _together(self, batch: Sequence[InferRequest]) -> list[InferReply]:
        return await answer_async(
            batch, self._name, self.inputs, partial(self._call, trace_of(batch)), self._version
        )

    async def _call(self, trace: Trace | None, tensors: Tensors) -> Tensors:
        request = compose_infer(tensors, path=f"{self._path}/infer", binary=self._binary)._replace(trace=trace)
        answer = await post(self._client, request.path, request)
        try:
            return parse_infer_reply(answer.body, header_length(answer))
        except BadRequest as error:
            raise ModelFailed(f"the model's server sent an invalid response: {error}", status=502) from error

    async def _document(self, path: str) -> dict[str, Any]:
        """A metadata document of the server; empty where it has none."""
        try:
            answer = await self._client.request("GET", path, timeout_s=METADATA_WITHIN_S)
            found = json.loads(answer.body) if answer.status == 200 else {}
        except (RetryLater, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _specs(entries: object) -> tuple[TensorSpec, ...]:
    """The tensors of a metadata document; none where one cannot be read, and then nothing is merged or checked."""
    if not isinstance(entries, list):
        return ()
    found = []
    for entry in entries:
        if not (isinstance(entry, dict) and isinstance(entry.get("shape"), list)):
            return ()
        if entry.get("datatype") not in DTYPES:
            return ()
        shape = tuple(int(size) for size in entry["shape"])
        found.append(TensorSpec(name=str(entry.get("name")), datatype=entry["datatype"], shape=shape))
    return tuple(found)
