"""Layout of help: the panels of commands, examples that fit 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

PANELS = SERVE, MODEL, REPLAY, FORECAST, DEPLOYMENT, INSPECT, RESEARCH, COMMANDS = (
    "Serve on this machine",
    "Bring your own model",
    "Replay traffic",
    "Forecast",
    "Deploy to AWS",
    "Inspect",
    "Research",
    "Commands",
)
"""In the order in which help shows them."""
GO_ON = " \\\n      "
"""Continuation of an example in its next line, as a shell takes it."""
EXAMPLE_WIDTH = 78
FLAG_AND_VALUE = re.compile(r"(--[\w-]+) (?!-)")


def examples_epilog(examples: Sequence[str]) -> str:
    """The examples that end a command's help; the backspace keeps each on lines of its own."""
    return "\n".join(("\b", "Examples:", *(f"  {_folded(example)}" for example in examples)))


def examples_of(epilog: str) -> list[str]:
    """The examples of an epilog, each in one line."""
    lines = epilog.replace(GO_ON, " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("mark ")]


def _folded(example: str) -> str:
    together = FLAG_AND_VALUE.sub("\\1\0", example)
    lines = textwrap.wrap(
        together,
        EXAMPLE_WIDTH - len(GO_ON),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return GO_ON.join(lines).replace("\0", " ")
