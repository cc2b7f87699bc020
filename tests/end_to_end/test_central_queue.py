"""A service whose gateways keep central queues: each request is answered once, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.end_to_end.rig import COMMAND_S, LIGHT, Rig, eventually, fetch, rig
from tests.end_to_end.test_nothing_lost import KILL_S, MODEL, RATE, loaded
from tests.end_to_end.test_variants import write_model

VARIED = """
    - model: net
      market: on-demand
      offerings: {types: [c5.large], overflow: false, standby_share: 0}
      expected_rps: 30
      dispatch: central:slackfit
"""
"""A model whose queue forms batches, and chooses the variant of each."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("central"), "central") as made:
        write_model(own := made.home / "net")
        files = f"models: {own}/model.json\nprofiles: [{own}/profile.json]\n"
        made.up(files + LIGHT.format(name=made.name) + "      dispatch: kairos\n" + VARIED)
        yield made
        made.down()


OWN = f'mark_gateway_own_agents{{gateway="gateway-0",model="{MODEL}"}}'


def metric(live: Rig, name: str) -> float:
    """Of the first gateway that has it: the page has all that share the port."""
    page = fetch(f"{live.running['gateway']}/metrics")[1].decode()
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(name)), 0.0)


def total(live: Rig, name: str) -> float:
    """Of all gateways and variants."""
    page = fetch(f"{live.running['gateway']}/metrics")[1].decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith(f"{name}{{") and 'model="net"' in line
    )


@pytest.mark.slow
def test_requests_share_a_batch_and_a_killed_agent_gives_its_own_back(live: Rig) -> None:
    eventually(lambda: total(live, "mark_gateway_own_agents") > 0)
    load = live.start("load", "--rate", "40", "--duration", "15", "--model", "net", "--name", live.name, "--json")
    try:
        eventually(lambda: total(live, "mark_gateway_batches_total") > 20)
        ours = {member.instance for member in live.store.members() if member.model == "net"}
        victim = next(row for row in live.instances("running") if row["id"] in ours)
        os.kill(victim["pid"], signal.SIGKILL)
        out, err = load.communicate(timeout=COMMAND_S)
    finally:
        load.kill()
        load.communicate()
    assert load.returncode == 0, err
    told = json.loads(out)
    assert told["answered"] == told["sent"] > 400
    assert told["errors"].keys() == {"retried"}
    assert total(live, "mark_gateway_variant_responses_total") > 1.2 * total(live, "mark_gateway_batches_total")


@pytest.mark.slow
def test_status_shares_the_agents_as_the_gateways_do(live: Rig) -> None:
    def agrees() -> bool:
        model = next(one for one in live.ask("status")["models"] if one["name"] == MODEL)
        shares = [sum(one["agents"].values()) for one in model["gateways"]]
        ready = sum(row["ready"] for row in model["capacity"])
        own = metric(live, OWN)
        return len(shares) == 2 and sum(shares) == ready > 0 and own in shares

    eventually(agrees)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["gateway", "agent"])
def test_a_killed_process_loses_nothing_of_what_waits(live: Rig, victim: str) -> None:
    eventually(lambda: metric(live, OWN) > 0)
    with loaded(live, wall_s=KILL_S) as load:
        roles = {number: name for name, number in live.running["processes"].items()}
        pid = live.ask("chaos", "kill", victim)["pid"]
        if victim == "gateway":
            eventually(lambda: live.running["processes"][roles[pid]] != pid)
    # its fleet is planned for batches, which a central queue does not make: how many are in time is not asked
    assert load["answered"] == load["sent"] > 0.7 * RATE * KILL_S
    assert load["in_flight"] == 0
    assert load["errors"].keys() == {"retried"}
    eventually(lambda: metric(live, OWN) > 0)
    eventually(lambda: metric(live, "mark_gateway_matchings_total") > 0)
