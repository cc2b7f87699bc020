"""Model servers beside the agent: containers that answer `/invocations`, and what all servers have in common.

A server that is away answers 503, which a client or gateway may repeat; one that never gets ready is
Misconfigured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mark.domain.errors import Misconfigured, RetryLater
from mark.ports import InferReply, InferRequest, StreamedReply
from mark.protocols.oip.bodies import HEADER_LENGTH, JSON_TYPE, error_reply
from mark.serving.backends.answering import ModelFailed
from mark.serving.http.client import MAX_CONNECTIONS, HttpAnswer, HttpClient
from mark.serving.passed_on_trace import model_call

ANSWER_WITHIN_S = 60.0
"""The simulator's longest wait; a server that takes longer is taken for gone."""
READY_WITHIN_S = 120.0
READY_POLL_S = 0.1
INVOCATIONS_ONLY = error_reply(
    400, "the model's server supports /invocations only; send the request to /invocations"
)


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
    headers = {**_headers(request), "accept": request.accept or "*/*"}
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


async def forward_stream(client: HttpClient, path: str, request: InferRequest) -> StreamedReply:
    """Hand one request to the server, and its answer back in parts as they come; 503 where the server is away."""
    traced = {} if request.trace is None else request.trace.headers
    headers = {**_headers(request), "accept": request.accept or "*/*", **traced}
    try:
        stream = await client.stream(path, head_within_s=ANSWER_WITHIN_S, body=request.body, headers=headers)
    except RetryLater as error:
        return whole(error_reply(503, str(error)))
    return StreamedReply(stream.status, stream.header(b"content-type") or JSON_TYPE, stream)


class _OnePart:
    """The body of a reply that is there already."""

    def __init__(self, body: bytes) -> None:
        self._left = [body]

    def __aiter__(self) -> _OnePart:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()

    async def aclose(self) -> None:
        """No model works for it."""


def whole(reply: InferReply) -> StreamedReply:
    """A reply that is there already, as one of a single part."""
    return StreamedReply(reply.status, reply.content_type, _OnePart(reply.body))


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

    def __init__(
        self, url: str, *, ready_within_s: float = READY_WITHIN_S, connections: int = MAX_CONNECTIONS
    ) -> None:
        """connections: calls at once; streams keep one each."""
        self._client = HttpClient(url, connections=connections)
        self._ready_within_s = ready_within_s

    async def start(self) -> None:
        """Wait until `/ping` answers 200."""
        await wait_until_ready(
            self._client, "/ping", is_ready=lambda answer: answer.status == 200, within_s=self._ready_within_s
        )

    async def infer(self, batch: Sequence[InferRequest]) -> Sequence[InferReply]:
        """Send each request on its own, all at once; such a container does not support OIP v2."""
        return await asyncio.gather(*(self._answer(request) for request in batch))

    async def stream(self, request: InferRequest) -> StreamedReply:
        """Pass on what `/invocations` answers, as it comes."""
        if request.path.startswith("/v2/"):
            return whole(INVOCATIONS_ONLY)
        return await forward_stream(self._client, "/invocations", request)

    async def close(self) -> None:
        """Close the connections; the container goes on."""
        await self._client.close()

    async def _answer(self, request: InferRequest) -> InferReply:
        if request.path.startswith("/v2/"):
            return INVOCATIONS_ONLY
        return await forward(self._client, "/invocations", request)
