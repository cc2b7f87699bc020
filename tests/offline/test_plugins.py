from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mark.domain.demand import Demand
from mark.domain.errors import Misconfigured
from mark.offline.sweep.keys import forecaster_digest
from mark.plugins.files import files_of
from mark.plugins.load import build_forecaster, forecaster_names, is_oracle, load_forecaster
from mark.ports import ForecasterSetup
from mark.predictors.naive import LastValue, SeasonalNaive

HISTORY = Demand(end_at=180.0, mean_rps=(10.0, 20.0, 30.0), max_rps=(20.0, 30.0, 40.0))
SETUP = ForecasterSetup(history=HISTORY, seed=1)


def refusal(name: str) -> str:
    with pytest.raises(Misconfigured) as caught:
        build_forecaster(name, SETUP)
    text = str(caught.value)
    assert "\n" not in text
    return text


def plugin(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_entry_points_and_modules_load_the_same_class():
    assert load_forecaster("last-value") is LastValue
    assert load_forecaster("mark.predictors.naive:SeasonalNaive") is SeasonalNaive


def test_shipped_names_are_known():
    assert {"last-value", "seasonal-naive", "oracle", "lstm-vanilla"} <= set(forecaster_names())


def test_a_function_is_a_factory_too(tmp_path):
    path = plugin(
        tmp_path, "from mark.predictors.naive import LastValue\ndef make(setup): return LastValue(setup)\n"
    )

    assert build_forecaster(f"{path}:make", SETUP).forecast(HISTORY, 2).mean_rps == ((30.0,), (30.0,))


@pytest.mark.parametrize("text", ["import sys\nsys.exit(3)\n", "import sys\ndef Mine(setup): sys.exit(3)\n"])
def test_a_file_that_exits_is_refused(tmp_path, text):
    assert refusal(plugin(tmp_path, text) + ":Mine").endswith("does not load: it called exit(3)")


def test_files_of_the_same_name_are_two_modules(tmp_path):
    text = "class Mine:\n    here = {!r}\n    def __init__(self, setup): ...\n"
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    loaded = [load_forecaster(plugin(folder, text.format(folder.name)) + ":Mine") for folder in folders]

    assert [getattr(factory, "here", None) for factory in loaded] == ["a", "b"]


NEIGHBOUR = "from mark.predictors.naive import LastValue\nclass Theirs(LastValue):\n    here = {!r}\n"
IMPORTS = "from beside import Theirs\nclass Mine(Theirs): ...\n"


def test_a_file_may_import_what_lies_beside_it(tmp_path):
    before = list(sys.path)
    loaded = []
    for name in ("a", "b", "a"):  # a module of the same name in another folder is another
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        plugin(folder, NEIGHBOUR.format(name), "beside.py")
        loaded.append(load_forecaster(plugin(folder, IMPORTS) + ":Mine"))

    assert [getattr(factory, "here", None) for factory in loaded] == ["a", "b", "a"]
    assert files_of(tmp_path / "a" / "mine.py") == (tmp_path / "a" / "mine.py", tmp_path / "a" / "beside.py")
    assert sys.path == before


def test_a_neighbour_that_was_mended_is_loaded_afresh(tmp_path):
    plugin(tmp_path, "raise ValueError('not yet')\n", "beside.py")
    path = plugin(tmp_path, IMPORTS)
    assert "ValueError: not yet" in refusal(f"{path}:Mine")
    plugin(tmp_path, NEIGHBOUR.format("mended") + "# longer\n", "beside.py")

    assert getattr(load_forecaster(f"{path}:Mine"), "here", None) == "mended"


def test_a_neighbour_is_part_of_what_a_result_is_known_by(tmp_path):
    plugin(tmp_path, NEIGHBOUR.format("one"), "beside.py")
    name = plugin(tmp_path, IMPORTS) + ":Mine"
    first = forecaster_digest(name)
    forecaster_digest.cache_clear()
    plugin(tmp_path, NEIGHBOUR.format("another"), "beside.py")

    assert forecaster_digest(name) != first


def test_what_is_developed_in_the_folder_stays_loaded(tmp_path, monkeypatch):
    """A package that Python finds anyway is not forgotten with the neighbours."""
    plugin(tmp_path, "", "developed.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = plugin(tmp_path, "import developed\nfrom mark.predictors.naive import LastValue as Mine\n")
    load_forecaster(f"{path}:Mine")
    developed = sys.modules["developed"]

    load_forecaster(f"{path}:Mine")
    assert sys.modules.pop("developed") is developed


def test_the_working_directory_does_not_come_before_installed_packages(tmp_path, monkeypatch):
    plugin(tmp_path, "raise RuntimeError('the wrong one')\n", "colorsys.py")
    path = plugin(tmp_path, "import colorsys\nfrom mark.predictors.naive import LastValue as Mine\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = list(sys.path)

    assert load_forecaster(f"{path}:Mine") is LastValue
    assert sys.path == before


def test_unknown_name_is_refused_with_the_nearest():
    assert refusal("last-valeu") == "unknown forecaster 'last-valeu'; did you mean 'last-value'?"


def test_unknown_attribute_is_refused_with_the_nearest():
    text = refusal("mark.predictors.naive:LastVlaue")

    assert text == "unknown forecaster in mark.predictors.naive 'LastVlaue'; did you mean 'LastValue'?"


@pytest.mark.parametrize("name", ["naive:", ":LastValue", ":"])
def test_half_a_name_is_refused(name):
    assert "must read module:attribute or path/file.py:Name" in refusal(name)


def test_a_missing_module_or_file_is_refused(tmp_path):
    assert "is not installed; a file is given by its path" in refusal("no_such_package.part:Mine")
    assert refusal(f"{tmp_path}/none.py:Mine") == f"forecaster file {tmp_path}/none.py does not exist"
    assert refusal("mine.py") == "forecaster 'mine.py' lacks a name: write mine.py:ClassName"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module\n", "needs the module no_such_module, which is not installed"),
        ("from math import no_such_function\n", "does not load: ImportError: cannot import name"),
        ("def broken(:\n", "does not load: SyntaxError"),
        ("raise ValueError('two\\nlines')\n", "does not load: ValueError: two lines"),
        ("Mine = 3\n", "is not a class or function but a int"),
        ("class Mine: ...\n", "does not load: TypeError"),
        ("class Mine:\n    def __init__(self, setup): ...\n", "made a Mine without a method forecast"),
        ("def Mine(setup): ...\n", "made a NoneType without a method forecast"),
        (
            "class Mine:\n    def __init__(self, setup): self.forecast = 3\n",
            "made a Mine without a method forecast",
        ),
    ],
)
def test_a_plug_in_that_does_not_work_is_refused_in_one_line(tmp_path, text, said):
    path = plugin(tmp_path, text)

    assert said in refusal(f"{path}:Mine")


def test_a_failed_file_is_loaded_afresh_the_next_time(tmp_path):
    path = plugin(tmp_path, "raise ValueError\n")
    refusal(f"{path}:Mine")
    plugin(tmp_path, "from mark.predictors.naive import LastValue as Mine  # repaired\n")

    assert load_forecaster(f"{path}:Mine") is LastValue


ASKS = """
from mark.predictors.naive import LastValue
class Blind(LastValue):
    def __init__(self, setup):
        super().__init__(setup)
        self.told = getattr(setup, "truth", None)
class Knows(Blind):
    uses_truth = True
"""


def test_only_a_forecaster_that_declares_it_is_told_the_load_to_come(tmp_path):
    path = plugin(tmp_path, ASKS)
    truth = SETUP.with_truth(HISTORY)

    assert build_forecaster(f"{path}:Knows", truth).told == HISTORY
    assert build_forecaster(f"{path}:Blind", truth).told is None
    assert not is_oracle(load_forecaster(f"{path}:Blind"))
    for name in (f"{path}:Knows", "oracle"):
        with pytest.raises(Misconfigured, match="needs the load to come: it works in a replay only"):
            build_forecaster(name, SETUP)
