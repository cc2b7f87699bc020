"""Help, completion and error documents, as a user of the command line meets them."""

from __future__ import annotations

import json
import shlex
from contextvars import copy_context

import pytest

from mark.cli.commands import ROWS
from mark.cli.main import main
from mark.report.terminal import show_json, show_json_error
from scripts.docs import commands, example_lines

COMMANDS = dict(commands())
PANELS = ("Serve on this machine", "Replay traffic", "Forecast", "Deploy to AWS", "Inspect")


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_commands_stand_in_panels_and_no_summary_is_cut(mark):
    said = mark("--help").out

    assert all(f"\n{panel}:\n" in said for panel in PANELS)
    assert "..." not in said.removeprefix("Usage: mark [OPTIONS] COMMAND [ARGS]...")
    assert all(f"\n  {name.split()[1]} " in said for name in COMMANDS)
    assert mark("-h").out == mark("--help").out == mark().out


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_summary_in_the_list_is_the_one_of_the_command(row):
    assert row.load().get_short_help_str(1000) == row.summary


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_tells_each_default(mark, name):
    answer = mark(*name.split()[1:], "-h")

    assert answer.status == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    for parameter in COMMANDS[name].params:
        if parameter.required or getattr(parameter, "is_flag", False):
            continue
        shown = parameter.default not in (None, "") or "[default: " in (parameter.help or "")
        assert shown, f"{name} {parameter.opts[0]} tells no default"


def test_an_example_over_several_lines_is_what_a_shell_reads(mark):
    said = mark("simulate", "-h").out
    (example,) = (line for line in example_lines(COMMANDS["mark simulate"]) if "--policy all" in line)

    shown = said[said.index("mark simulate --trace load.csv.gz --model inception-v3 --start-s") :]
    assert shlex.split(shown.split("\n    mark")[0].replace("\\\n", "")) == shlex.split(example)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("mark sim", ["simulate"]),
        ("mark simulate --policy mark,rea", ["mark,reactive"]),
        ("mark simulate --model incep", ["inception-v3"]),
        ("mark simulate --market s", ["spot"]),
        ("mark forecast train --predictor last", ["last-value"]),
        ("mark reproduce mark-t", ["mark-table5"]),
        ("mark chaos thr", ["throttle"]),
    ],
)
def test_the_shell_completes_names(line, found, monkeypatch, capsys):
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    monkeypatch.setenv("_MARK_COMPLETE", "complete_bash")
    with pytest.raises(SystemExit):
        main([])

    assert capsys.readouterr().out.split() == found


def test_an_error_after_a_document_adds_none(capsys):
    def finish() -> None:
        show_json({"done": 1})
        show_json_error("late", 2)

    copy_context().run(finish)

    assert json.loads(capsys.readouterr().out) == {"done": 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--model", "inception-v4", "--rate", "9"],
        ["plan", "--modl", "inception-v3"],
        ["simulate", "--model", "inception-v3", "--trace", "none.csv"],
    ],
)
def test_an_error_under_json_is_a_document_on_stdout_and_a_line_on_stderr(mark, arguments):
    plain, answer = mark(*arguments), mark(*arguments, "--json")

    error = json.loads(answer.out)["error"]
    assert plain.status == answer.status == error["exit_code"] == 2
    assert (plain.out, plain.err) == ("", answer.err)
    assert answer.err == f"mark: {error['message']}\n"
