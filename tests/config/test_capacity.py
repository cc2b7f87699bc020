"""Bounds of capacity in mark.yaml: as people write them, and refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.capacity import CapacitySettings
from mark.config.served import settings_of_model
from mark.config.settings import load_settings
from mark.domain.errors import Misconfigured
from mark.domain.plans.capacity_schedule import CapacityWindow

HOUR_S = 3600


def config(folder: Path, entries: str) -> Path:
    path = folder / "mark.yaml"
    path.write_text(f"model: inception-v3\ncapacity:\n{entries}")
    return path


def test_a_schedule_reads_as_people_write_it(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        "- {start: 08:00, end: 20:00, days: mon-fri, timezone: Europe/Berlin, min_rps: 50, max_rps: 400}\n"
        "- {start: '22:00', end: '06:00', days: 'fri-sun,tue', max_rps: 100}\n"
        "- {min_rps: 1}\n",
    )
    read = load_settings(path, {}).capacity
    assert [CapacitySettings.of(item.window).window for item in read] == [item.window for item in read]
    assert tuple(item.window for item in read) == (
        CapacityWindow(
            start_s=8 * HOUR_S,
            end_s=20 * HOUR_S,
            days=(0, 1, 2, 3, 4),
            timezone="Europe/Berlin",
            min_rps=50.0,
            max_rps=400.0,
        ),
        CapacityWindow(start_s=22 * HOUR_S, end_s=6 * HOUR_S, days=(1, 4, 5, 6), max_rps=100.0),
        CapacityWindow(min_rps=1.0),
    )


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{timezone: Europe/Berln, min_rps: 5}", "Europe/Berlin"),
        ("{start: '08:00', end: '08:00', min_rps: 5}", "both 08:00"),
        ("{start: 8am, min_rps: 5}", "08:00"),
        ("{start: 8, min_rps: 5}", "start"),
        ("{start: '24:00', end: '06:00', max_rps: 5}", "write 00:00"),
        ("{min_rps: .nan}", "finite"),
        ("{days: monday, min_rps: 5}", "mon-fri"),
        ("{min_rps: 5, max_rps: 4}", "min_rps 5 is above max_rps 4"),
        ("{start: '08:00'}", "neither min_rps nor max_rps"),
        ("{min_rps: -1}", "greater than 0"),
        ("{least_rps: 5}", "least_rps"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, entry: str, says: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load_settings(config(tmp_path, f"- {entry}\n"), {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_windows_that_contradict_each_other_are_refused_with_the_time_at_which_they_do(tmp_path: Path) -> None:
    entries = (
        "- {start: '08:00', end: '20:00', timezone: Europe/Berlin, min_rps: 50}\n"
        "- {start: '12:00', end: '13:00', days: sat, timezone: America/New_York, max_rps: 20}\n"
    )
    with pytest.raises(
        Misconfigured, match=r"Saturday at 12:00 America/New_York a min_rps of 50 and a max_rps of 20"
    ):
        load_settings(config(tmp_path, entries), {})


def test_a_model_of_a_service_has_its_own_schedule_in_place_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "mark.yaml"
    path.write_text(
        "capacity: [{min_rps: 5}]\n"
        "service: {serve: [{model: inception-v3, capacity: [{min_rps: 9}]}, {model: nasnet}]}\n"
    )
    settings = load_settings(path, {})
    bounds = [settings_of_model(settings, name).capacity[0].min_rps for name in ("inception-v3", "nasnet")]
    assert bounds == [9.0, 5.0]
