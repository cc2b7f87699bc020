"""Files that the settings name go to the account with them: no folder of the deploying machine is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mark.catalog.load import load_prices
from mark.config.carried import carried_settings, carry_files
from mark.config.footprint import footprint_of, sized
from mark.config.prices import chosen_prices
from mark.config.settings import Settings, load_settings
from mark.deployment.synth import LEFT_OUT
from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.live.models import make_live_models
from mark.plugins.load import build_forecaster
from mark.ports import ForecasterSetup
from scripts.rehearsal.region_prices import CATALOG, lay_prices

TOKYO = "ap-northeast-1"
ROOM = 3_000
"""Letters that the user data of a lean node has to spare, and some: 16,384 less 12,664."""


def folder_of_tokyo(folder: Path, **more: Any) -> Settings:
    """Settings read from a folder with the prices of a region that MArk ships none of."""
    lay_prices(folder, TOKYO)
    (folder / "own.json").write_text((CATALOG / "profiles" / "assumed-current.json").read_text())
    config = folder / "mark.yaml"
    tree = {
        "prices": "prices.json",
        "service_prices": "services.json",
        "service": {"aws": {"region": TOKYO}, "serve": [{"model": "inception-v3", "profiles": ["own.json"]}]},
        **more,
    }
    config.write_text(json.dumps(tree))
    return load_settings(config, {})


def sent(settings: Settings, offered: set[str]) -> tuple[str, str]:
    told, files = carry_files(sized(settings), offered)
    return told.model_dump_json(exclude_defaults=True, exclude=LEFT_OUT), files


def test_the_account_plans_and_bills_as_the_deploy_did_and_knows_no_folder_of_it(tmp_path: Path) -> None:
    here = folder_of_tokyo(tmp_path)
    models = make_live_models(here)
    offered = {item.instance_type.name for model in models for item in model.served.offerings}
    told, files = sent(here, offered)
    assert str(tmp_path) not in told
    (there := tmp_path / "there").mkdir()
    for gone in ("prices.json", "services.json", "own.json"):
        (tmp_path / gone).rename(tmp_path / f"{gone}.gone")
    arrived = carried_settings(told, files, there)
    assert [one.served for one in make_live_models(arrived)] == [one.served for one in models]
    for gone in ("prices.json", "services.json", "own.json"):
        (tmp_path / f"{gone}.gone").rename(tmp_path / gone)
    assert footprint_of(arrived) == footprint_of(here)
    assert sent(here, offered) == (told, files), "the same settings give the same template"


def test_prices_of_a_region_fit_into_the_start_script_of_a_node(tmp_path: Path) -> None:
    here = folder_of_tokyo(tmp_path, offerings={"types": ["c5.large", "c5.xlarge"]})
    plain = here.model_copy(update={"service": here.service.model_copy(update={"serve": ()})})
    told, files = sent(plain, {"c5.large"})
    assert len(files) < ROOM
    (there := tmp_path / "there").mkdir()
    arrived = carried_settings(told, files, there)
    names = [item.name for item in load_prices(arrived.prices).types]
    assert {"c5.large", "c5.xlarge", "t4g.small"} <= set(names)
    assert len(names) < 10


def test_price_overlays_hold_in_the_account_though_few_prices_go_along(tmp_path: Path) -> None:
    overlays = [{"types": ["c5"], "adjust": "-10%"}, {"types": ["m*.large", "g4dn"], "adjust": "+0.01"}]
    here = folder_of_tokyo(tmp_path, account={"price_overlays": overlays})
    told, files = sent(here, {"c5.large"})
    there = carried_settings(told, files, tmp_path / "there")
    assert len(chosen_prices(there).types) < len(chosen_prices(here).types)
    kinds = [chosen_prices(one).instance_type("c5.large") for one in (here, there)]
    assert kinds[0] == kinds[1] != load_prices(there.prices).instance_type("c5.large")


def test_settings_that_name_no_file_are_sent_as_they_are() -> None:
    settings = Settings.model_validate({"profiles": ["assumed-current"], "service": {"name": "shop"}})
    told, files = sent(settings, set())
    assert files == ""
    assert carried_settings(told, files, Path("/nowhere")) == sized(settings)


OWN = """
import math
from mark.domain.demand import Demand
from mark.plugins.load import build_forecaster
from mark.ports import Forecaster, ForecasterSetup

def own(setup: ForecasterSetup) -> Forecaster:
    return build_forecaster("moving-mean", setup)
"""


def test_a_forecaster_that_is_a_file_goes_along_and_is_the_same_to_every_process(tmp_path: Path) -> None:
    (tmp_path / "my 'own'.py").write_text(OWN)
    (config := tmp_path / "mark.yaml").write_text(
        json.dumps(
            {
                "forecaster": "my 'own'.py:own",
                "service": {
                    "serve": [
                        {"model": "inception-v3"},
                        {"model": "resnet-50", "forecaster": "my 'own'.py:own"},
                        {"model": "nasnet", "forecaster": "seasonal"},
                    ]
                },
            }
        )
    )
    here = load_settings(config, {})
    told, files = sent(here, set())
    assert str(tmp_path) not in told
    for gone in tmp_path.iterdir():
        gone.unlink()
    there = tmp_path / "cache" / "carried"
    arrived, again = (carried_settings(told, files, there) for _ in range(2))
    assert arrived == again
    names = [model.bundle.forecaster for model in make_live_models(arrived)]
    assert names[0] == names[1] == arrived.forecaster
    assert names[2] == "seasonal"
    history = Demand(end_at=0.0, unit_s=60.0, mean_rps=(2.0,) * 60, max_rps=(2.0,) * 60)
    made = build_forecaster(names[0], ForecasterSetup(history=history, seed=1, cache_dir=there))
    assert len(made.forecast(history, 5)) == 5


def test_a_forecaster_has_another_name_where_its_code_is_another_and_not_where_prices_are(tmp_path: Path) -> None:
    """By its name controllers tell whose training another one wrote down."""
    file = tmp_path / "own.py"

    def name(code: str, **more: object) -> str | None:
        file.write_text(code)
        settings = Settings.model_validate({"forecaster": f"{file}:own", **more})
        return carried_settings(*sent(settings, set()), tmp_path / "there").forecaster

    plain = name(OWN)
    lay_prices(tmp_path, TOKYO)
    assert name(OWN, service_prices=str(tmp_path / "services.json")) == plain
    assert name(f"{OWN}# mended") != plain


@pytest.mark.parametrize("beside", ["helpers.py", "helpers/__init__.py"])
@pytest.mark.parametrize("line", ["import helpers", "from helpers.parts import Part"])
def test_a_forecaster_that_imports_what_does_not_go_along_is_refused(
    tmp_path: Path, beside: str, line: str
) -> None:
    (tmp_path / beside).parent.mkdir(exist_ok=True)
    (tmp_path / beside).write_text("")
    (file := tmp_path / "own.py").write_text(f"def own(setup):\n    {line}\n")
    settings = Settings.model_validate({"forecaster": f"{file}:own"})
    with pytest.raises(Misconfigured, match=r"own\.py imports helpers from beside it.* put all into one file"):
        carry_files(settings, ())
    file.write_text("import json\n")
    carry_files(settings, ())


def test_a_file_that_is_not_there_is_named() -> None:
    settings = Settings.model_validate({"models": "mine.json"})
    with pytest.raises(Misconfigured, match=r"cannot read mine\.json"):
        carry_files(settings, ())
