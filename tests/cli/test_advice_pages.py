"""Pages of symptoms and rivals: the messages exist, and the commands are such as MArk takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mark.policies.bundles import policy_names
from scripts.docs import commands

COMMANDS = dict(commands())
DOCS = Path("docs")
PAGES = ("compared.md", "troubleshooting.md")
LEAST_WORDS = 9
"""Letters of a piece of a message that is looked for; shorter ones are everywhere."""


def commands_of(page: str) -> list[str]:
    """The `mark` commands of a page: in its blocks and its text."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"^\$\s+", "", line.strip()) for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`(mark [^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line for line in (*lines, *inline) if re.match(r"mark [a-z]", line)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_have_the_flags_that_they_are_shown_with(page: str) -> None:
    found = commands_of(page)
    assert found
    for line in found:
        words = shlex.split(line)
        name = max((one for one in COMMANDS if words[: len(one.split())] == one.split()), key=len, default="")
        assert name, line
        flags = {
            flag for parameter in COMMANDS[name].params for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("--")} <= flags, line


def test_policies_that_are_named_exist() -> None:
    (asked,) = (line for line in commands_of("compared.md") if "--policy" in line)
    assert set(shlex.split(asked)[-1].split(",")) <= set(policy_names())


def test_messages_of_the_page_of_symptoms_are_those_of_the_code() -> None:
    source = "".join(
        path.read_text(encoding="utf-8") for room in ("mark", "infra") for path in sorted(Path(room).rglob("*.py"))
    )
    source = re.sub(r'"\s*f?"', "", source)  # texts that go on in the next line
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = [line.split("|")[1] for line in page.splitlines() if line.startswith("| ")]
    told = [text for symptom in symptoms for text in re.findall(r"`([^`]+)`", symptom)]
    pieces = [piece.strip() for text in told for piece in text.split("...") if len(piece.strip()) >= LEAST_WORDS]
    assert len(pieces) > 15
    assert [piece for piece in pieces if piece not in source] == []
