"""Two clients of one service: one that sends at 20 times its rate takes nothing from the other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.rig import LIGHT, Rig, eventually, fetch, rig

RATE_RPS, BURST = 5, 10
SECONDS = 20
MOST_LOST = 0.005
"""Half a point of attainment."""


def create(live: Rig, name: str, *flags: str) -> Path:
    """Create a client; the file with its key."""
    told = live.ask("client", "create", name, *flags)
    assert told["client"]["name"] == name
    path = live.home / f"{name}.key"
    path.write_text(told["key"] + "\n", encoding="ascii")
    return path


def start_load(live: Rig, key: Path, rate: float) -> subprocess.Popen[str]:
    return live.start(
        "load", "--rate", str(rate), "--duration", str(SECONDS), "--key-file", str(key), "--name", live.name,
        "--json"
    )  # fmt: skip


def ended(load: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = load.communicate(timeout=SECONDS + 60)
    assert load.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def clients(live: Rig) -> dict[str, dict[str, Any]]:
    [model] = live.ask("status")["models"]
    return {one["client"]: one for one in model["clients"]}


def infer(live: Rig, key: str | None) -> int:
    [model] = live.running["models"]
    url = f"{live.running['gateway']}/v2/models/{model['name']}/infer"
    return fetch(url, model["example"], token=key)[0]


def attained(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Share answered in time of what came in between."""
    finished, missed = (
        sum(after[name] - before.get(name, 0) for name in names)
        for names in (("answered", "shed", "failed"), ("late", "shed", "failed"))
    )
    assert finished
    return 1 - missed / finished


@pytest.mark.slow
def test_a_client_at_twenty_times_its_rate_takes_nothing_from_another(tmp_path: Path) -> None:
    with rig(tmp_path / "home", "shared") as live:
        live.home.mkdir()
        document = live.up(LIGHT.format(name=live.name))
        try:
            assert infer(live, None) == 200
            calm = create(live, "calm")
            loud = create(live, "loud", "--rate", str(RATE_RPS), "--burst", str(BURST))
            eventually(lambda: infer(live, None) == 401)
            eventually(lambda: clients_known(live, calm, loud))

            alone = ended(start_load(live, calm, RATE_RPS * 2))
            assert alone["errors"] == {"retried": 0}
            eventually(lambda: clients(live)["calm"]["answered"] >= alone["answered"])
            first = clients(live)
            beside, misbehaving = start_load(live, calm, RATE_RPS * 2), start_load(live, loud, RATE_RPS * 20)
            together, refused = ended(beside), ended(misbehaving)
            assert together["errors"] == {"retried": 0}
            eventually(
                lambda: clients(live)["calm"]["answered"] >= first["calm"]["answered"] + together["answered"]
            )
            last = clients(live)

            assert refused["errors"]["http_429"] > refused["sent"] / 2
            assert last["loud"]["limited"] >= refused["errors"]["http_429"]
            assert refused["answered"] <= RATE_RPS * (SECONDS + 2) + BURST
            assert attained(first["calm"], last["calm"]) >= attained({}, first["calm"]) - MOST_LOST
            assert last["calm"]["limited"] == 0
            assert last["calm"]["cost_usd"] > 0
            page = fetch(document["status_page"])[1].decode()
            assert "<h3>Clients</h3>" in page
            [model] = live.ask("report")["models"]
            assert {one["client"] for one in model["clients"]} >= {"calm", "loud"}
            assert_keys_change(live, calm)
        finally:
            live.down()
        live.up(LIGHT.format(name=live.name))
        try:
            listed = {one["name"]: one for one in live.ask("client", "list")["clients"]}
            assert listed["calm"]["revoked_at"] is not None
            assert infer(live, loud.read_text().strip()) == 200, "clients outlive their service"
            assert infer(live, calm.read_text().strip()) == 401
            assert live.ask("client", "delete", "calm")["left"] == ["loud"]
            eventually(lambda: infer(live, None) == 401)
            said = live.mark("client", "delete", "loud", "--name", live.name)
            assert "the service has no clients" in said.out
            eventually(lambda: infer(live, None) == 200)
        finally:
            live.down()


def clients_known(live: Rig, *keys: Path) -> bool:
    """True once all gateways, which share a port, let them in: several connections in a row say so."""
    return all(infer(live, key.read_text().strip()) == 200 for key in keys for _ in range(2))


def assert_keys_change(live: Rig, key: Path) -> None:
    """A rotated key counts beside the old one for a while; a revoked client's do not; nothing restarts."""
    old = key.read_text().strip()
    before = live.running["processes"]
    new = live.ask("client", "rotate", "calm", "--keep-old", "1h")["key"]
    eventually(lambda: infer(live, new) == 200)
    assert infer(live, old) == 200
    newest = live.ask("client", "rotate", "calm", "--keep-old", "0")["key"]
    eventually(lambda: infer(live, newest) == 200)
    eventually(lambda: infer(live, new) == 401)
    assert live.mark("client", "revoke", "calm", "--name", live.name).status == 0
    eventually(lambda: infer(live, newest) == 401)
    assert live.running["processes"] == before
    said = live.mark("client", "rotate", "calm", "--name", live.name)
    assert said.status == 2
    assert "was revoked" in said.err
