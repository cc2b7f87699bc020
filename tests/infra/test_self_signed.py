"""Certificates that nodes make themselves: the stores of two nodes trust each other, and nobody else's node."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mark.infra.user_data import NodeStart, node_script

NODE = NodeStart(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/mark:1",
    store_image="redis",
    region="us-east-1",
    logs=dict.fromkeys(("store", "controller", "gateway"), "/mark/shop/x"),
    service="shop",
    secrets={"MARK_STORE_URL": "mark-shop-store-controller"},
    forms={"MARK_STORE_URL": "rediss+lease://controller:%s@x:6379"},
    agents_secret="mark-shop-store-agent",
    certificate="",
    name="shop.mark.internal",
    environment={},
    store_port=6379,
    signals=("mark-shop-nodes", "Nodes"),
    answers="https://localhost/v2/health/live",
)


def make(folder: Path, node: NodeStart, *, password: str) -> Path:
    """The part of the start script that makes the certificate, run in a folder."""
    prepare = node_script(node).partition("/usr/local/bin/mark-prepare <<'MARK'\n")[2].partition("\nMARK\n")[0]
    lines = prepare.partition("cd /run/mark/tls.new\n")[2].partition("cat certificate.pem ")[0]
    (folder / "tls").mkdir(parents=True)
    (folder / "environment").write_text(f"MARK_STORE_URL=rediss+lease://:{password}@x:6379\nMARK_TOKEN=t\n")
    script = f"set -euo pipefail\numask 077\n{lines}".replace("/run/mark/environment", str(folder / "environment"))
    done = subprocess.run(["bash", "-c", script], cwd=folder / "tls", capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert done.returncode == 0, done.stderr
    return folder / "tls"


def handshake(server: Path, authorities: Path, name: str) -> None:
    """Somebody with these authorities connects to a server of that certificate."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    offers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offers.load_cert_chain(server / "certificate.pem", server / "key.pem")
    asks = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asks.load_verify_locations(authorities / "certificate.pem")
    ends = (
        asks.wrap_bio(ours, theirs, server_hostname=name),
        offers.wrap_bio(theirs, ours, server_side=True),
    )
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert ends[0].version() == "TLSv1.3"


def test_nodes_of_a_service_trust_each_other_and_no_other_service_s(tmp_path: Path) -> None:
    first = make(tmp_path / "first", NODE, password="p")
    second = make(tmp_path / "second", NODE, password="p")
    other = make(tmp_path / "other", NODE, password="q")
    assert (first / "key.pem").read_text() != (second / "key.pem").read_text()
    assert sorted(file.name for file in first.iterdir()) == ["certificate.pem", "key.pem"], "no authority's key"
    handshake(second, first, "shop.mark.internal")
    handshake(first, second, "shop.mark.internal")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other, first, "shop.mark.internal")


def test_a_secret_s_certificate_is_read_and_none_is_made() -> None:
    script = node_script(replace(NODE, certificate="arn:aws:secretsmanager:us-east-1:123456789012:secret:tls"))
    assert "secret:tls" in script
    assert "openssl" not in script
