"""README shows what its commands print."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from scripts.printed import PATTERN, PICTURE, commands_of, digest_of, with_printed

README = (Path(__file__).parents[1] / "README.md").read_text()
CHEAP = """
```console
$ mark trace generate constant --rps 5 --duration-s 300 --out load.csv.gz   # some load
$ mark simulate --trace load.csv.gz --model inception-v3 --start-s 120 --policy static-peak --out run
$ mark explain run --at 2
```

<!-- Printed by the commands above: `make docs`. none -->
```text
an old text
```
"""


def test_readme_s_output_was_printed_by_the_commands_above_it() -> None:
    found = list(PATTERN.finditer(README))

    assert found
    for block in found:
        assert digest_of(commands_of(block["commands"]), block["text"]) == block["digest"], "run make docs"


def test_the_picture_and_the_table_of_readme_are_of_what_its_commands_printed() -> None:
    (block,) = PATTERN.finditer(README)
    table = [line.rsplit("|", 3)[1:3] for line in README.splitlines() if line.startswith("| ")]
    figures = [number for cells in table for cell in cells for number in re.findall(r"\d[\d,.]*\d", cell)]

    assert [found["digest"] for found in PICTURE.finditer(README)] == [block["digest"]]
    assert len(figures) >= 8
    assert not [number for number in figures if number not in block["text"]]
    assert all(
        f"{rate} requests/s on" in block["text"] for rate in re.findall(r"below (\S+) requests/s \|", README)
    )


def test_no_other_text_is_shown_as_printed() -> None:
    assert README.count("```text") == len(PATTERN.findall(README))


@pytest.mark.slow
def test_a_block_is_what_its_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK_CACHE", str(Path(tempfile.gettempdir()) / "mark-test-engine"))
    page = with_printed(CHEAP, tmp_path)
    (block,) = PATTERN.finditer(page)

    assert "static-peak" in block["text"]
    assert "No assumed profiles: all are measured or published." in block["text"]
    assert "report: run/report.html\n" in block["text"]
    assert digest_of(commands_of(block["commands"]), block["text"]) == block["digest"]
    assert (
        digest_of(commands_of(block["commands"].replace("--rps 5", "--rps 6")), block["text"]) != block["digest"]
    )
    assert with_printed(page, tmp_path) == page
