"""What is asked of a live service and could do nothing is refused; what it proposes reaches it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from mark.domain.errors import Misconfigured
from mark.live.commands import load
from mark.live.commands.load import LoadOptions, load_service
from mark.live.commands.up import what_next
from mark.live.local.running import Running
from mark.serving.loadgen.run import LoadResult

RUNNING = Running(name="mark", pid=1, models=({"name": "digits"},))


def test_a_load_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = LoadOptions(
        service="mark", model=None, trace=None, rate_rps=5.0, mean_rps=None, start_s=0.0, duration_s=3.0,
        speed=1e9, seed=0,
    )  # fmt: skip
    monkeypatch.setattr(load, "find_running", lambda _name: RUNNING)
    with pytest.raises(Misconfigured, match=r"nothing would be sent in 3e-09 real seconds: .* a lower --speed"):
        load_service(options, as_json=True)


@pytest.mark.parametrize(
    ("errors", "key", "says"),
    [
        ({"http_401": 2}, None, "name a file that holds it by --key-file FILE"),
        ({"http_401": 2}, "shop.key", "the key in shop.key is unknown, expired, revoked or of a deleted client"),
        ({"http_403": 2}, "shop.key", "the client may not use digits: name one of its models by --model"),
        ({"http_404": 2}, None, ""),
    ],
)
def test_a_load_that_nothing_answered_fails_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], errors: dict[str, int], key: str | None,
    says: str,
) -> None:  # fmt: skip
    options = LoadOptions(
        service="mark", model=None, trace=None, rate_rps=5.0, mean_rps=None, start_s=0.0, duration_s=3.0,
        speed=1.0, seed=0, key_file=None if key is None else Path(key),
    )  # fmt: skip
    result = LoadResult(objective_s=1.0, sent=2, rejected=2, errors=Counter(errors))
    monkeypatch.setattr(load, "find_running", lambda _name: RUNNING)
    monkeypatch.setattr(load, "as_client", lambda running, _key: running)
    monkeypatch.setattr(load, "send", lambda *_given, **_flags: [result])
    with pytest.raises(typer.Exit) as ended:
        load_service(options, as_json=True)
    assert ended.value.exit_code == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["answered"] == 0
    assert says in err if says else not err
    result.latencies_s.append(0.1)
    load_service(options, as_json=True)
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("observes", [False, True])
def test_what_to_do_next_names_the_service_where_it_must_be_named(observes: bool) -> None:
    assert "--name" not in what_next(RUNNING, observes=observes)
    status = what_next(replace(RUNNING, name="shop"), observes=observes).split(";")
    assert len(status) == 3
    assert all(command.endswith(" --name shop") for command in status)
    assert "--model digits" in status[0]
