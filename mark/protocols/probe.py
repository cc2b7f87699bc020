"""One request to a service as any client sends it, and what came of it: `mark try`, here or in its function."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TypedDict

TIMEOUT_S = 30.0
"""A first request may wait for a model that is being loaded."""
SERVED_BY = "x-mark-served-by"


class ProbeReply(TypedDict):
    """The reply to a probe."""

    #: Of HTTP; 0 where nothing answered, and `body` says why.
    status: int
    #: instance, standby or lambda; empty where no model answered.
    served_by: str
    #: Until the whole answer was there, where the request was sent.
    ms: float
    body: str


def ask(url: str, body: str, token: str | None) -> ProbeReply:
    """Send one request. An answer that is an error is an answer, too."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    request = urllib.request.Request(url, data=body.encode(), headers=headers, method="POST")  # noqa: S310 - our own
    # the service's address need not be the certificate's name, and a trial signs its certificate itself
    context = ssl._create_unverified_context() if url.startswith("https") else None  # noqa: S323, SLF001
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as reply:  # noqa: S310 - our own
            status, served_by, text = reply.status, reply.headers.get(SERVED_BY, ""), reply.read()
    except urllib.error.HTTPError as error:
        status, served_by, text = error.code, error.headers.get(SERVED_BY, ""), error.read()
    except (OSError, HTTPException) as error:
        status, served_by, text = 0, "", str(getattr(error, "reason", error)).encode()
    ms = round(1000 * (time.monotonic() - began), 1)
    return {"status": status, "served_by": served_by, "ms": ms, "body": text.decode("utf-8", "replace")}
