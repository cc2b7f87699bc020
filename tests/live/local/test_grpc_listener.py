from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mark.domain.errors import Misconfigured
from mark.live.local.grpc_listener import grpc_listener


def test_no_port_no_listener_and_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mark.serving.grpc.grpc_server", None)
    assert grpc_listener("127.0.0.1", None) is None


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mark.serving.grpc.grpc_server", None)
    with pytest.raises(Misconfigured, match=r"pip install 'mark-serving\[grpc\]'"):
        grpc_listener("127.0.0.1", 0)


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="TLS takes two files"):
        grpc_listener("127.0.0.1", 0, tmp_path / "chain.pem")


def test_a_port_makes_a_listener() -> None:
    assert grpc_listener("127.0.0.1", 0) is not None
