"""A model's code, loaded by name and called with whole batches: no event loop, in whichever process it runs."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import isgeneratorfunction
from typing import cast

import numpy as np

from mark.domain.errors import MarkError, Misconfigured, failure_words
from mark.domain.tensor import TensorSpec
from mark.plugins.memory import keep_freed_memory
from mark.ports import InferReply, InferRequest, PythonModel, Trace, VariantModel
from mark.protocols.exchange import check_outputs, refused_by_model, zeros
from mark.protocols.model_contract import class_mistakes
from mark.protocols.oip.bodies import Tensors
from mark.protocols.oip.replies import MODEL_VERSION
from mark.serving.backends.answering import ModelFailed, answer, answering
from mark.serving.backends.threads import limit_loaded, thread_variables
from mark.serving.passed_on_trace import model_call, trace_of

log = logging.getLogger(__name__)


class ModelRunner:
    """Calls `predict` on the thread that it is called on. `inputs` and `outputs` are the model's, once loaded."""

    def __init__(
        self,
        make_model: Callable[[], PythonModel],
        *,
        name: str,
        version: str = MODEL_VERSION,
        threads: int | None = None,
    ) -> None:
        """version: the answers' `model_version`, where no variant gave them. threads: None for one of torch."""
        self._make_model, self._name, self._version = make_model, name, version
        self._threads = threads
        self._model: PythonModel | None = None
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()

    def load(self) -> None:
        """Make the model and let it answer zeros once, which fills its caches. Errors: Misconfigured."""
        if self._threads is not None:
            os.environ.update(thread_variables(self._threads))
        try:
            model = self._make_model()
            mistakes = class_mistakes(model)
        except MarkError:
            raise
        except BaseException as error:  # a user's code may raise anything, or call exit; the cause is chained
            raise Misconfigured(f"model {self._name!r} does not start: {failure_summary(error)}") from error
        if mistakes:
            raise Misconfigured(f"model {self._name!r}: {'; '.join(mistakes)}")
        self.inputs, self.outputs = tuple(model.inputs), tuple(model.outputs)
        if self._threads is not None:
            limit_loaded(self._threads)
        elif torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # the agent's thread needs the other core; holds for this thread
        self._check(model)
        self._model = model
        keep_freed_memory()
        self._warm_up()

    def _check(self, model: PythonModel) -> None:
        """Refuse a model that this backend cannot call. Errors: Misconfigured."""
        if isgeneratorfunction(model.predict):
            raise Misconfigured(f"model {self._name!r}: its predict yields, so it streams: set backend.streams")

    def _warm_up(self) -> None:
        try:
            check_outputs(self._predict(zeros(self.inputs, 1)), self.outputs)
        except ModelFailed as error:
            log.warning("%s failed on zeros and was not warmed up: %s", self._name, error)
        except ValueError as error:
            log.error("%s returned invalid outputs: %s", self._name, error)  # noqa: TRY400 - the model's error, not ours

    def answer(self, batch: Sequence[InferRequest], variant: str | None = None) -> list[InferReply]:
        """Read, predict and write, by that variant where one is named."""
        steps = answering(batch, self._name, self.inputs, self.outputs, variant or self._version)
        return answer(steps, functools.partial(self._predict, variant=variant, trace=trace_of(batch)))

    def _predict(self, tensors: Tensors, variant: str | None = None, trace: Trace | None = None) -> Tensors:
        assert self._model is not None, "start comes first"
        try:
            if variant is not None:
                cast("VariantModel", self._model).switch(variant)
            with model_call(trace):
                outputs: object = self._model.predict(tensors)
            if not isinstance(outputs, Mapping):
                raise TypeError(f"predict returned a {type(outputs).__name__}, not a mapping of names to arrays")  # noqa: TRY301 - as a model's own failure
            return {name: np.asarray(value) for name, value in outputs.items()}
        except BaseException as error:  # as above: the request is answered with it, and nobody else ends
            raise self._failed(error) from error

    def _failed(self, error: BaseException) -> ModelFailed:
        """What the requests of a call are answered with: what the model declares of them, else its failure."""
        if (refused := refused_by_model(error)) is not None:
            return ModelFailed(str(refused), status=refused.status)
        log.warning("%s failed: %s", self._name, failure_summary(error), exc_info=error)
        return ModelFailed(f"the model failed: {failure_summary(error)}")


def failure_summary(error: BaseException) -> str:
    """Short words for an exception that a model raised."""
    return failure_words(error)[:300]
