from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mark.config.settings import load_settings
from mark.config.telemetry import TelemetrySettings, telemetry_of
from mark.domain.errors import Misconfigured
from mark.domain.telemetry import Telemetry

URL = "http://127.0.0.1:4318"


def test_nothing_is_sent_unless_it_is_asked_for() -> None:
    assert telemetry_of(TelemetrySettings()) is None
    assert telemetry_of(TelemetrySettings(endpoint=URL)) is None


def test_what_is_asked_for_is_told() -> None:
    asked = TelemetrySettings.model_validate(
        {"endpoint": URL, "traces": {"ratio": 0.01}, "metrics": {"every_s": 10}}
    )
    assert telemetry_of(asked) == Telemetry(endpoint=URL, trace_ratio=0.01, metrics_every_s=10.0)


@pytest.mark.parametrize(
    "tree",
    [
        {"traces": {"ratio": 0.1}},
        {"metrics": {"every_s": 10}},
        {"endpoint": "localhost:4318"},
        {"endpoint": "ftp://collector"},
        {"endpoint": "http://"},
        {"endpoint": "http://collector:99999"},
        {"endpoint": "http://user:secret@collector"},
        {"endpoint": "http://collector/?key=secret"},
        {"endpoint": URL, "traces": {"ratio": 1.1}},
        {"endpoint": URL, "traces": {"ratio": -0.1}},
        {"endpoint": URL, "metrics": {"every_s": 0}},
        {"headers_secret": "no arn"},
    ],
)
def test_what_makes_no_sense_is_refused(tree: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TelemetrySettings.model_validate(tree)


def test_a_settings_file_names_the_key_and_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "mark.yaml"
    file.write_text("telemetry: {traces: {ratio: 0.5}}\n")
    with pytest.raises(Misconfigured, match=r"telemetry\.endpoint is missing"):
        load_settings(file, {})

    file.write_text(f"telemetry: {{endpoint: '{URL}', headers_file: headers.txt}}\n")
    assert load_settings(file, {}).telemetry.headers_file == tmp_path / "headers.txt"
