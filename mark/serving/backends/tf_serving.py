"""TensorFlow Serving's REST interface, in its columnar form: {"inputs": {name: values}} -> {"outputs": ...}."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest, Trace
from mark.protocols.oip.bodies import DTYPES, JSON_TYPE, Tensors
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.answering import ModelFailed
from mark.serving.backends.awaited_answering import answer_async
from mark.serving.backends.servers import READY_WITHIN_S, post, wait_until_ready
from mark.serving.http.client import HttpAnswer, HttpClient
from mark.serving.passed_on_trace import trace_of

NATURAL: dict[str, np.dtype[Any]] = {"f": np.dtype("<f4"), "i": np.dtype("<i8"), "b": np.dtype("?")}
"""Types of JSON's numbers where the service does not state an output's type."""


class TfServingBackend:
    """A model on TensorFlow Serving; whatever the clients speak, it is called with merged tensors as JSON."""

    platform = "tf-serving"

    def __init__(
        self,
        url: str,
        *,
        name: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        ready_within_s: float = READY_WITHIN_S,
        version: str = MODEL_VERSION,
    ) -> None:
        """url: `http://host:port`, or with `/v1/models/NAME` where the server calls the model otherwise."""
        self._version = version
        self._client = HttpClient(url)
        self._name = name
        self._path = urlsplit(url).path.rstrip("/") or f"/v1/models/{name}"
        self._ready_within_s = ready_within_s
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    async def start(self) -> None:
        """Wait until a version of the model is AVAILABLE."""
        await wait_until_ready(self._client, self._path, is_ready=_available, within_s=self._ready_within_s)

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """One call for all that fit together."""
        return await answer_async(
            batch, self._name, self.inputs, partial(self._call, trace_of(batch)), self._version
        )

    async def close(self) -> None:
        """Close the connections; the server goes on."""
        await self._client.close()

    async def _call(self, trace: Trace | None, tensors: Tensors) -> Tensors:
        body = json.dumps({"inputs": {name: _values(array) for name, array in tensors.items()}}).encode()
        path = f"{self._path}:predict"
        request = InferRequest(path=path, content_type=JSON_TYPE, body=body, trace=trace)
        answer = await post(self._client, path, request)
        try:
            return self._outputs(json.loads(answer.body)["outputs"])
        except (ValueError, KeyError, TypeError) as error:
            raise ModelFailed(f"the model's server sent an invalid response: {error}", status=502) from error

    def _outputs(self, found: object) -> Tensors:
        """A model with one output is answered without its name."""
        if isinstance(found, dict) and "b64" not in found:
            return {name: self._array(name, values) for name, values in found.items()}
        name = self.outputs[0].name if self.outputs else "output_0"
        return {name: self._array(name, found)}

    def _array(self, name: str, values: Any) -> NDArray[Any]:
        plain = _plain(values)
        natural: NDArray[Any] = np.array(plain)
        if natural.dtype.kind == "S":  # such arrays drop zeros at the end of a text
            return np.array(plain, dtype=object)
        stated = [DTYPES[spec.datatype] for spec in self.outputs if spec.name == name]
        dtype: np.dtype[Any] = stated[0] if stated else NATURAL[natural.dtype.kind]
        return natural.astype(dtype)


def _available(answer: HttpAnswer) -> bool:
    try:
        states = json.loads(answer.body)["model_version_status"]
        return answer.status == 200 and any(state["state"] == "AVAILABLE" for state in states)
    except (ValueError, KeyError, TypeError):
        return False


def _values(array: NDArray[Any]) -> Any:
    """An array as nested lists; texts as TensorFlow Serving wants bytes."""
    if array.dtype.kind != "O":
        return array.tolist()
    coded = [{"b64": base64.b64encode(value).decode()} for value in array.reshape(-1).tolist()]
    return np.array(coded, dtype=object).reshape(array.shape).tolist()


def _plain(values: Any) -> Any:
    """Nested lists with bytes for texts."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    if isinstance(values, dict):
        return base64.b64decode(values["b64"])
    return values.encode() if isinstance(values, str) else values
