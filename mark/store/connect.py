"""Connections to a Redis by URL: one server or a cluster, a Unix socket, TCP or TLS; synchronous and not.

Both links raise RetryLater for whatever redis-py raises, soon: each call has time-outs and is repeated once, for a
connection that an earlier end of the server broke. So everything that is stored can be stored twice without harm.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
from redis.backoff import ConstantBackoff
from redis.exceptions import NoPermissionError, NoScriptError, RedisClusterException, RedisError
from redis.retry import Retry

from mark.domain.errors import Misconfigured, RetryLater
from mark.store.scripts import Script

CONNECT_S, ANSWER_S = 0.5, 1.0
"""Time-outs of connecting and of one answer."""
PAUSE_S = 0.02
"""Before a call is repeated."""
CHECK_S = 30.0
"""Between two looks at where a server is that moves: so long a client may talk to one that nobody follows."""
Locate = Callable[[], str]
"""Names the host of a server that moves."""
Password = Callable[[], str]
"""Tells what to log in with by now; RetryLater where nobody knows."""
SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
CHOICES = {"ssl_cert_reqs": ("required", "optional", "none"), "ssl_check_hostname": ("true", "false")}
PARAMETERS = ("db", *FILES, *CHOICES)
"""Options in a URL's query; redis-py's names."""
BUSY = "BUSY "
"""Begin of the answer to everything while a script runs for seconds."""
_FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)


class _Located:
    """Where the server is now, asked again after each failure and every CHECK_S; it moves as a node is lost."""

    def __init__(self, make: Callable[[str], Any], locate: Locate | None) -> None:
        self._make = make
        self._locate = locate
        self._host = ""
        self._asked_at = -math.inf
        self.client: Any = None

    @property
    def is_due(self) -> bool:
        """True where the place must be asked for before the next call."""
        return self._locate is not None and time.monotonic() - self._asked_at > CHECK_S

    def ask(self) -> str:
        """The host, by a call that may wait. RetryLater where nobody knows it."""
        return self._locate() if self._locate is not None else ""

    def move(self, host: str) -> Any:
        """Take the server to be there; the client of where it was before."""
        left, self._asked_at = None, time.monotonic()
        if host != self._host:
            left, self.client, self._host = self.client, None, host
        return left

    def failed(self) -> None:
        """Have the place asked for again."""
        self._asked_at = -math.inf

    def open(self) -> Any:
        """The client, made at the first call."""
        self.client = self.client or self._make(self._host)
        return self.client


class _Login(redis.CredentialProvider):
    """The URL's user, with the password of the time."""

    def __init__(self, url: str, password: Password) -> None:
        parts = urlsplit(url)
        self._user, self._known, self._password = parts.username or "", parts.password or "", password

    def get_credentials(self) -> tuple[str, str]:
        """User and password."""
        with suppress(RetryLater):
            self._known = self._password()
        return self._user, self._known

    async def get_credentials_async(self) -> tuple[str, str]:
        """The same, while the event loop goes on."""
        return await asyncio.to_thread(self.get_credentials)


class Link:
    """A synchronous connection, made at its first call. Safe to share between threads."""

    def __init__(self, shown: str, make: Callable[[str], Any], locate: Locate | None = None) -> None:
        self._shown = shown
        self._server = _Located(make, locate)

    def call(self, *words: str | bytes | float) -> Any:
        """One command's answer."""
        try:
            return self._client().execute_command(*words)
        except _FAILURES as error:
            raise self._later(error) from error

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float] = ()) -> Any:
        """One script's answer; its text is sent where the server does not know it yet."""
        try:
            client = self._client()
            try:
                return client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return client.execute_command("EVAL", script.text, len(keys), *keys, *args)
        except NoPermissionError as error:
            raise self._later(_untold(error)) from error
        except _FAILURES as error:
            raise self._later(error) from error

    def close(self) -> None:
        """Close what is open; a later call opens it again."""
        if self._server.client is not None:
            self._server.client.close()
        self._server.client = None

    def relocate(self) -> None:
        """Have the next call ask where the server is."""
        self._server.failed()

    def _client(self) -> Any:
        if self._server.is_due:
            left = self._server.move(self._server.ask())
            if left is not None:
                left.close()
        return self._server.open()

    def _later(self, error: Exception) -> RetryLater:
        if str(error).startswith(BUSY):  # no script of ours takes so long: end it, as far as our user may
            with suppress(*_FAILURES):
                self._server.open().execute_command("SCRIPT KILL")
        self._server.failed()
        return _later(self._shown, error)


