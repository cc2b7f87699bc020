"""Clients that take less memory call AWS as boto3's own do."""

from __future__ import annotations

import botocore.session
import pytest

from mark.aws.service_models import light_session


@pytest.mark.parametrize("service", ["ec2", "sqs", "s3"])
def test_services_are_described_as_by_botocore_but_for_people(service: str) -> None:
    usual, light = (
        session.get_service_model(service) for session in (botocore.session.Session(), light_session())
    )
    assert light.operation_names == usual.operation_names
    assert light.metadata == usual.metadata
    for name in light.shape_names:
        ours, theirs = light.shape_for(name), usual.shape_for(name)
        assert (ours.type_name, ours.metadata, ours.serialization) == (
            theirs.type_name,
            theirs.metadata,
            theirs.serialization,
        )
    assert light.client_context_parameters == [
        one._replace(documentation="") for one in usual.client_context_parameters
    ]
    assert not any(light.operation_model(name).documentation for name in light.operation_names)
