"""An AWS that is not there: every client of the process is answered before its call is sent, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import botocore.handlers
import pytest

from mark.domain.fleet.orders import SpotWarned
from mark.protocols.events import compose_message
from tests.aws.builders import ON_DEMAND, SLEEPER

SERVING, ASLEEP = "i-00000000000000001", "i-00000000000000002"
"""The instances that it lists: one that runs, and a standby asleep."""


def _instance(name: str, state: str, offering: str, role: str) -> dict[str, Any]:
    tags = {"mark:service": "shop", "mark:model": "m", "mark:offering": offering, "mark:role": role}
    return {
        "InstanceId": name,
        "InstanceType": "c5.large",
        "State": {"Name": state},
        "LaunchTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }


_NOTICE = {
    "MessageId": "m1",
    "ReceiptHandle": "r1",
    "Body": compose_message(SpotWarned(instance=SERVING, at=60.0, terminates_at=180.0)),
}
ANSWERS: dict[tuple[str, str], dict[str, Any]] = {
    ("cloudwatch", "DescribeAlarms"): {"MetricAlarms": []},
    ("dynamodb", "Query"): {"Items": []},
    ("route53", "ListResourceRecordSets"): {"ResourceRecordSets": []},
    ("ec2", "CreateFleet"): {"Instances": [{"InstanceIds": ["i-00000000000000003", "i-00000000000000004"]}]},
    ("ec2", "DescribeInstances"): {
        "Reservations": [
            {
                "Instances": [
                    _instance(SERVING, "running", ON_DEMAND.name, "serving"),
                    _instance(ASLEEP, "stopped", SLEEPER.name, "standby"),
                ]
            }
        ]
    },
    ("ec2", "DescribeSpotPriceHistory"): {"SpotPriceHistory": []},
    ("ec2", "DescribeCapacityReservations"): {
        "CapacityReservations": [
            {
                "CapacityReservationId": "cr-1",
                "OwnerId": "123456789012",
                "InstanceType": "c5.large",
                "AvailabilityZone": "us-east-1a",
                "AvailableInstanceCount": 1,
            }
        ]
    },
    ("ec2", "DescribeReservedInstances"): {"ReservedInstances": []},
    ("savingsplans", "DescribeSavingsPlans"): {
        "savingsPlans": [
            {"savingsPlanId": "p", "savingsPlanType": "Compute", "commitment": "1", "state": "active"}
        ]
    },
    ("savingsplans", "DescribeSavingsPlanRates"): {"searchResults": []},
    ("service-quotas", "ListServiceQuotas"): {"Quotas": []},
    ("sqs", "GetQueueAttributes"): {"Attributes": {"ApproximateNumberOfMessages": "0"}},
    ("sqs", "GetQueueUrl"): {"QueueUrl": "http://sqs/dead"},
    ("sqs", "ReceiveMessage"): {"Messages": [_NOTICE]},
}
"""What calls are answered with; nothing is in the answer to any other."""


class AwsStandIn:
    """Answers the calls of all clients that are made while it stands in; `refuse` has one fail from then on."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._refused: dict[tuple[str, str], tuple[str, int]] = {}
        self._answers = ANSWERS

    def refuse(self, service: str, action: str, code: str, status: int) -> None:
        """Only this call is refused from now on."""
        self._refused, self._answers = {(service, action): (code, status)}, ANSWERS

    def answer(self, service: str, action: str, reply: dict[str, Any]) -> None:
        """Only this call is answered with something else from now on."""
        self._refused, self._answers = {}, ANSWERS | {(service, action): reply}

    def __call__(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        call = (model.service_model.service_name, model.name)
        self.asked.append(call)
        if call in self._refused:
            code, status = self._refused[call]
            told = {"Error": {"Code": code, "Message": "test"}}
        else:
            status, told = 200, self._answers.get(call, {})
        reply = {**told, "ResponseMetadata": {"HTTPStatusCode": status}}
        return SimpleNamespace(status_code=status, headers={}), reply


@contextmanager
def standing_in() -> Iterator[AwsStandIn]:
    """For the clients that are made within."""
    made = AwsStandIn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            botocore.handlers, "BUILTIN_HANDLERS", [*botocore.handlers.BUILTIN_HANDLERS, ("before-call", made)]
        )
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield made
