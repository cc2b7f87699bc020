"""The status page: load, forecast, capacity, objective and spend of a running service, drawn by the server.

One view of the service is taken at most each `refresh_s` however many readers there are, on a thread of its own,
because taking it reads the store. Readers with JavaScript get what changed by server-sent events, others reload.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.responses import StreamingResponse as Stream
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mark.domain.documents import json_text
from mark.protocols.local_names import REFUSAL, is_local_name
from mark.report.live.auth import Gate
from mark.report.live.service_status import SERVICE, ServiceStatus
from mark.report.live.status_metrics import service_metrics
from mark.report.live.status_page import Fragments, LivePage
from mark.telemetry.metrics import CONTENT_TYPE

View = Callable[[], ServiceStatus]
Answer = Callable[[Request], Awaitable[Response]]
MOST_STREAMS = 64
"""Readers that are sent events at the same time; the next is turned away and reloads its page."""
KEEP_ALIVE_S = 15.0
LARGEST_FORM = 4096
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""On every answer; the page itself allows its own style and script by a nonce."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A status, what the page shows of it, and when it was taken (s, monotonic)."""

    status: ServiceStatus
    fragments: Fragments
    taken_at: float


class _Watch:
    """Takes the view for all readers together."""

    def __init__(self, view: View, page: LivePage, refresh_s: float) -> None:
        self._view, self._page, self._refresh_s = view, page, refresh_s
        self._lock = asyncio.Lock()
        self._last: _Snapshot | None = None

    async def latest(self) -> _Snapshot:
        """The last view, taken anew when it is older than the refresh."""
        async with self._lock:
            if self._last is None or time.monotonic() - self._last.taken_at >= self._refresh_s:
                self._last = await run_in_threadpool(self._take)
            return self._last

    def _take(self) -> _Snapshot:
        status = self._view()
        return _Snapshot(status, self._page.fragments(status), time.monotonic())


class _Site:
    """The routes' answers."""

    def __init__(self, view: View, *, token: str | None, refresh_s: float, is_ending: Callable[[], bool]) -> None:
        self._page = LivePage()
        self._watch = _Watch(view, self._page, refresh_s)
        self._gate = Gate(token)
        self._refresh_s = refresh_s
        self._is_ending = is_ending
        self._streams = 0

    def guarded(self, answer: Answer) -> Answer:
        """The answer, for those who may see it."""

        async def checked(request: Request) -> Response:
            if self._gate.admits(request):
                return await answer(request)
            return PlainTextResponse(
                "a token is needed: Authorization: Bearer TOKEN\n",
                401,
                headers={**HEADERS, "www-authenticate": "Bearer"},
            )

        return checked

    async def page(self, request: Request) -> Response:
        """The page, or the form that asks for the token."""
        if not self._gate.admits(request):
            return self._login_form(401, refused=False)
        nonce = secrets.token_urlsafe(16)
        seen = await self._watch.latest()
        page = self._page.page(seen.status, seen.fragments, nonce=nonce)
        return HTMLResponse(page, headers=_page_headers(nonce))

    async def login(self, request: Request) -> Response:
        """Give the cookie for the token, or the form again."""
        if self._gate.is_open:
            return RedirectResponse(".", 303, headers=HEADERS)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_FORM:
                return PlainTextResponse("that is not a token\n", 413, headers=HEADERS)
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        if not self._gate.knows(given.strip()):
            return self._login_form(403, refused=True)
        response = RedirectResponse(".", 303, headers=HEADERS)
        self._gate.give_cookie(response, secure=request.url.scheme == "https")
        return response

    def _login_form(self, status: int, *, refused: bool) -> Response:
        nonce = secrets.token_urlsafe(16)
        return HTMLResponse(self._page.login(nonce=nonce, refused=refused), status, headers=_page_headers(nonce))

    async def events(self, request: Request) -> Response:
        """Stream of changes, for as long as the reader stays."""
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many readers\n", 503, headers={**HEADERS, "retry-after": "5"})
        stream = self._changes(request.query_params.get("shape", ""))
        return Stream(stream, media_type="text/event-stream", headers={**HEADERS, "x-accel-buffering": "no"})

    async def _changes(self, shape: str) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield "retry: 1000\n\n"
            sent: Fragments | None = None
            spoke_at = time.monotonic()
            while not self._is_ending():
                shown = (await self._watch.latest()).fragments
                if shape and shown.shape != shape:  # another outline: the page has other places
                    yield "event: reload\ndata: {}\n\n"
                    return
                changed = shown.changed_since(sent)
                if changed:
                    yield f"data: {json_text(changed, allow_nan=True)}\n\n"
                    sent, spoke_at = shown, time.monotonic()
                elif time.monotonic() - spoke_at >= KEEP_ALIVE_S:
                    yield ": still here\n\n"
                    spoke_at = time.monotonic()
                await asyncio.sleep(self._refresh_s)
        finally:
            self._streams -= 1

    async def status(self, _request: Request) -> Response:
        """The status document as JSON."""
        return JSONResponse(SERVICE.dump((await self._watch.latest()).status), headers=HEADERS)

    async def metrics(self, _request: Request) -> Response:
        """The controller's side for Prometheus."""
        text = service_metrics((await self._watch.latest()).status)
        return Response(text, headers={**HEADERS, "content-type": CONTENT_TYPE})


async def _health(_request: Request) -> Response:
    return PlainTextResponse("ok\n", headers=HEADERS)


def status_app(
    view: View,
    *,
    token: str | None,
    local_only: bool = False,
    refresh_s: float = 1.0,
    is_ending: Callable[[], bool] = lambda: False,
) -> Starlette:
    """The page at /, its events, /status.json, /metrics and /healthz. `view` gives the live status.

    local_only: refuse requests whose Host is neither an address nor localhost. With a `token` all but /healthz
    need it, as `Authorization: Bearer` or through the form at /. Streams of events end when `is_ending` says so: a
    server waits for them.
    """
    site = _Site(view, token=token, refresh_s=refresh_s, is_ending=is_ending)
    return Starlette(
        routes=[
            Route("/", site.page),
            Route("/login", site.login, methods=["POST"]),
            Route("/events", site.guarded(site.events)),
            Route("/status.json", site.guarded(site.status)),
            Route("/metrics", site.guarded(site.metrics)),
            Route("/healthz", _health),
        ],
        middleware=[Middleware(_LocalOnly)] if local_only else [],
    )


class _LocalOnly:
    """Refuses what asks for another name than this machine's own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_local_name(Request(scope).headers.get("host", "")):
            await PlainTextResponse(f"{REFUSAL}\n", 421, headers=HEADERS)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _page_headers(nonce: str) -> dict[str, str]:
    allowed = f"; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'"
    return {**HEADERS, "content-security-policy": HEADERS["content-security-policy"] + allowed}
