"""docs/first-report.md from its first model to its last command, as the installation has the page."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from scripts.try_wheel.installation import Broken, Installation

PAGE = Path(sys.prefix) / "share" / "doc" / "mark-serving" / "docs" / "first-report.md"
INSTALL, TRAFFIC = "Install", "Your traffic"
"""Steps that are not only run: `make wheel` has done the first; the other reads a log, which is made for it."""
LOG, TARGET_GROUP, OTHER_GROUP = "access.log.gz", "eta", "web"
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)
LOG_S, RPS, SHARE_OF_ETA, SHARE_OF_GOOD = 30 * 3600, 0.5, 0.8, 0.98
ODD_LINE = "a line that no load balancer writes\n"
LINE = (
    "h2 {at} app/shop/50dc6c495c0c9188 192.0.2.10:39943 10.0.0.66:8080 0.000 0.086 0.000 {status} {status} 0 57 "
    '"POST https://api.example.com:443/infer HTTP/2.0" "a \\"quoted\\" client" - - '
    "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/{group}/73e2d6bc24d8a067 "
    '"Root=1-58337281-1d84f3d73c47ec4e58577259" "-" "-" 0 {at} "forward" "-" "-" "10.0.0.66:8080" "{status}" '
    '"-" "-"\n'
)
GATEWAY = "http://127.0.0.1:8080"
"""As the page has it; another program may hold the port."""
PART = re.compile(
    r"^\*\*\d+\. (?P<title>[^*]+)\*\*|^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"# (\S+\.py)\n")


@dataclass(slots=True)
class Step:
    """A step of the page: files to save and commands to type, in their order."""

    title: str
    files: dict[str, str]
    commands: list[str]


def steps_of(page: str) -> list[Step]:
    """The steps of the page. Broken where a block of Python does not say which file it is."""
    steps: list[Step] = []
    for part in PART.finditer(page):
        if part["title"]:
            steps.append(Step(part["title"], {}, []))
        elif part["kind"] == "sh":
            steps[-1].commands += part["text"].splitlines()
        elif name := FILE.match(part["text"]):
            steps[-1].files[name[1]] = part["text"].removeprefix(name[0])
        else:
            raise Broken(f"{steps[-1].title}: a file without a name")
    return steps


def follow(there: Installation, page: Path = PAGE) -> list[str]:
    """Save and type what the page says; how long each step took. Errors: Broken."""
    said: dict[str, str] = {}
    took: list[str] = []
    begun = monotonic()
    for step in steps_of(page.read_text(encoding="utf-8")):
        if step.title == INSTALL:
            continue
        if step.title == TRAFFIC:
            write_log(there.folder / LOG)
        since = monotonic()
        said |= _typed(there, step)
        took.append(f"{monotonic() - since:6.1f} s  {step.title}")
    _check(there.folder, said)
    return [*took, f"{monotonic() - begun:6.1f} s  together"]


def _typed(there: Installation, step: Step) -> dict[str, str]:
    """Output of each command of a step."""
    said = {}
    for name, text in step.files.items():
        (there.folder / name).parent.mkdir(exist_ok=True)
        (there.folder / name).write_text(text, encoding="utf-8")
    for line in step.commands:
        said[line] = there.shell(line.replace(GATEWAY, there.gateway()) if GATEWAY in line else line)
    return said


def _check(folder: Path, said: dict[str, str]) -> None:
    """Broken where the page's commands ran, and did not make what the page is for."""
    (answer,) = [json.loads(text) for line, text in said.items() if line.startswith("curl")]
    if answer["outputs"][0]["name"] != "minutes":
        raise Broken(f"the gateway answered {answer}")
    (printed,) = [text.splitlines() for line, text in said.items() if "simulate" in line]
    verdict = next((line for line in reversed(printed) if line.startswith(("Run ", "Keep "))), "")
    if not all(words in verdict for words in ("a month", "Lambda alone: ", "MArk: ", "SageMaker as you would")):
        raise Broken(f"no verdict ends the replay, but {verdict!r}")
    for name, word in (("report/report.html", "hedged"), ("live.html", "eta")):
        if word not in (folder / name).read_text(encoding="utf-8"):
            raise Broken(f"{name} does not name {word}")


def write_log(path: Path) -> None:
    """A load balancer's log of 30 hours and two target groups, with failures and an odd line among its lines."""
    first, *rest = _lines(random.Random(1))  # noqa: S311 - no secret
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as log:
        log.writelines([first, ODD_LINE, *rest])


def _lines(draw: random.Random) -> Iterator[str]:
    at = 0.0
    while at < LOG_S:
        at += draw.expovariate(RPS)
        time = (BEGIN + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "Z")
        group = TARGET_GROUP if draw.random() < SHARE_OF_ETA else OTHER_GROUP
        yield LINE.format(at=time, group=group, status=200 if draw.random() < SHARE_OF_GOOD else 404)
