"""A store that outlives its service: each life may have other settings, and goes on with the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mark.store.embedded import EmbeddedRedis
from tests.end_to_end.rig import Rig, fetch, rig

CONFIG = """
service:
  name: {name}
  port: 0
  status_port: 0
  store: {store}
  serve:
    - model: inception-v3
      market: {market}
      offerings: {{types: [{kind}], overflow: false}}
      expected_rps: 20
"""


def lived(live: Rig, store: str, market: str, kind: str) -> dict[str, Any]:
    """One life: its status after a request was answered. No controller ended."""
    text = CONFIG.format(name=live.name, store=store, market=market, kind=kind).replace("{name}", live.name)
    document = live.up(text)
    try:
        processes = live.running["processes"]
        [model] = document["models"]
        status, _, _ = fetch(f"{document['gateway']}/v2/models/{model['name']}/infer", model["example"])
        assert status == 200
        [told] = live.ask("status")["models"]
        assert live.running["processes"] == processes
        return dict(told)
    finally:
        live.down()


@pytest.mark.slow
def test_a_type_and_a_market_are_taken_away_and_come_back(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "redis") as redis, rig(tmp_path / "home", "lives") as live:
        live.home.mkdir()
        spent = 0.0
        for market, kind in (("spot", "c5.large"), ("on-demand", "c5.xlarge"), ("spot", "c5.large")):
            told = lived(live, redis.url, market, kind)
            assert set(told["fleet"]["planned"]) == {f"{kind}:{market}"}
            assert told["notes"] == []
            assert told["cost_usd"]["instances"] > spent
            spent = told["cost_usd"]["instances"]
