"""Connections to a Redis by URL: one server or a cluster, a Unix socket, TCP or TLS; synchronous and not.

Both links raise RetryLater for whatever redis-py raises, soon: each call has time-outs and is repeated once, for a
connection that an earlier end of the server broke. So everything that is stored can be stored twice without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
from redis.backoff import ConstantBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError
from redis.retry import Retry

from mark.domain.errors import Misconfigured, RetryLater
from mark.store.scripts import Script

CONNECT_S, ANSWER_S = 0.5, 1.0
"""Time-outs of connecting and of one answer."""
PAUSE_S = 0.02
"""Before a call is repeated."""
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
CHOICES = {"ssl_cert_reqs": ("required", "optional", "none"), "ssl_check_hostname": ("true", "false")}
PARAMETERS = ("db", *FILES, *CHOICES)
"""Options in a URL's query; redis-py's names."""
_FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)


class Link:
    """A synchronous connection, made at its first call. Safe to share between threads."""

    def __init__(self, shown: str, make: Callable[[], Any]) -> None:
        self._shown = shown
        self._make = make
        self._client: Any = None

    def call(self, *words: str | bytes | float) -> Any:
        """One command's answer."""
        try:
            self._client = self._client or self._make()
            return self._client.execute_command(*words)
        except _FAILURES as error:
            raise _later(self._shown, error) from error

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float] = ()) -> Any:
        """One script's answer; its text is sent where the server does not know it yet."""
        try:
            self._client = self._client or self._make()
            try:
                return self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return self._client.execute_command("EVAL", script.text, len(keys), *keys, *args)
        except _FAILURES as error:
            raise _later(self._shown, error) from error

    def close(self) -> None:
        """Close what is open; a later call opens it again."""
        if self._client is not None:
            self._client.close()
        self._client = None


class AsyncLink:
    """A connection for one event loop, made at its first call."""

    def __init__(self, shown: str, make: Callable[[], Any]) -> None:
        self._shown = shown
        self._make = make
        self._client: Any = None

    async def call(self, *words: str | bytes | float) -> Any:
        """One command's answer."""
        try:
            self._client = self._client or self._make()
            return await self._client.execute_command(*words)
        except _FAILURES as error:
            raise _later(self._shown, error) from error

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float] = ()) -> Any:
        """One script's answer; its text is sent where the server does not know it yet."""
        try:
            self._client = self._client or self._make()
            try:
                return await self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *args)
        except _FAILURES as error:
            raise _later(self._shown, error) from error

    async def aclose(self) -> None:
        """Close what is open; a later call opens it again."""
        if self._client is not None:
            await self._client.aclose()
        self._client = None


def connect(url: str) -> Link:
    """A synchronous link. Misconfigured where the URL is wrong; nothing is asked of the server yet."""
    plain, cluster = _checked(url)
    kind = redis.cluster.RedisCluster if cluster else redis.Redis
    retry = Retry(ConstantBackoff(PAUSE_S), retries=1)
    return Link(_shown(url), partial(kind.from_url, plain, retry=retry, **_LIMITS))


def connect_async(url: str) -> AsyncLink:
    """A link for one event loop. Misconfigured where the URL is wrong; nothing is asked of the server yet."""
    plain, cluster = _checked(url)
    kind = redis.asyncio.cluster.RedisCluster if cluster else redis.asyncio.Redis
    retry = redis.asyncio.retry.Retry(ConstantBackoff(PAUSE_S), retries=1)
    return AsyncLink(_shown(url), partial(kind.from_url, plain, retry=retry, **_LIMITS))


_LIMITS: dict[str, Any] = {
    "socket_timeout": ANSWER_S,
    "socket_connect_timeout": CONNECT_S,
    "protocol": 2,  # both 6.2 and 7 answer alike in it
}


def _checked(url: str) -> tuple[str, bool]:
    """The URL as redis-py takes it, and whether it names a cluster."""
    try:
        parts = urlsplit(url)
        port = parts.port
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query), keep_blank_values=True))
    except ValueError as error:
        raise _refused(url, str(error)) from error
    if parts.scheme not in SCHEMES:
        raise _refused(url, f"it begins with none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    scheme, cluster, _ = parts.scheme.partition("+cluster")
    if scheme == "unix":
        if parts.hostname or len(parts.path) < 2:
            raise _refused(url, "after unix:// comes a socket's whole path")
    elif not parts.hostname or port == 0:
        raise _refused(url, "it names no host, or port 0")
    elif parts.path.strip("/"):
        query["db"] = parts.path.strip("/")
    if cluster and "db" in query:
        raise _refused(url, "a cluster has no db")
    _check_parameters(url, scheme, query)
    return scheme + url[len(parts.scheme) :], bool(cluster)


def _check_parameters(url: str, scheme: str, query: Mapping[str, str]) -> None:
    for name, value in query.items():
        if name not in PARAMETERS:
            raise _refused(url, f"it has the parameter {name!r}, not one of {', '.join(PARAMETERS)}")
        if name != "db" and scheme != "rediss":
            raise _refused(url, f"only rediss:// takes {name}")
        if name in FILES and not Path(value).is_file():
            raise _refused(url, f"{name} names no file")
        if name == "db" and not value.isdecimal():
            raise _refused(url, "db is no whole number")
        if name in CHOICES and value not in CHOICES[name]:
            raise _refused(url, f"{name} is one of {', '.join(CHOICES[name])}")


def _shown(url: str) -> str:
    """The URL as it may be shown: without password and parameters."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _refused(url: str, why: str) -> Misconfigured:
    try:
        shown = _shown(url)
    except ValueError:
        shown = "it"
    return Misconfigured(f"the store's URL is wrong: {shown}: {why}")


def _later(shown: str, error: Exception) -> RetryLater:
    first = (str(error) or type(error).__name__).splitlines()[0]
    return RetryLater(f"the store {shown} did not answer: {first}")
