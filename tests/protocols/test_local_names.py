from __future__ import annotations

import pytest

from mark.protocols.local_names import is_local_name


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True), ("LocalHost:8080", True), ("a.localhost", True), ("localhost.", True),
        ("127.0.0.1:8080", True), ("127.7.7.7", True), ("[::1]:8080", True), ("[::1]", True), ("10.0.0.1", True),
        ("", True),
        ("evil.example", False), ("localhost.evil.example", False), ("127.0.0.1.evil.example:80", False),
        ("notlocalhost", False), ("[evil]", False), ("a:b:c", False),
    ],
)  # fmt: skip
def test_a_host_is_local_if_no_page_of_the_web_can_have_its_name(host: str, local: bool) -> None:
    assert is_local_name(host) == local
