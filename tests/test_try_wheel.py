"""What `make wheel` tries, as far as it can be told without a wheel; the rest it shows itself, in CI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.try_wheel.commands import try_alone
from scripts.try_wheel.first_report import INSTALL, TRAFFIC, follow, steps_of
from scripts.try_wheel.installation import Broken, Installation

PAGE = Path(__file__).parents[1] / "docs" / "first-report.md"


def test_a_dependency_that_the_wheel_does_not_ask_for_is_seen(tmp_path: Path) -> None:
    class Lacking(Installation):
        def call(self, *words: str) -> str:
            return json.dumps({"modules": 9, "lacking": {"torch": ["models.a"], "uvloop": ["mark.b"]}})

    with pytest.raises(Broken, match=r"does not ask for: \{'uvloop': \['mark\.b'\]\}"):
        try_alone(Lacking(sys.executable, tmp_path))


def test_the_sources_are_no_installation(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="mark is that of "):
        try_alone(Installation(sys.executable, tmp_path))


def test_a_command_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    there = Installation(sys.executable, tmp_path)

    with pytest.raises(Broken, match=r"false || echo no; exit 3: exit status 3: no"):
        there.shell("false || echo no; exit 3")


def test_commands_see_no_credentials_and_no_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "PYTHONPATH", "MARK_CACHE"):
        monkeypatch.setenv(name, "of this machine")
    seen = Installation(sys.executable, tmp_path).shell("env; pwd")

    assert "of this machine" not in seen
    assert seen.splitlines()[-1] == str(tmp_path)


def test_every_block_of_the_first_report_s_page_is_followed() -> None:
    page = PAGE.read_text()
    install, *steps = steps_of(page)

    assert install.title == INSTALL
    assert all(line.split()[0] in {"git", "python3", ".", "pip"} for line in install.commands)
    assert TRAFFIC in {step.title for step in steps}
    assert sorted(name for step in steps for name in step.files) == ["eta/eta.py", "train.py"]
    assert all(line.split()[0] in {"mark", "python", "curl"} for step in steps for line in step.commands)
    assert page.count("```") == 2 * sum(bool(step.commands) + len(step.files) for step in (install, *steps))


def test_a_file_without_a_name_is_refused() -> None:
    with pytest.raises(Broken, match="A model: a file without a name"):
        steps_of("**2. A model** (1 minute).\n\n```python\nimport this\n```\n")


def test_a_wrong_command_of_the_page_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "**2. A model**\n\n```python\n# eta.py\nprint(1)\n```\n\n```sh\npython eta.py\npython other.py\n```\n"
    )

    with pytest.raises(Broken, match=r"python other\.py: exit status 2"):
        follow(Installation(sys.executable, tmp_path), page)
    assert (tmp_path / "eta.py").read_text() == "print(1)\n"
