"""moto's own WSGI application in this process, made strict: what it would skip in silence is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from mark.local.errors import ApiError, error_body
from mark.local.moto_parts import LAMBDA_BACKEND, RESOURCE_TYPES, sqs_backend

StartResponse = Callable[[str, list[tuple[str, str]]], Any]
Wsgi = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]

OURS = ("AWS::EC2::Instance", "AWS::EC2::EC2Fleet", "AWS::EC2::SpotFleet", "AWS::AutoScaling::AutoScalingGroup")
"""Resource types that moto would make in its own table of instances, where no process runs."""


def strict_moto() -> Wsgi:
    """Moto with an empty account, refusing what it does not do with status 501."""
    BackendDict.reset()
    reset_model_data()
    _refuse_unknown_resources()
    _leave_queues_to_us()
    moto = DomainDispatcherApplication(create_backend_app)

    def call(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            reply: Iterable[bytes] = moto(environ, start_response)
        except NotImplementedError as error:
            message = f"the emulated AWS does not do this: {error or environ.get('PATH_INFO')}"
            query = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
            content_type, body = error_body(ApiError("NotEmulated", message, 501), query=query)
            headers = [("content-type", content_type), ("x-amzn-errortype", "NotEmulated")]
            start_response("501 Not Implemented", headers)
            return [body]
        return reply

    return call


def _refuse_unknown_resources() -> None:
    """A template with a resource that moto would skip does not become CREATE_COMPLETE."""
    original = getattr(
        RESOURCE_TYPES.resource_class_from_type, "original", RESOURCE_TYPES.resource_class_from_type
    )

    def resource_class_from_type(resource_type: str) -> Any:
        found = None if resource_type in OURS else original(resource_type)
        if found is None and resource_type not in RESOURCE_TYPES.NULL_MODELS:
            raise NotImplementedError(f"CloudFormation's {resource_type}")
        return found

    resource_class_from_type.original = original  # type: ignore[attr-defined]
    RESOURCE_TYPES.resource_class_from_type = resource_class_from_type


def _leave_queues_to_us() -> None:
    """Moto calls a function from within SendMessage, through Docker; our own poller does it instead."""
    original = getattr(
        LAMBDA_BACKEND.create_event_source_mapping, "original", LAMBDA_BACKEND.create_event_source_mapping
    )

    def create_event_source_mapping(self: Any, spec: dict[str, Any]) -> Any:
        mapping = original(self, spec)
        for queue in sqs_backend().queues.values():
            queue.lambda_event_source_mappings.clear()
        return mapping

    create_event_source_mapping.original = original  # type: ignore[attr-defined]
    LAMBDA_BACKEND.create_event_source_mapping = create_event_source_mapping
