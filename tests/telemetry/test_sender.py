from __future__ import annotations

import sys

import pytest

from mark.domain.errors import Misconfigured
from mark.domain.telemetry import Telemetry
from mark.telemetry.otlp.sender import TelemetrySender, check_installed, open_telemetry

TOLD = Telemetry(endpoint="http://127.0.0.1:1", trace_ratio=1.0)


def opened(telemetry: Telemetry | None) -> TelemetrySender | None:
    return open_telemetry(telemetry, process="mark-agent", namespace="shop", instance="i-0", headers={})


@pytest.fixture
def _without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.mark.parametrize("telemetry", [None, Telemetry(endpoint="http://127.0.0.1:1")])
@pytest.mark.usefixtures("_without_extra")
def test_nothing_is_imported_where_nothing_is_sent(telemetry: Telemetry | None) -> None:
    assert opened(telemetry) is None
    check_installed(None)


@pytest.mark.usefixtures("_without_extra")
def test_a_service_on_this_machine_says_what_to_install() -> None:
    with pytest.raises(Misconfigured, match=r"mark-serving\[otel\]"):
        check_installed(TOLD)


@pytest.mark.usefixtures("_without_extra")
def test_a_process_without_the_extra_serves_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert opened(TOLD) is None
    assert "mark-serving[otel]" in caplog.text
