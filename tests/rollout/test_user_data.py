"""Sizes of start scripts, as a template's functions have them and as a service's settings make them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.domain.errors import Misconfigured
from mark.rollout.user_data import MOST_BYTES, UserData, longest_user_data, require_room, text_bytes

texts = st.text(max_size=20)


@given(parts=st.lists(texts, min_size=1, max_size=6), between=texts)
def test_joined_texts_have_the_bytes_of_the_text_that_they_become(parts: list[str], between: str) -> None:
    told = {"Fn::Base64": {"Fn::Join": [between, parts]}}
    assert text_bytes(told, {}, "us-east-1") == len(between.join(parts).encode())


@pytest.mark.parametrize(
    ("value", "most"),
    [
        ({"Ref": "AWS::Region"}, len("ap-northeast-1")),
        ({"Fn::FindInMap": ["Tools", "aws", "packed"]}, 7),
        ({"Fn::ImportValue": "mark-shop-bucket"}, 63),
        ({"Fn::ImportValue": "mark-shop-subnet-us-east-1a"}, len("subnet-0123456789abcdef0") + 8),
        ({"Fn::Sub": "x" * 100}, len(json.dumps({"Fn::Sub": "x" * 100}))),
    ],
)
def test_a_function_counts_as_the_longest_that_it_becomes(value: object, most: int) -> None:
    mappings = {"Tools": {"aws": {"packed": "1234567"}}}
    assert text_bytes(value, mappings, "ap-northeast-1") == most


def _launch(name: str, script: str) -> dict[str, Any]:
    about = {"LaunchTemplateName": name, "LaunchTemplateData": {"UserData": {"Fn::Base64": script}}}
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": about}


def _longest(*scripts: str) -> UserData:
    resources = {f"T{number}": _launch(f"mark-shop-{number}", one) for number, one in enumerate(scripts)}
    return longest_user_data({"launch": {"Resources": resources}}, "us-east-1", settings="{}", files="")


def test_the_longest_script_decides_to_the_byte() -> None:
    require_room(_longest("short", "x" * MOST_BYTES))
    with pytest.raises(Misconfigured, match=r"^the start script of mark-shop-1 has up to 16,385 bytes, "):
        require_room(_longest("short", "x" * (MOST_BYTES + 1), "longer"))


def test_files_are_named_in_the_remedy_only_where_there_are_any() -> None:
    without = _longest("x")
    assert "profiles" not in without.remedy
    assert "profiles" in replace(without, files_bytes=9).remedy
