"""A model as a Lambda function: a function URL's event in, its reply out, in either protocol that agents speak.

Which model it is says `served`; "mark-version" of an event names a version of it. {"mark-warm": true,
"hold_s": 0.1} loads it, holds the environment that long and answers nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from aws_lambda_powertools import Logger

from mark.aws.functions.function_url import VERSION_KEY
from mark.lambda_handlers.function_url import event_of, request_of
from mark.lambda_handlers.metrics import count
from mark.lambda_handlers.served import Served, served_model
from mark.ports import InferReply
from mark.protocols.exchange import check_outputs, read_exchange, refused_by_model
from mark.protocols.oip.bodies import error_reply

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

HOLD_AT_MOST_S = 15.0
"""More than any ping of `warm` asks for: 10 s, and 10 ms for each of the 200 that are sent at once."""
logger = Logger(service="mark-infer")


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """Answer one request; whatever is wrong with it is a 4xx in the reply, a model that fails a 500."""
    began = time.perf_counter()
    served = served_model(str(event.get(VERSION_KEY, "")), warms_up=bool(event.get("mark-warm")))
    if event.get("mark-warm"):
        time.sleep(min(max(float(event.get("hold_s", 0.0)), 0.0), HOLD_AT_MOST_S))
        return {"mark-warm": True}
    reply = _answer(event, served)
    if reply.status == 200:
        time.sleep(max(0.0, served.least_s() - (time.perf_counter() - began)))
    else:
        count("infer", dimensions={"model": served.name}, **{f"Status{reply.status}": 1})
    return event_of(reply)


def _answer(event: Mapping[str, Any], served: Served) -> InferReply:
    try:
        exchange = read_exchange(request_of(event), served.name, served.inputs)
        outputs = {name: np.asarray(value) for name, value in served.predict(exchange.inputs).items()}
        check_outputs(outputs, served.outputs)
        return exchange.reply(outputs, served.version)
    except Exception as error:  # a user's model may raise anything: the request is answered with it
        if (refused := refused_by_model(error)) is not None:
            return error_reply(refused.status, str(refused))
        logger.exception("the model failed")
        return error_reply(500, f"the model failed: {type(error).__name__}: {error}")
