"""The engine, compiled: the one place where the simulator's kernel and the dispatch decisions meet numba.

The decisions stay plain functions; `register_jitable`, called from here, lets compiled code call them as they
are. Machine code is cached on disk under the hash of all sources that went into it (`machine_code.py`), because
numba by itself would not notice a change in a decision's module.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import numba
from numba.extending import intrinsic, register_jitable

from mark.dispatch import batcher, bouncer, objective, overflow, routing
from mark.dispatch.central import assignment, kairos, learned
from mark.dispatch.central import decisions as central_decisions
from mark.dispatch.central.policy import CentralPolicy, CentralRule
from mark.dispatch.central.queue import CentralCode, CentralQueue, Instance
from mark.dispatch.instance import credits as credit_rules
from mark.dispatch.instance import device, device_share
from mark.dispatch.variants import qos, qos_policy, slackfit
from mark.simulator.engine import (
    kernel,
    kernel_central,
    kernel_deadlines,
    kernel_devices,
    kernel_lambda,
    kernel_qos,
    kernel_tally,
    kernel_variants,
)
from mark.simulator.engine.machine_code import compiled

cgutils: Any = numba.core.cgutils
types: Any = numba.core.types
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "forceinline": True, "no_cfunc_wrapper": True}
"""Inlined into one function, arrays are handed on without counting references, which took most of the time."""
_CALLED: dict[str, Any] = {**_OPTIONS, "forceinline": False}
"""Of the rules that weigh quality: they take far longer than a call, and minutes to compile at each place."""
_DECISIONS = (
    bouncer,
    batcher,
    credit_rules,
    device,
    device_share,
    objective,
    overflow,
    qos,
    qos_policy,
    routing,
    slackfit,
)
_ENGINE = (*_DECISIONS, kernel_tally, kernel_lambda, kernel, kernel_deadlines)
_CENTRAL = (assignment, kairos, learned, central_decisions)


class Kernel(NamedTuple):
    """Entry points of the kernel, compiled or plain; both give the same results."""

    run: Callable[..., tuple[int, int]]
    settle: Callable[..., None]
    dispatch: Callable[..., bool]
    start_environment: Callable[..., bool]


class CentralKernel(NamedTuple):
    """Entry points of the central queue's kernel, compiled or plain; both give the same results."""

    run: Callable[..., int]
    decide: Callable[..., None]


class VariantKernel(NamedTuple):
    """Entry points of the kernel of variants, compiled or plain; both give the same results."""

    run: Callable[..., int]
    play: Callable[..., int]


def plain_kernel() -> Kernel:
    """The kernel as Python runs it: the reference, some hundred times slower."""
    return Kernel(
        kernel_deadlines.run,
        kernel_deadlines.settle,
        kernel_deadlines.dispatch,
        kernel_lambda.start_environment,
    )


@functools.cache
def compiled_kernel(cache_dir: Path) -> Kernel:
    """The kernel as machine code; compiled on first use (some 10 s) and cached under `cache_dir`."""
    return Kernel(*_compiled(_ENGINE, map(_uncounted, plain_kernel()), cache_dir))


def plain_central_kernel() -> CentralKernel:
    """The central queue's kernel as Python runs it."""
    return CentralKernel(kernel_central.run, central_decisions.decide)


class DeviceKernel(NamedTuple):
    """Entry points of the kernel of shared devices, compiled or plain; both give the same results."""

    run: Callable[..., tuple[int, int]]
    settle: Callable[..., None]
    dispatch: Callable[..., bool]
    start_environment: Callable[..., bool]


def plain_device_kernel() -> DeviceKernel:
    """The kernel of shared devices as Python runs it."""
    return DeviceKernel(
        kernel_devices.run, kernel_devices.settle, kernel_devices.dispatch, kernel_devices.start_environment
    )


@functools.cache
def compiled_device_kernel(cache_dir: Path) -> DeviceKernel:
    """The kernel of shared devices as machine code, compiled and cached like the other ones."""
    return DeviceKernel(*_compiled((*_ENGINE, kernel_devices), map(_uncounted, plain_device_kernel()), cache_dir))


@functools.cache
def compiled_central_kernel(cache_dir: Path) -> CentralKernel:
    """The central queue's kernel as machine code, compiled and cached like the other one."""
    return CentralKernel(
        *_compiled((*_CENTRAL, kernel_central), map(_uncounted, plain_central_kernel()), cache_dir)
    )


@functools.cache
def compiled_central_code(cache_dir: Path) -> CentralCode:
    """The decisions of a live central queue as machine code, for the types of the arrays that it has.

    To look at the types of arrays at each call would take longer than most decisions do.
    """
    code = CentralCode(*_compiled(_CENTRAL, CentralCode(), cache_dir))
    policy = CentralPolicy(rule=CentralRule.KAIROS)
    queue: CentralQueue[str] = CentralQueue(policy, slo_ms=1.0, profiles_s={"any": (0.001,)}, code=code)
    queue.set_pool(0.0, [Instance("any", "any")])
    queue.add(0.0, "any", size=1, deadline_ms=1.0)
    queue.decide(0.0)
    queue.add(0.0, "another", size=1, deadline_ms=1.0)
    queue.remove("another")
    return CentralCode(*(function.get_overload(*function.signatures) for function in cast("Any", code)))


def plain_variant_kernel() -> VariantKernel:
    """The kernel of variants as Python runs it."""
    return VariantKernel(kernel_variants.run, kernel_qos.play)


@functools.cache
def compiled_variant_kernel(cache_dir: Path) -> VariantKernel:
    """The kernel of variants as machine code, compiled and cached like the other ones."""
    modules = (slackfit, qos, qos_policy, kernel_variants, kernel_qos)
    return VariantKernel(*_compiled(modules, map(_uncounted, plain_variant_kernel()), cache_dir))


def _compiled(
    modules: tuple[ModuleType, ...], entries: Iterable[Callable[..., Any]], cache_dir: Path
) -> list[Any]:
    for module in modules:
        for function in _functions(module):
            register_jitable(**(_CALLED if function is kernel.quality_pair else _OPTIONS))(function)
    folder = cache_dir / f"engine-{_fingerprint(modules)}"
    return [compiled(function, folder, _OPTIONS) for function in entries]


def _uncounted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on arrays whose references are not counted: whoever calls it keeps them meanwhile.

    To count them, as compiled code does at each slice and each look at a row, takes most of a kernel's time.
    """

    def entry(*given: Any) -> Any:
        return function(*_borrowed(given))

    return entry


def _borrow(_context: Any, given: Any) -> Any:
    """The same values, their arrays without reference counts."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return _without_counts(context, builder, signature.args[0], values[0])

    return given(given), code


_borrowed: Any = intrinsic(_borrow)


def _without_counts(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()  # noqa: SLF001 - so numba's own intrinsics do
    if isinstance(kind, types.BaseTuple):
        parts = cgutils.unpack_tuple(builder, value, len(kind))
        found = [_without_counts(context, builder, *part) for part in zip(kind, parts, strict=True)]
        return context.make_tuple(builder, kind, found)
    return value


def _functions(module: ModuleType) -> list[Callable[..., Any]]:
    return [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]


def _fingerprint(modules: tuple[ModuleType, ...]) -> str:
    digest = hashlib.sha256(f"{numba.__version__} {_OPTIONS}".encode())
    for module in (*modules, sys.modules[__name__]):
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()[:16]
