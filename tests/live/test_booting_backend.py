"""A backend keeps its abilities while its machine boots: streams and variants are passed on."""

from __future__ import annotations

from typing import cast

import pytest

from mark.live.processes.agent import _Booting, _Clock
from mark.ports import Backend, PythonModel, StreamingBackend, VariantBackend
from mark.serving.backends.python import PythonBackend
from mark.serving.backends.python_streams import PythonStreamBackend


def unmade() -> PythonModel:
    raise AssertionError("a backend that has not started makes no model")


@pytest.mark.parametrize("kind", [PythonBackend, PythonStreamBackend])
def test_a_backend_that_boots_can_do_what_it_could(kind: type[PythonBackend]) -> None:
    backend: Backend = kind(unmade, name="m")
    booting = _Booting(backend, cast("_Clock", None), booted_at=0.0)

    assert isinstance(booting, StreamingBackend) == isinstance(backend, StreamingBackend)
    assert isinstance(booting, VariantBackend) == isinstance(backend, VariantBackend)
