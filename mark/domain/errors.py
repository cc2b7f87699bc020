"""Errors, named by what the caller owes (see docs/architecture.md, "Errors")."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class MarkError(Exception):
    """Root of all expected failures; its text is one line that says what to do."""


class RetryLater(MarkError):
    """Throttled or unreachable: repeat the same call with backoff, a bounded number of times."""


class OutcomeUnknown(RetryLater):
    """The call may have taken effect: repeat it only where twice does no harm."""


class NoCapacity(MarkError):
    """An offering cannot be had now: mark it unavailable with an expiry and plan again."""


class AlreadyDone(MarkError):
    """Launched or gone before: treat as done."""


class PlanInfeasible(MarkError):
    """No fleet meets the objective: keep the last plan, burst, alert."""


class Misconfigured(MarkError):
    """What the user gave cannot be done, and the line says what to change; a process refuses to start."""


@contextmanager
def file_errors(what: str) -> Iterator[None]:
    """Misconfigured, `cannot WHAT: why`, where a file or folder is refused, or is no UTF-8 text."""
    try:
        yield
    except OSError as error:
        raise Misconfigured(f"cannot {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f"cannot {what}: it is not UTF-8 text") from error


class BadRequest(MarkError):
    """The client's request is wrong; repeating it as it is will not help. `status` is HTTP's.

    A model raises it, too, for inputs that it cannot answer: the client gets status and text, and no failure is
    counted.
    """

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}...")
        self.status = status


MOST_TEXT = 500
"""Longest text of a BadRequest in characters; part of it may be copied from the request."""
MOST_NAMES = 24
"""So many names an error lists: more than there are policies or forecasters, fewer than types of instances."""


def unknown(kind: str, name: str, known: Iterable[str]) -> Misconfigured:
    """The error for a name that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = ", ".join(names[:MOST_NAMES]) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"known: {listed}{more}"
    return Misconfigured(f"unknown {kind} {name!r}; {hint}")


def failure_words(error: BaseException) -> str:
    """An exception of foreign code in one line: `ValueError: too short`, or that it called exit."""
    if isinstance(error, SystemExit):
        return f"it called exit({'' if error.code is None else error.code})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
