"""Trainings of forecasters in the service's function: their orders and results in its bucket.

training/SERVICE/MODEL/END-DIGEST/order.json    what is to be trained
training/SERVICE/MODEL/END-DIGEST/result        what was learned; empty while it is under way
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mark.aws.archive import get_object, put_object
from mark.aws.errors import translated
from mark.aws.names import TRAIN, TRAININGS, name_of
from mark.aws.session import Aws
from mark.plugins.train_by_name import train_by_order
from mark.plugins.trained import PENDING, TrainingOrder, compose_order, read_order

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BYTES, JSON = "application/octet-stream", "application/json"


def training_key(service: str, model: str, name: str) -> str:
    """The folder of a training; `name` is the order's."""
    return f"{TRAININGS}/{service}/{model}/{name}"


def order_training(aws: Aws, service: str, bucket: str, key: str, order: TrainingOrder) -> None:
    """Have the function train. It is not waited for; the result is pending from now on. Errors: MarkError."""
    put_object(aws.objects, bucket, _order(key), compose_order(order), content_type=JSON)
    # first: S3 tells nobody who may not list the bucket that an object is not there
    put_object(aws.objects, bucket, _result(key), PENDING, content_type=BYTES)
    with translated():
        aws.lambda_.invoke(
            FunctionName=name_of(service, TRAIN),
            InvocationType="Event",
            Payload=json.dumps({"key": key}).encode(),
        )


def fetch_result(aws: Aws, bucket: str, key: str) -> bytes:
    """The result of a training, PENDING while it is under way. Errors: MarkError."""
    return get_object(aws.objects, bucket, _result(key))


def carry_out(objects: S3Client, bucket: str, key: str) -> str:
    """Train by the order that lies there and write its result; what went wrong with the training, or nothing.

    Errors: MarkError where the bucket fails, ResultRefused where there is no order.
    """
    result, why = train_by_order(read_order(get_object(objects, bucket, _order(key))))
    put_object(objects, bucket, _result(key), result, content_type=BYTES)
    return why


def _order(key: str) -> str:
    return f"{key}/order.json"


def _result(key: str) -> str:
    return f"{key}/result"
