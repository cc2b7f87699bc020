"""A batch of requests in, one answer for each out, whatever runs the model: no input or output here.

Requests that fit together are merged into one call of the model and taken apart again. A request that cannot be
read gets a 4xx of its own. A call that fails, or whose outputs do not fit the requests, is repeated in halves, so
that only the culprit's answer is an error, and the others of a large batch wait for few calls more. `answering`
yields the tensors of each call and gets its outputs, or ModelFailed; `answer` drives it, and
`awaited_answering.answer_async`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from mark.domain.tensor import TensorSpec
from mark.ports import InferReply, InferRequest
from mark.protocols.exchange import Exchange, check_outputs, read_exchanges, too_large, write_replies
from mark.protocols.oip.bodies import BadRequest, Tensors, error_reply
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.merging import groups, merge

Answering = Generator[Tensors, Tensors, list[InferReply]]


class ModelFailed(Exception):
    """A call of the model gave no outputs. `whole`: alone, each request would fail the same.

    `status` is the answer's, 4xx where the model declares the request wrong.
    """

    def __init__(self, text: str, *, status: int = 500, whole: bool = False) -> None:
        super().__init__(text)
        self.status = status
        self.whole = whole


def answering(
    requests: Sequence[InferRequest],
    model: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec] = (),
    version: str = MODEL_VERSION,
) -> Answering:
    """The calls that a batch needs, one after another; returns the replies in the order of the requests.

    outputs: what the model declares of its answers, which are held to it; none: whatever comes. version: the
    answers' `model_version`: the variant where the model has several.
    """
    exchanges: dict[int, Exchange] = {}
    replies: dict[int, InferReply] = {}
    for place, read in enumerate(read_exchanges(requests, model, inputs)):
        if isinstance(read, BadRequest):
            replies[place] = error_reply(read.status, str(read))
        else:
            exchanges[place] = read
    pending = groups({place: part.kind for place, part in exchanges.items()})
    while pending:
        group = pending.pop()
        parts = [exchanges[place] for place in group]
        try:
            found = yield merge([part.inputs for part in parts])
            check_outputs(found, outputs)
            replies |= zip(group, write_replies(parts, found, version), strict=True)
        except (MemoryError, ModelFailed, ValueError) as error:
            if len(group) > 1 and not (isinstance(error, ModelFailed) and error.whole):
                middle = len(group) // 2
                pending += [group[middle:], group[:middle]]
            else:
                replies |= dict.fromkeys(group, _failed(error))
    return [replies[place] for place in range(len(requests))]


def _failed(error: MemoryError | ModelFailed | ValueError) -> InferReply:
    """The answer to a request for which the model's call failed."""
    if isinstance(error, ModelFailed):
        return error_reply(error.status, str(error))
    if isinstance(error, MemoryError):
        return error_reply(too_large().status, str(too_large()))
    return error_reply(500, f"the model's output is invalid: {error}")


def answer(steps: Answering, call: Callable[[Tensors], Tensors]) -> list[InferReply]:
    """Drive it with a model that answers at once. `call` may raise ModelFailed."""
    try:
        tensors = next(steps)
        while True:
            try:
                outputs = call(tensors)
            except ModelFailed as error:
                tensors = steps.throw(error)
            else:
                tensors = steps.send(outputs)
    except StopIteration as done:
        replies: list[InferReply] = done.value
        return replies
