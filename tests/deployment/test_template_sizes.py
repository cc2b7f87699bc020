"""Sizes of what a template gives to AWS, as its functions have them and as a service's settings make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.deployment.template_sizes import (
    TASK_BYTES,
    USER_DATA_BYTES,
    VARIABLES_BYTES,
    TemplateSize,
    filled,
    require_room,
    template_sizes,
)
from mark.domain.errors import Misconfigured

texts = st.text(max_size=20)


@given(parts=st.lists(texts, min_size=1, max_size=6), between=texts)
def test_joined_texts_become_the_text_that_cloudformation_makes(parts: list[str], between: str) -> None:
    assert filled({"Fn::Base64": {"Fn::Join": [between, parts]}}, {}, "us-east-1") == between.join(parts)


@pytest.mark.parametrize(
    ("value", "most"),
    [
        ({"Ref": "AWS::Region"}, len("ap-northeast-1")),
        ({"Fn::FindInMap": ["Tools", "aws", "packed"]}, 7),
        ({"Fn::ImportValue": "mark-shop-bucket"}, 63),
        ({"Fn::ImportValue": "mark-shop-subnet-us-east-1a"}, len("subnet-0123456789abcdef0") + 8),
        ({"Fn::GetAtt": ["ControllerRole", "Arn"]}, 160),
    ],
)
def test_a_function_becomes_the_longest_text_that_it_may(value: object, most: int) -> None:
    mappings = {"Tools": {"aws": {"packed": "1234567"}}}
    assert len(filled(value, mappings, "ap-northeast-1")) == most


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
        max_leaves=10,
    )
)
def test_what_has_no_function_stays_as_it_is(value: object) -> None:
    assert filled(value, {}, "us-east-1") == value


def _launch(name: str, script: str) -> dict[str, Any]:
    about = {"LaunchTemplateName": name, "LaunchTemplateData": {"UserData": {"Fn::Base64": script}}}
    return {"Type": "AWS::EC2::LaunchTemplate", "Properties": about}


def _function(variables: Mapping[str, object]) -> dict[str, Any]:
    about = {"FunctionName": "mark-shop-report", "Environment": {"Variables": variables}}
    return {"Type": "AWS::Lambda::Function", "Properties": about}


def _task(text: str) -> dict[str, Any]:
    return {"Type": "AWS::ECS::TaskDefinition", "Properties": {"Family": "mark-shop-controller", "Text": text}}


def _sizes(*resources: dict[str, Any], files: str = "") -> tuple[TemplateSize, ...]:
    named = {f"R{number}": one for number, one in enumerate(resources)}
    return template_sizes({"all": {"Resources": named}}, "us-east-1", settings="{}", files=files)


def test_the_longest_script_decides_to_the_byte() -> None:
    scripts = [_launch(f"mark-shop-{number}", "x" * size) for number, size in enumerate((5, USER_DATA_BYTES, 9))]
    require_room(_sizes(*scripts))
    scripts[1] = _launch("mark-shop-1", "x" * (USER_DATA_BYTES + 1))
    with pytest.raises(Misconfigured, match=r"^the start script of mark-shop-1 has up to 16,385 bytes, "):
        require_room(_sizes(*scripts))


def test_variables_of_a_function_count_together_and_the_longest_says_what_to_do() -> None:
    given = {"MARK_REPORT_TO": "x" * 3000, "MARK_REPORT_BUCKET": {"Fn::ImportValue": "mark-shop-bucket"}}
    room = VARIABLES_BYTES - len(json.dumps(given | {"MARK_REPORT_BUCKET": "x" * 63}, separators=(",", ":")))
    fits = given | {"MARK_REPORT_TO": "x" * (3000 + room)}
    require_room(_sizes(_function(fits)))
    with pytest.raises(
        Misconfigured, match=r"4,097 bytes, of 4,096 that Lambda takes: .*; write one address of a"
    ):
        require_room(_sizes(_function(given | {"MARK_REPORT_TO": "x" * (3001 + room)})))


def test_a_task_counts_with_all_that_it_says() -> None:
    room = TASK_BYTES - len(json.dumps({"Family": "mark-shop-controller", "Text": ""}, separators=(",", ":")))
    require_room(_sizes(_task("x" * room)))
    with pytest.raises(Misconfigured, match="the task definition of mark-shop-controller has up to 65,537 bytes"):
        require_room(_sizes(_task("x" * (room + 1))))


def test_files_are_named_in_the_remedy_only_where_there_are_any() -> None:
    [without] = _sizes(_launch("a", "x"))
    [with_files] = _sizes(_launch("a", "x"), files="a file")
    assert "profiles" not in without.remedy
    assert "profiles" in with_files.remedy
