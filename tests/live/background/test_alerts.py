"""Messages of alarms to a webhook: once when one begins, once when it ends, whatever fails between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mark.config.service import ServiceSettings
from mark.domain.errors import Misconfigured, RetryLater
from mark.live.background.alerts import changes, post_changes
from mark.live.background.webhook_address import webhook_of
from mark.protocols.alert_messages import AlertMessage, AlertPhase
from mark.report.live.formatting import alert_banners
from mark.store.published_status import ALERTS, AlarmStatus, AlertsStatus

URL = "https://hooks.example.com/hunter2"
NAMES = st.sampled_from(["mark-shop-a", "mark-shop-b", "mark-shop-c"])
RINGING = st.none() | st.sets(NAMES)
MINUTES = st.lists(st.tuples(RINGING, st.integers(0, 4)), max_size=12)
"""Of each minute: which alarms ring, None where AWS does not say, and how many messages come through."""


def ringing(names: set[str] | None) -> AlertsStatus:
    found = None if names is None else tuple(AlarmStatus(name=name) for name in sorted(names))
    return AlertsStatus(ringing=found)


@given(MINUTES)
def test_each_alarm_is_posted_in_turn_as_begun_and_ended_and_none_is_lost(
    minutes: list[tuple[set[str] | None, int]],
) -> None:
    told: list[tuple[str, AlertPhase]] = []
    status = AlertsStatus()
    for names, come_through in minutes:
        left = come_through

        def post(message: AlertMessage) -> None:
            nonlocal left
            if not left:
                raise RetryLater("the webhook answers with status 503")
            left -= 1
            told.append((message.name, message.phase))

        status = post_changes(ringing(names), status.posted, service="shop", post=post)
        status = ALERTS.load(ALERTS.dump(status)) or AlertsStatus()  # another controller may go on
        if names is not None:
            waiting = list(changes(status.posted, status.ringing))
            assert bool(waiting) == bool(status.post_failed)
    for name in {name for name, _ in told}:
        phases = [phase for one, phase in told if one == name]
        assert phases == [AlertPhase.BEGAN, AlertPhase.ENDED] * (len(phases) // 2) + phases[len(phases) // 2 * 2 :]
        assert (phases[-1] is AlertPhase.BEGAN) == (name in {one.name for one in status.posted})


def test_an_alarm_that_rang_anew_between_two_looks_is_posted_anew() -> None:
    posted = (AlarmStatus(name="mark-shop-a", since=100.0),)
    anew = AlarmStatus(name="mark-shop-a", since=150.0)
    assert list(changes(posted, posted)) == []
    assert list(changes(posted, (anew,))) == [(AlertPhase.ENDED, posted[0]), (AlertPhase.BEGAN, anew)]
    status = post_changes(AlertsStatus(ringing=(anew,)), posted, service="shop", post=lambda _: None)
    assert status.posted == (anew,)


def test_a_message_that_the_webhook_refuses_holds_up_no_other() -> None:
    told: list[str] = []

    def post(message: AlertMessage) -> None:
        if message.name == "mark-shop-a":
            raise Misconfigured("the webhook answers with status 400")
        told.append(message.name)

    status = post_changes(ringing({"mark-shop-a", "mark-shop-b"}), (), service="shop", post=post)
    assert told == ["mark-shop-b"]
    assert status.post_failed == "the webhook answers with status 400"
    assert [one.name for one in status.posted] == ["mark-shop-b"]


def test_a_webhook_that_fails_is_a_line_of_the_status() -> None:
    def post(_: AlertMessage) -> None:
        raise RetryLater("the webhook answers with status 503")

    status = post_changes(ringing({"mark-shop-deadletters"}), (), service="shop", post=post)
    lines = [banner.text for banner in alert_banners(status)]
    assert lines[-1] == (
        "Alarms are not posted to the webhook, and are tried again: the webhook answers with status 503"
    )


def test_the_address_is_that_of_the_variable_which_must_be_there() -> None:
    service = ServiceSettings(webhook_variable="MARK_HOOK")
    assert webhook_of(ServiceSettings(), {}) is None
    assert webhook_of(service, {"MARK_HOOK": URL}) is not None
    with pytest.raises(Misconfigured, match="names MARK_HOOK, and the environment has none"):
        webhook_of(service, {})
    with pytest.raises(Misconfigured, match="must read https://") as caught:
        webhook_of(service, {"MARK_HOOK": URL.replace("https", "http")})
    assert "hunter2" not in str(caught.value)