class AsyncLink:
    """A connection for one event loop, made at its first call."""

    def __init__(self, shown: str, make: Callable[[str], Any], locate: Locate | None = None) -> None:
        self._shown = shown
        self._server = _Located(make, locate)

    async def call(self, *words: str | bytes | float) -> Any:
        """One command's answer."""
        try:
            return await _answer(await self._client(), *words)
        except _FAILURES as error:
            raise self._later(error) from error

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float] = ()) -> Any:
        """One script's answer; its text is sent where the server does not know it yet."""
        try:
            client = await self._client()
            try:
                return await _answer(client, "EVALSHA", script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await _answer(client, "EVAL", script.text, len(keys), *keys, *args)
        except NoPermissionError as error:
            raise self._later(_untold(error)) from error
        except _FAILURES as error:
            raise self._later(error) from error

    async def aclose(self) -> None:
        """Close what is open; a later call opens it again."""
        if self._server.client is not None:
            await self._server.client.aclose()
        self._server.client = None

    async def _client(self) -> Any:
        if self._server.is_due:
            left = self._server.move(await asyncio.to_thread(self._server.ask))
            if left is not None:
                await left.aclose()
        return self._server.open()

    def _later(self, error: Exception) -> RetryLater:
        self._server.failed()
        return _later(self._shown, error)


async def _answer(client: Any, *words: str | bytes | float) -> Any:
    """One command's answer, unless the task was cancelled meanwhile.

    redis-py sends within `asyncio.wait_for`, which loses a cancellation until Python 3.12: a loop that calls the
    store again and again would never end.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        return await client.execute_command(*words)
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def connect(url: str, locate: Locate | None = None) -> Link:
    """A synchronous link. Misconfigured where the URL is wrong; nothing is asked of the server yet.

    `locate` says which host it is that the URL means, where that changes.
    """
    plain, cluster = _checked(url)
    kind = redis.cluster.RedisCluster if cluster else redis.Redis
    retry = Retry(ConstantBackoff(PAUSE_S), retries=1)
    return Link(_shown(url), lambda host: kind.from_url(_at(plain, host), retry=retry, **_LIMITS), locate)


def connect_async(url: str, locate: Locate | None = None, password: Password | None = None) -> AsyncLink:
    """A link for one event loop, as `connect` makes one.

    password: asked at each connection; where it cannot be had the one before stands, at first the URL's.
    """
    plain, cluster = _checked(url)
    login: dict[str, Any] = {}
    if password is not None and urlsplit(plain).username:
        login, plain = {"credential_provider": _Login(plain, password)}, _without_login(plain)
    kind = redis.asyncio.cluster.RedisCluster if cluster else redis.asyncio.Redis
    retry = redis.asyncio.retry.Retry(ConstantBackoff(PAUSE_S), retries=1)
    return AsyncLink(
        _shown(url), lambda host: kind.from_url(_at(plain, host), retry=retry, **login, **_LIMITS), locate
    )


def _without_login(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _at(url: str, host: str) -> str:
    """The URL with another host, which may bring a port of its own; the same where none is named."""
    if not host:
        return url
    parts = urlsplit(url)
    secret, at, before = parts.netloc.rpartition("@")
    port = "" if ":" in host else before.partition(":")[2]
    return urlunsplit(parts._replace(netloc=f"{secret}{at}{host}{':' + port if port else ''}"))


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
            raise _refused(url, "db is not a whole number")
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


def _untold(error: NoPermissionError) -> Exception:
    """The error for a user who may not send a script that the store does not know."""
    if "'eval'" not in str(error):
        return error
    return RedisError("it does not know our scripts yet; a controller tells it")


def _later(shown: str, error: Exception) -> RetryLater:
    first = (str(error) or type(error).__name__).splitlines()[0]
    return RetryLater(f"the store {shown} did not answer: {first}")
