"""moto's own WSGI application in this process, made strict: what it would skip in silence is an error."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from a2wsgi import WSGIMiddleware
from moto.core.base_backend import BackendDict
from moto.core.model_instances import reset_model_data
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from mark.emulator.errors import ApiError, error_body
from mark.emulator.moto_parts import (
    LAMBDA_BACKEND,
    QUEUE,
    RESOURCE_TYPES,
    ROUTE53_BACKEND,
    ROUTE53_ERROR,
    SECRETS_BACKEND,
    SECRETS_EXISTS,
    backend_of,
    instead_of,
)

StartResponse = Callable[[str, list[tuple[str, str]]], Any]

THREADS = 32
"""A long poll of SQS holds one for up to 20 s."""
OURS = ("AWS::EC2::Instance", "AWS::EC2::EC2Fleet", "AWS::EC2::SpotFleet", "AWS::AutoScaling::AutoScalingGroup")
"""Resource types that moto would make in its own table of instances, where no process runs."""


class StrictMoto:
    """moto with an empty account, as an ASGI application; what it does not do is answered with status 501."""

    def __init__(self) -> None:
        BackendDict.reset()
        reset_model_data()
        self._stopping = threading.Event()
        _refuse_unknown_resources()
        _leave_queues_to_us()
        _follow_moved_stages()
        _keep_values_of_versions()
        _refuse_mixed_records()
        self._polls = _end_long_polls(self._stopping)
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._bridge: Any = WSGIMiddleware(self._call, workers=THREADS)  # type: ignore[arg-type]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request on a thread."""
        await self._bridge(scope, receive, send)

    async def stop(self) -> None:
        """End long polls, and the threads."""
        self._stopping.set()
        await asyncio.to_thread(self._bridge.executor.shutdown)
        if QUEUE.wait_for_messages is self._polls:  # moto of this process may be used again, without us
            QUEUE.wait_for_messages = self._polls.original

    def _call(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            reply: Iterable[bytes] = self._moto(environ, start_response)
        except NotImplementedError as error:
            message = f"the emulated AWS does not do this: {error or environ.get('PATH_INFO')}"
            return _refuse(environ, start_response, ApiError("NotEmulated", message, 501))
        except _Stopping:
            return _refuse(environ, start_response, ApiError("ServiceUnavailable", "it is being stopped", 503))
        return reply


class _Stopping(Exception):
    """A long poll that ends because everything does."""


def _refuse(environ: dict[str, Any], start_response: StartResponse, error: ApiError) -> list[bytes]:
    is_form = environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded")
    content_type, body = error_body(error, query=is_form)
    headers = [("content-type", content_type), ("x-amzn-errortype", error.code)]
    start_response(f"{error.status} {error.code}", headers)
    return [body]


def _end_long_polls(stopping: threading.Event) -> Any:
    """Moto looks once a second whether a long poll is over; it would keep this process for up to 20 s.

    Returns what stands in for moto's wait; its `original` is moto's.
    """

    @instead_of(QUEUE, "wait_for_messages")
    def wait_for_messages(original: Any, queue: Any, timeout: int) -> None:
        if stopping.is_set():
            raise _Stopping
        original(queue, timeout)

    return wait_for_messages


def _refuse_unknown_resources() -> None:
    """A template with a resource that moto would skip does not become CREATE_COMPLETE."""

    @instead_of(RESOURCE_TYPES, "resource_class_from_type")
    def resource_class_from_type(original: Any, resource_type: str) -> Any:
        found = None if resource_type in OURS else original(resource_type)
        if found is None and resource_type not in RESOURCE_TYPES.NULL_MODELS:
            raise NotImplementedError(f"CloudFormation's {resource_type}")
        return found


def _leave_queues_to_us() -> None:
    """Moto calls a function from within SendMessage, through Docker; our own poller does it instead."""

    @instead_of(LAMBDA_BACKEND, "create_event_source_mapping")
    def create_event_source_mapping(original: Any, functions: Any, spec: dict[str, Any]) -> Any:
        mapping = original(functions, spec)
        for queue in backend_of("sqs").queues.values():
            queue.lambda_event_source_mappings.clear()
        return mapping


def _follow_moved_stages() -> None:
    """Moto reads a secret as before, and as unchanged, when the stage of one of its versions has moved."""

    @instead_of(SECRETS_BACKEND, "update_secret_version_stage")
    def update_secret_version_stage(original: Any, secrets: Any, **moved: Any) -> Any:
        told = original(secrets, **moved)
        secret = secrets.secrets[moved["secret_id"]]
        secret.last_changed_date = time.time()
        if moved["version_stage"] == "AWSCURRENT" and moved["move_to_version_id"]:
            secret.set_default_version_id(moved["move_to_version_id"])
        return told


def _keep_values_of_versions() -> None:
    """Moto gives a version that is AWSPENDING another value; Secrets Manager changes no value of any version."""

    @instead_of(SECRETS_BACKEND, "put_secret_value")
    def put_secret_value(
        original: Any, secrets: Any, *, secret_id: str, secret_string: str, client_request_token: str, **more: Any
    ) -> Any:
        version = getattr(secrets.secrets.get(secret_id), "versions", {}).get(client_request_token, {})
        if version.get("secret_string", secret_string) != secret_string:
            raise SECRETS_EXISTS(f"The version {client_request_token} has another value already.")
        given = {"secret_id": secret_id, "secret_string": secret_string}
        return original(secrets, **given, client_request_token=client_request_token, **more)


def _refuse_mixed_records() -> None:
    """Moto lets a name have a plain record beside weighted ones; Route 53 does not, and changes all or nothing."""

    @instead_of(ROUTE53_BACKEND, "change_resource_record_sets")
    def change_resource_record_sets(original: Any, backend: Any, zone: str, changes: list[dict[str, Any]]) -> None:
        there = {(one.name, one.type, one.set_identifier) for one in backend.get_hosted_zone(zone).rrsets}
        for change in changes:
            record = change["ResourceRecordSet"]
            key = f"{record['Name'].rstrip('.')}.", record["Type"], record.get("SetIdentifier")
            there = there - {key} if change["Action"] == "DELETE" else there | {key}
        kinds = {(name, kind, identifier is None) for name, kind, identifier in there}
        for name, kind, _ in kinds:
            if {(name, kind, True), (name, kind, False)} <= kinds:
                raise ROUTE53_ERROR(
                    "InvalidChangeBatch",
                    f"[RRSet with DNS name {name}, type {kind} cannot be created as other RRSets exist with the "
                    "same name and type]",
                )
        original(backend, zone, changes)
