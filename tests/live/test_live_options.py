"""What is asked of a live service and could do nothing is refused; what it proposes reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.errors import Misconfigured
from mark.live.commands import load
from mark.live.commands.load import LoadOptions, load_service
from mark.live.commands.up import what_next
from mark.live.local.run_dir import Running

RUNNING = Running(name="mark", pid=1, models=({"name": "digits"},))


def test_a_load_of_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    options = LoadOptions(
        service="mark", model=None, trace=None, rate_rps=5.0, mean_rps=None, start_s=0.0, duration_s=3.0,
        speed=1e9, seed=0,
    )  # fmt: skip
    monkeypatch.setattr(load, "find_running", lambda _name: RUNNING)
    with pytest.raises(Misconfigured, match=r"nothing would be sent in 3e-09 real seconds: .* a lower --speed"):
        load_service(options, as_json=True)


@pytest.mark.parametrize("observes", [False, True])
def test_what_to_do_next_names_the_service_where_it_must_be_named(observes: bool) -> None:
    assert "--name" not in what_next(RUNNING, observes=observes)
    status = what_next(replace(RUNNING, name="shop"), observes=observes).split(";")
    assert len(status) == 3
    assert all(command.endswith(" --name shop") for command in status)
    assert "--model digits" in status[0]
