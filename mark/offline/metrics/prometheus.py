"""A query of Prometheus, or of what answers as it does (Thanos, Mimir, VictoriaMetrics), as a trace."""

from __future__ import annotations

import base64
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from mark.domain.errors import Misconfigured, RetryLater
from mark.offline.metrics.span import Span
from mark.offline.traces import write_told
from mark.report.terminal import progress
from mark.simulator.traces.formats.content import EmptyFile
from mark.simulator.traces.formats.prometheus import read_range
from mark.simulator.traces.formats.rows import RowKind, TraceOptions

MOST_SAMPLES = 11_000
"""Of a series in one answer: Prometheus refuses more."""
TIMEOUT_S = 150.0
"""Prometheus gives up a query after two minutes."""
ATTEMPTS = 2
"""A page that breaks off is asked for once more."""
SHOWN = 300
"""Characters of Prometheus's own words that an error shows."""
MOST_WARNINGS = 3
TOKEN, USER, PASSWORD = "PROMETHEUS_TOKEN", "PROMETHEUS_USER", "PROMETHEUS_PASSWORD"
CREDENTIALS = f"set {TOKEN}, or {USER} and {PASSWORD}, in the environment"
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`')
WINDOW = re.compile(r"\[\s*((?:\d+(?:ms|[smhdwy]))+)\s*\]")
LENGTH = re.compile(r"(\d+)(ms|[smhdwy])")
UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """Where Prometheus is and how it is asked. url: the address that `/api/v1` follows."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float = TIMEOUT_S

    @classmethod
    def at(cls, url: str, environment: Mapping[str, str]) -> Prometheus:
        """Of an address as people copy it, and the environment's credentials. Misconfigured for no address."""
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            known = False
        if "@" in (parts.netloc if known else url):
            raise Misconfigured(f"the address contains a user name; leave it out and {CREDENTIALS}")
        if not known:
            raise Misconfigured(f"{url} is not an address; write it like http://prometheus:9090")
        base = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        base = base.removesuffix("/query_range").removesuffix("/api/v1")
        return cls(url=base, headers=_credentials(environment))

    def range(self, query: str, first: int, last: int, step_s: int) -> dict[str, Any]:
        """The answer of one page. RetryLater where none came, Misconfigured where it is a refusal or no answer."""
        asked = urlencode({"query": query, "start": first, "end": last, "step": step_s})
        status, location, body = self._get(f"/api/v1/query_range?{asked}")
        if status in range(300, 400):
            raise Misconfigured(
                f"{self.url} redirects to {location}; use that address, or, if it is a login page, {CREDENTIALS}"
            )
        if status >= 400:
            raise self._refusal(status, body)
        return self._document(status, body)

    def _get(self, path: str) -> tuple[int, str, bytes]:
        """Status, place that is redirected to, and body."""
        request = urllib.request.Request(self.url + path, headers=dict(self.headers))  # noqa: S310 - checked in `at`
        try:
            try:
                reply = urllib.request.build_opener(_NoRedirects).open(request, timeout=self.timeout_s)
            except urllib.error.HTTPError as error:
                reply = error  # an answer, too
            with reply:
                return reply.status, reply.headers.get("location", ""), reply.read()
        except (OSError, HTTPException, UnicodeError) as error:
            why = getattr(error, "reason", None) or str(error) or type(error).__name__
            raise RetryLater(
                f"{self.url} did not answer in full ({why}); check the address, and that this machine reaches it"
            ) from error

    def _document(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            document: Any = orjson.loads(body)
        except orjson.JSONDecodeError:
            document = None
        if isinstance(document, dict) and "status" in document:
            return document
        raise Misconfigured(
            f"{self.url} answered {status}, but not as Prometheus does; give the address in front of /api/v1"
        )

    def _refusal(self, status: int, body: bytes) -> Misconfigured | RetryLater:
        if status in (401, 403):
            return Misconfigured(f"{self.url} rejects the credentials ({status}); {CREDENTIALS}")
        if status >= 500 or status == 429:
            return RetryLater(
                f"{self.url} failed ({status}): {_words_of(body)}; try again later or with a shorter span"
            )
        said = str(self._document(status, body).get("error", "no reason"))[:SHOWN]
        if status == 422:
            return Misconfigured(
                f"{self.url} could not evaluate the query: {said}; correct --query, or take a shorter span or "
                "a sum(...)"
            )
        return Misconfigured(f"{self.url} rejects the query: {said}; correct --query")


def _words_of(body: bytes) -> str:
    """What a failure says: Prometheus's error, or the text of what stands before it, such as a proxy."""
    try:
        document: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    text = document.get("error") if isinstance(document, dict) else body.decode(errors="replace")
    return " ".join(str(text or "no reason").split())[:SHOWN]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it would take the credentials to another host."""

    def redirect_request(self, *_: Any, **_named: Any) -> None:
        return None


def import_prometheus(source: Prometheus, query: str, span: Span, target: Path, options: TraceOptions) -> None:
    """Write what the query gives for the span as rates in equal bins."""
    kind, notes = meaning(query, span.step_s)
    options = options if options.rows else replace(options, rows=kind)
    pages = []
    with progress() as report:
        for first, last in span.ends(MOST_SAMPLES):
            report(f"asking {source.url}", (first - span.start_at) / (span.end_at - span.start_at))
            pages.append(ask_page(source, query, first, last, span.step_s))
    document = merged(pages)
    try:
        rows = read_range(source.url, document, options, span.step_s)
    except EmptyFile as error:
        raise EmptyFile(
            f"{source.url} has no data for this query in these days; check names and labels, and give rate() a "
            "window of two scrapes or more, such as [5m]"
        ) from error
    trace = span.trace(source.url, rows, options)
    warnings = dict.fromkeys(str(text) for page in pages for text in page.get("warnings") or ())
    said = (f"Prometheus warns: {text[:SHOWN]}" for text in list(warnings)[:MOST_WARNINGS])
    write_told(replace(trace, notes=(*trace.notes, *notes, *said)), target)


def meaning(query: str, step_s: int) -> tuple[RowKind | None, tuple[str, ...]]:
    """What the values of a query are, None where their series must tell, and notes. Misconfigured for a misfit."""
    words = QUOTED.sub('""', query)
    if "$" in words:
        raise Misconfigured(
            "the query contains a Grafana variable; replace it by its value, such as [1m] for a window"
        )
    windows_s = [
        sum(int(number) * UNITS_S[unit] for number, unit in LENGTH.findall(window))
        for window in WINDOW.findall(words)
    ]
    if re.search(r"\bincrease\s*\(", words):
        if any(window_s != step_s for window_s in windows_s):
            raise Misconfigured(
                f"the query's window is not the step of {step_s} s, so requests would count more than once or not "
                f"at all: write increase(...[{step_s}s]), or use rate(...)"
            )
        return RowKind.COUNT, ()
    if re.search(r"\bi?rate\s*\(", words):
        short = any(window_s < step_s for window_s in windows_s)
        note = f"the query's window is shorter than the step of {step_s} s: requests in between are not seen"
        return RowKind.RATE, (note,) if short else ()
    return None, ()


def merged(pages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One answer of those of several pages: the samples of each series, by its labels."""
    whole = dict(pages[0])
    series: dict[str, dict[str, Any]] = {}
    for page in pages:
        data = page.get("data")
        found = data.get("result") if isinstance(data, dict) else None
        if page.get("status") != "success" or not isinstance(data, dict) or not isinstance(found, list):
            return dict(page)  # its reader says what is wrong
        for one in found:
            labels = one.get("metric") if isinstance(one, dict) else None
            if not isinstance(labels, dict) or not isinstance(one.get("values"), list):
                return dict(page)
            key = repr(sorted(labels.items()))
            kept = series.setdefault(key, {**one, "values": []})
            kept["values"].extend(one["values"])
        whole["data"] = {**data, "result": list(series.values())}
    return whole


def ask_page(source: Prometheus, query: str, first: int, last: int, step_s: int) -> dict[str, Any]:
    """The answer of one page, which is asked for once more where none came. Errors as of `Prometheus.range`."""
    for _ in range(ATTEMPTS - 1):
        try:
            return source.range(query, first, last, step_s)
        except RetryLater:
            continue
    return source.range(query, first, last, step_s)


def _credentials(environment: Mapping[str, str]) -> dict[str, str]:
    token, user = environment.get(TOKEN, "").strip(), environment.get(USER)
    if token and user:
        raise Misconfigured(f"{TOKEN} and {USER} are both set; unset one of them")
    if not (token.isascii() and token.isprintable()):
        raise Misconfigured(f"{TOKEN} is not a token: it contains a line break or another character that none has")
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user:
        both = f"{user}:{environment.get(PASSWORD, '')}"
        return {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}
    return {}
