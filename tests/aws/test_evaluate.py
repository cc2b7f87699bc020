"""IAM's decision, by the rules of its user guide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.aws.permissions.evaluation import Access, evaluate, matches_arn
from mark.domain.errors import Misconfigured

INSTANCE = "arn:aws:ec2:us-east-1:123456789012:instance/i-1"


def allow(**changes: Any) -> dict[str, Any]:
    plain = {"Sid": "A", "Effect": "Allow", "Action": ["ec2:StopInstances"], "Resource": ["*"]}
    return {**plain, **changes}


def policy(*statements: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"Version": "2012-10-17", "Statement": list(statements)}]


def stop(**context: tuple[str, ...]) -> Access:
    return Access(action="ec2:StopInstances", resource=INSTANCE, context=context)


def holds(operator: str, asked: object, *values: str) -> bool:
    """Whether a condition on the key `k` holds for these values of it."""
    statement = allow(Condition={operator: {"k": asked}})
    return evaluate(stop(k=values) if values else stop(), policy(statement)).allowed


def test_what_no_statement_allows_is_refused() -> None:
    assert not evaluate(stop(), policy()).allowed
    assert not evaluate(stop(), policy(allow(Action="ec2:StartInstances"))).allowed
    assert not evaluate(stop(), policy(allow(Resource=INSTANCE.replace("i-1", "i-2")))).allowed


def test_a_decision_names_its_statements() -> None:
    decision = evaluate(stop(), policy(allow(), allow(Sid="B", Action="ec2:*"), allow(Sid="C", Action="s3:*")))
    assert decision.allowed
    assert decision.by == ("A", "B")


def test_a_deny_wins_wherever_it_stands() -> None:
    denial = allow(Sid="no", Effect="Deny")
    for statements in ((denial, allow()), (allow(), denial)):
        decision = evaluate(stop(), policy(*statements))
        assert not decision.allowed
        assert decision.by == ("no",)
    assert not evaluate(stop(), policy(allow()), boundary=policy(denial, allow(Action="*"))).allowed


def test_a_boundary_grants_nothing_and_must_allow_too() -> None:
    assert evaluate(stop(), policy(allow()), boundary=policy(allow(Action="ec2:*"))).allowed
    assert not evaluate(stop(), policy(allow()), boundary=policy(allow(Action="s3:*"))).allowed
    assert not evaluate(stop(), policy(), boundary=policy(allow(Action="*"))).allowed


def test_names_of_actions_know_no_case_and_names_of_resources_do() -> None:
    assert evaluate(stop(), policy(allow(Action="EC2:stop*"))).allowed
    assert not evaluate(stop(), policy(allow(Resource=INSTANCE.replace("instance", "Instance")))).allowed


@pytest.mark.parametrize(
    ("pattern", "arn", "covered"),
    [
        ("*", INSTANCE, True),
        ("arn:aws:ec2:*:*:instance/*", INSTANCE, True),
        ("arn:aws:ec2:*:instance/*", INSTANCE, False),
        ("arn:aws:*", INSTANCE, False),
        ("arn:aws:logs:r:1:log-group:/x-*:*", "arn:aws:logs:r:1:log-group:/x-y:log-stream:z", True),
        ("arn:aws:secretsmanager:r:1:secret:a-??????", "arn:aws:secretsmanager:r:1:secret:a-b1c2d3", True),
        ("arn:aws:secretsmanager:r:1:secret:a-??????", "arn:aws:secretsmanager:r:1:secret:a-b-b1c2d3", False),
    ],
    ids=["all", "by-part", "too-few-parts", "star-in-service", "star-at-the-end", "marks", "too-many-letters"],
)
def test_a_star_stays_in_its_part_of_an_arn(pattern: str, arn: str, covered: bool) -> None:
    assert matches_arn(pattern, arn) is covered


@given(st.text(st.sampled_from("ab:*?"), max_size=6), st.text(st.sampled_from("ab"), max_size=6))
def test_every_arn_covers_itself_and_a_star_covers_its_part(name: str, other: str) -> None:
    arn = f"arn:aws:s3:::{name}"
    assert matches_arn(arn, arn)
    assert matches_arn("arn:aws:s3:::*", arn)
    assert matches_arn(f"arn:aws:s3:::{other}", f"arn:aws:s3:::{name}") is (name == other)


@pytest.mark.parametrize(
    ("operator", "asked", "values", "result"),
    [
        ("StringEquals", "x", ("x",), True),
        ("StringEquals", ["x", "y"], ("y",), True),
        ("StringEquals", "x", ("X",), False),
        ("StringEquals", "x*", ("xy",), False),
        ("StringEquals", "x", (), False),
        ("StringEqualsIfExists", "x", (), True),
        ("StringEqualsIgnoreCase", "x", ("X",), True),
        ("StringNotEquals", "x", (), True),
        ("StringNotEquals", ["x", "y"], ("y",), False),
        ("StringLike", "x*", ("xy",), True),
        ("StringNotLike", "x*", ("xy",), False),
        ("ArnLike", "arn:aws:lambda:r:1:function:mark-*", ("arn:aws:lambda:r:1:function:mark-a:2",), True),
        ("ArnLike", "arn:aws:lambda:*:function:*", ("arn:aws:lambda:r:1:function:a",), False),
        ("Bool", "true", ("True",), True),
        ("Null", "true", (), True),
        ("Null", "true", ("x",), False),
        ("Null", "false", ("x",), True),
        ("ForAllValues:StringEquals", ["x", "y"], ("x", "y"), True),
        ("ForAllValues:StringEquals", "x", ("x", "z"), False),
        ("ForAllValues:StringEquals", "x", (), True),
        ("ForAnyValue:StringEquals", "x", ("x", "z"), True),
        ("ForAnyValue:StringEquals", "x", (), False),
    ],
)
def test_conditions(operator: str, asked: object, values: tuple[str, ...], result: bool) -> None:
    assert holds(operator, asked, *values) is result


def test_all_operators_and_all_keys_must_hold() -> None:
    both = allow(Condition={"StringEquals": {"k": "x", "l": "y"}, "Null": {"m": "true"}})
    assert evaluate(stop(k=("x",), l=("y",)), policy(both)).allowed
    assert not evaluate(stop(k=("x",), l=("z",)), policy(both)).allowed
    assert not evaluate(stop(k=("x",), l=("y",), m=("1",)), policy(both)).allowed


def test_keys_know_no_case() -> None:
    statement = allow(Condition={"StringEquals": {"AWS:ResourceTag/mark:service": "shop"}})
    assert evaluate(stop(**{"aws:resourcetag/mark:service": ("shop",)}), policy(statement)).allowed


@pytest.mark.parametrize(
    "statement",
    [
        allow(Condition={"StringEqual": {"k": "x"}}),
        allow(Condition={"NumericLessThan": {"k": "1"}}),
        allow(Condition={"StringEquals": {"k": "${aws:username}"}}),
        allow(NotAction="s3:*"),
        allow(Effect="allow"),
        allow(Resource="${x}"),
    ],
    ids=["misspelt", "numbers", "variable", "not-action", "effect", "variable-in-resource"],
)
def test_what_is_not_known_is_not_guessed(statement: Mapping[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        evaluate(stop(k=("x",)), policy(statement))


def test_one_of_several_values_is_not_chosen_by_chance() -> None:
    with pytest.raises(Misconfigured, match="several values"):
        holds("StringEquals", "x", "x", "y")
