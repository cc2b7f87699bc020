from __future__ import annotations

from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from mark.serving.grpc.messages import CLASSES, DATA_TYPES, FIELDS, SERVING


def peers(name: str) -> Any:
    """Triton's descriptor of the message of that name."""
    outer, *inner = name.split(".")
    files = (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)
    found = next(file.message_types_by_name[outer] for file in files if outer in file.message_types_by_name)
    for one in inner:
        found = found.nested_types_by_name[one]
    return found


def described(field: Any) -> tuple[object, ...]:
    kind = field.message_type or field.enum_type
    return field.number, field.name, field.type, field.is_repeated, field.is_packed, kind and kind.full_name


@pytest.mark.parametrize("name", FIELDS)
def test_messages_are_those_of_the_protocol(name: str) -> None:
    own, peer = CLASSES[name].DESCRIPTOR, peers(name)
    assert own.full_name == peer.full_name
    for field in own.fields:
        assert described(field) == described(peer.fields_by_name[field.name])
        assert bool(field.containing_oneof) <= bool(peer.fields_by_name[field.name].containing_oneof)
    if not name.startswith("Model") or name.startswith(("ModelInfer", "ModelMetadata", "ModelReady")):
        assert {field.name for field in peer.fields} == {field.name for field in own.fields}


def test_health_has_the_names_and_numbers_of_grpc() -> None:
    """As https://github.com/grpc/grpc/blob/master/src/proto/grpc/health/v1/health.proto has them."""
    asked, answered = (CLASSES[f"HealthCheck{name}"].DESCRIPTOR for name in ("Request", "Response"))
    assert (asked.full_name, asked.fields[0].name) == ("grpc.health.v1.HealthCheckRequest", "service")
    assert (asked.fields[0].number, answered.fields[0].number, answered.fields[0].name) == (1, 1, "status")
    statuses = answered.fields[0].enum_type
    assert statuses.full_name == "grpc.health.v1.HealthCheckResponse.ServingStatus"
    assert [(one.name, one.number) for one in statuses.values] == [
        ("UNKNOWN", 0), ("SERVING", SERVING), ("NOT_SERVING", 2), ("SERVICE_UNKNOWN", 3),
    ]  # fmt: skip


def test_data_types_have_the_numbers_of_the_protocol() -> None:
    assert [(f"TYPE_{name}", number) for number, name in enumerate(DATA_TYPES)] == list(
        model_config_pb2.DataType.items()
    )
