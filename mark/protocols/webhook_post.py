"""One message to a webhook: a POST over HTTPS that follows no redirect and ends in time.

The address is a secret: who has it may write to the channel. So no error names it, nor its host, and errors have
no cause: those of `ssl` and `socket` name the host. Of the answer only the status line is read, which bounds time
and memory whatever the other end does.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import time

from mark.domain.errors import Misconfigured, RetryLater

TIMEOUT_S = 10.0
"""From the connection to the status; of each address that the host has, to the connection."""
MOST_STATUS_LINE = 1024
HTTPS_PORT = 443
_URL = re.compile(r"https://(?P<host>[A-Za-z0-9.-]{1,253})(?::(?P<port>\d{1,5}))?(?P<target>/[!\"$-~]*)?")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
TOO_MANY, SERVER_ERROR = 429, 500


def post(url: str, body: bytes, *, context: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S) -> None:
    """Post a JSON body. Errors name no address.

    RetryLater where nothing answers in time, or with 429 or 5xx; Misconfigured for any other status but 2xx, or an
    address that is none. `context`: the client's side of TLS; the system's authorities when left out.
    """
    host, port, target = url_parts(url)
    head = (
        f"POST {target} HTTP/1.1\r\nHost: {host if port == HTTPS_PORT else f'{host}:{port}'}\r\n"
        "User-Agent: mark-serving\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    try:
        status = _status_of(host, port, head.encode() + body, context or ssl.create_default_context(), timeout_s)
    except (OSError, UnicodeError) as error:
        raise RetryLater(f"the webhook was not reached: {_words(error, timeout_s)}") from None
    if status is None:
        raise RetryLater("the webhook's answer is no HTTP/1.1")
    _check(status)


def url_parts(url: str) -> tuple[str, int, str]:
    """Host, port and target. Misconfigured where it is no address of a webhook, without the address."""
    found = _URL.fullmatch(url)
    if found is None or not 0 < int(found["port"] or HTTPS_PORT) < 2**16:
        raise Misconfigured(
            "the webhook's address is none: it must read https://HOST/PATH, as the chat's page of incoming "
            "webhooks shows it, and nothing else"
        )
    return found["host"], int(found["port"] or HTTPS_PORT), found["target"] or "/"


def _status_of(host: str, port: int, request: bytes, context: ssl.SSLContext, timeout_s: float) -> int | None:
    """Status of the answer; None where it is no HTTP."""
    with socket.create_connection((host, port), timeout_s) as plain:
        until = time.monotonic() + timeout_s
        with context.wrap_socket(plain, server_hostname=host) as link:
            link.settimeout(_left(until))
            link.sendall(request)
            line = b""
            while b"\n" not in line and len(line) < MOST_STATUS_LINE:
                link.settimeout(_left(until))
                read = link.recv(MOST_STATUS_LINE)
                if not read:
                    break
                line += read
    found = _STATUS.match(line)
    return int(found[1]) if found else None


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _check(status: int) -> None:
    if 200 <= status < 300:
        return
    if status == TOO_MANY or status >= SERVER_ERROR:
        raise RetryLater(f"the webhook answers with status {status}")
    redirects = ", a redirect, which is not followed" if 300 <= status < 400 else ""
    raise Misconfigured(
        f"the webhook answers with status {status}{redirects}: was it removed? Make one anew, and put its address "
        "into the secret"
    )


def _words(error: OSError | UnicodeError, timeout_s: float) -> str:
    """The failure without a host's name, which the errors' own texts may have."""
    match error:
        case TimeoutError():
            return f"no answer within {timeout_s:g} s"
        case ssl.SSLCertVerificationError():
            return "its certificate is not valid for its host, or of no authority that is known here"
        case ssl.SSLError():
            return "TLS failed"
        case socket.gaierror() | UnicodeError():
            return "its host is not found"
        case _:
            return os.strerror(error.errno).lower() if error.errno else "the connection failed"
