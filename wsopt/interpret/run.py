"""Executes an emitted kernel under one seed's interleaving and returns what it computed."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wsopt.interpret.dtypes import Array
from wsopt.interpret.faults import SOURCE_ERRORS, InterpreterError, KernelFault
from wsopt.interpret.host import ALIGNMENT, TORCH_DTYPES, HostTensor, aligned
from wsopt.interpret.lines import MARKS
from wsopt.interpret.machine import Machine
from wsopt.interpret.modules import load
from wsopt.interpret.scheduler import kernel_line
from wsopt.interpret.storage import NEVER, Role, Storage


@dataclass(frozen=True)
class Execution:
    """Outputs of a run, its scheduler steps, and the statements of the device functions that ran.

    `ending` are the lines of waits that ended a product or a store.
    """

    outputs: dict[str, Array]
    steps: int
    ran: frozenset[int]
    ending: frozenset[int]


def execute(
    source: str,
    inputs: Mapping[str, Array],
    *,
    seed: int,
    processors: int = 2,
    filename: str = "kernel.py",
    ends: int = 0,
    launches: int | None = None,
    constants: Collection[str] = (),
) -> Execution:
    """Run the source of a `kernel.py` on the CPU with the interleaving that `seed` stands for.

    `inputs` are the launcher's tensors by name; ml_dtypes element types and strides are kept. `processors`
    is how many the device claims to have: few, so that a persistent kernel gives each several tiles. With `ends` only
    so many of a grid's first programs and of its last ones run, and outputs are not whole. The same arguments are
    launched `launches` times, each time with outputs as they were found at first, and the bits have to agree: if not
    told, twice where the launcher has memory of its own for the kernel to write, and once elsewhere. Inputs that are
    `constants` may be read while the kernel launched before still runs.
    Raises RaceError, DeadlockError, BarrierError or InterpreterError, with the line and the partition.
    """
    machine = Machine(seed, processors, filename, ends, constants)
    try:
        with np.errstate(all="ignore"):
            names = _guarded(lambda: load(source, machine), filename)
            tensors = {name: _tensor(name, _stored(names, name, array)) for name, array in inputs.items()}
            outputs = _guarded(lambda: _launched(names, tensors, machine, launches), filename)
    finally:
        linecache.cache.pop(filename, None)
    for name, tensor in outputs.items() if not ends else ():
        _check_complete(name, tensor)
    ran = frozenset(number for number, mark in enumerate(names[MARKS]) if mark)
    arrays = {name: tensor.numpy_array for name, tensor in outputs.items()}
    return Execution(arrays, machine.steps, ran, frozenset(machine.ending))


def _launched(
    names: Mapping[str, Any], tensors: Mapping[str, HostTensor], machine: Machine, launches: int | None
) -> dict[str, HostTensor]:
    """Launch the kernel so often; return the outputs of the last launch, equal in all. None is as in `execute`."""
    launch, outputs = _bound(names, tensors)
    for name, tensor in outputs.items():
        tensor.storage.name, tensor.storage.role = name, Role.OUTPUT
    found = [(tensor.storage.flat.copy(), tensor.storage.stamps.copy()) for tensor in outputs.values()]
    launch()
    kept = machine.end_call()
    if launches is None:
        launches = 2 if kept and not machine.ends else 1
    for number in range(2, launches + 1):
        first = [tensor.storage.flat.copy() for tensor in outputs.values()]
        for tensor, (elements, stamps) in zip(outputs.values(), found, strict=True):
            tensor.storage.flat[...], tensor.storage.stamps[...] = elements, stamps
        launch()
        machine.end_call()
        for (name, tensor), before in zip(outputs.items(), first, strict=True):
            if tensor.storage.flat.tobytes() != before.tobytes():
                raise InterpreterError(f"output {name}: launch {number} gives other bits than the one before")
    return outputs


def _bound(
    names: Mapping[str, Any], tensors: Mapping[str, HostTensor]
) -> tuple[Callable[[], None], dict[str, HostTensor]]:
    """The launch as the kernel's file makes it, short of the driver: by `bind` if it has that, else by `prepare`."""
    if callable(names.get("bind")):
        if callable(names.get("prepack")):
            tensors = names["prepack"](**tensors)
        grid, arguments, outputs = names["bind"](tensors)
        launch = names["kernel"][grid]
        return lambda: launch(*arguments, **names["OPTIONS"], launch_pdl=True), dict(outputs)
    missing = [name for name in ("prepare", "run") if not callable(names.get(name))]
    if missing:
        raise InterpreterError(f"the source defines no function {missing[0]}")
    launch, outputs = names["prepare"](**tensors)
    return launch, dict(outputs)


def _guarded(action: Callable[[], Any], filename: str) -> Any:
    """Turn what the host part of the source raises into an InterpreterError with its line."""
    try:
        return action()
    except KernelFault as fault:
        raise fault.located(_host_place(fault, filename)) from fault.__cause__
    except SOURCE_ERRORS as error:
        place = _host_place(error, filename)
        raise InterpreterError(f"{place}: {type(error).__name__}: {error}") from error


def _host_place(error: BaseException, filename: str) -> str:
    line = kernel_line(error, filename)
    return f"{os.path.basename(filename)}:{f'{line}: ' if line else ' '}host"


def _stored(names: Mapping[str, Any], name: str, array: Array) -> Array:
    """An input as the launcher takes it: numbers of four bits, which come as int8, two to a byte."""
    dtype, _ = names.get("INPUTS", {}).get(name, (None, 0))
    if array.dtype != np.int8 or dtype != TORCH_DTYPES["uint8"]:
        return array
    low, high = array[..., ::2], array[..., 1::2]
    return np.asarray((low & 15) | (high << 4), np.int8).view(np.uint8)


def _tensor(name: str, array: Array) -> HostTensor:
    array = np.asarray(array)
    if array.flags.c_contiguous and array.__array_interface__["data"][0] % ALIGNMENT:
        copy = aligned(array.shape, array.dtype)
        copy[...] = array
        array = copy
    return HostTensor(array, name, Storage(array, name))


def _check_complete(name: str, tensor: HostTensor) -> None:
    """Every element of an output has to have been written."""
    storage = tensor.storage
    _, stamps = storage.view(tensor.offset, tensor.shape, tensor.stride())
    unwritten = np.argwhere(stamps == NEVER)
    if unwritten.size:
        first = tuple(int(at) for at in unwritten[0])
        raise InterpreterError(
            f"output {name}{list(tensor.shape)}: {len(unwritten)} elements are never written, "
            f"the first at {first}"
        )
