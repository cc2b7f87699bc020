"""Model servers beside the agent: containers that answer `/invocations`, and what all servers have in common.

A server that is away answers 503, which a client or gateway may repeat; one that never gets ready is
Misconfigured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mark.domain.errors import Misconfigured, RetryLater
from mark.ports import InferReply, InferRequest
from mark.protocols.oip import HEADER_LENGTH, JSON_TYPE, error_reply
from mark.serving.backends.answering import ModelFailed
from mark.serving.http.client import HttpAnswer, HttpClient
from mark.serving.tracing.passed_on import model_call

ANSWER_WITHIN_S = 60.0
"""The simulator's longest wait; a server that takes longer is taken for gone."""
READY_WITHIN_S = 120.0
READY_POLL_S = 0.1


async def wait_until_ready(
    client: HttpClient, path: str, *, is_ready: Callable[[HttpAnswer], bool], within_s: float = READY_WITHIN_S
) -> None:
    """Poll a health path until it is ready. Errors: Misconfigured after `within_s`, with the last answer."""
    loop = asyncio.get_running_loop()
    deadline_at = loop.time() + within_s
    while True:
        try:
            answer = await client.request("GET", path, timeout_s=within_s)
            last = f"status {answer.status}"
            if is_ready(answer):
                return
        except RetryLater as error:
            last = str(error)
        if loop.time() + READY_POLL_S > deadline_at:
            raise Misconfigured(f"{client.url}{path} is not ready after {within_s:g} s: {last}")
        await asyncio.sleep(READY_POLL_S)


def header_length(answer: HttpAnswer) -> int:
    """Bytes of JSON before an answer's binary tensors; 0 where there are none."""
    stated = answer.headers.get(HEADER_LENGTH, "")
    return int(stated) if stated.isdecimal() else 0


async def forward(client: HttpClient, path: str, request: InferRequest) -> InferReply:
    """Hand one request to the server and its answer back, byte for byte; 503 where the server is away."""
    headers = {"content-type": request.content_type or JSON_TYPE, "accept": request.accept or "*/*"}
    if request.header_length:
        headers[HEADER_LENGTH] = str(request.header_length)
    try:
        with model_call(request.trace, remote=True) as traced:
            answer = await client.request(
                "POST", path, timeout_s=ANSWER_WITHIN_S, body=request.body, headers={**headers, **traced}
            )
    except RetryLater as error:
        return error_reply(503, str(error))
    return InferReply(
        status=answer.status,
        content_type=answer.headers.get("content-type", JSON_TYPE),
        body=answer.body,
        header_length=header_length(answer),
    )


async def post(client: HttpClient, path: str, request: InferRequest) -> HttpAnswer:
    """Call the model on its server. Errors: ModelFailed, with the server's text."""
    try:
        with model_call(request.trace, remote=True) as traced:
            answer = await client.request(
                "POST", path, timeout_s=ANSWER_WITHIN_S, body=request.body, headers={**_headers(request), **traced}
            )
    except RetryLater as error:
        raise ModelFailed(str(error), status=503, whole=True) from error
    if answer.status != 200:
        text = answer.body[:500].decode("utf-8", "replace")
        raise ModelFailed(
            f"the model's server responded with status {answer.status}: {text}", status=answer.status
        )
    return answer


def _headers(request: InferRequest) -> dict[str, str]:
    headers = {"content-type": request.content_type or JSON_TYPE}
    if request.header_length:
        headers[HEADER_LENGTH] = str(request.header_length)
    return headers


class InvocationsBackend:
    """A container that answers `/ping` and `/invocations`, as SageMaker asks of one; bodies are its own affair."""

    platform = "invocations"

    def __init__(self, url: str, *, ready_within_s: float = READY_WITHIN_S) -> None:
        self._client = HttpClient(url)
        self._ready_within_s = ready_within_s

    async def start(self) -> None:
        """Wait until `/ping` answers 200."""
        await wait_until_ready(
            self._client, "/ping", is_ready=lambda answer: answer.status == 200, within_s=self._ready_within_s
        )

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Send each request on its own, all at once; such a container does not support OIP v2."""
        return await asyncio.gather(*(self._answer(request) for request in batch))

    async def close(self) -> None:
        """Close the connections; the container goes on."""
        await self._client.close()

    async def _answer(self, request: InferRequest) -> InferReply:
        if request.path.startswith("/v2/"):
            return error_reply(
                400, "the model's server supports /invocations only; send the request to /invocations"
            )
        return await forward(self._client, "/invocations", request)
