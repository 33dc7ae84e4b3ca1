"""Calls of a kernel that check nothing again: tensors at addresses that were seen before are launched by one look-up.

`run` in a kernel.py finds out at each call how its tensors lie. Code that a compiler of graphs has written calls a
kernel with tensors that always lie as they were declared, and allocates the results itself. There the stream and the
addresses of a call tell everything else: it costs the host one dictionary look-up and one call of the driver.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any

from wsopt.runtime.launcher import _CAPTURED, _LOCK, Launcher, _keep, _with

Launch = Callable[..., None]
"""Computes a kernel's outputs, given after its inputs, into the memory of these outputs."""
Start = Callable[[], int]
"""Launches a kernel on known addresses; the driver's error, 0 if there is none."""

_KEPT = 1024
"""Launches that a kernel keeps ready at once."""


def direct(
    launcher: Launcher, names: Sequence[str], results: Sequence[str],
    lay: Callable[[Sequence[Any]], Sequence[Any]],
) -> Launch:  # fmt: skip
    """A function of a kernel's inputs, in the order of `names`, and of its outputs, in that of `results`, which need
    not be the launcher's own orders. It launches the kernel on the current stream of the tensors' device.

    `lay` returns the inputs as the kernel reads them, copied where they do not lie so; of inputs that are not copied
    it is asked once for the same addresses. Raises as `run` of the kernel does.
    """
    ready: dict[Any, Start] = {}
    host, address, device_of = launcher._open(), methodcaller("data_ptr"), methodcaller("get_device")
    stream_of, count = host.stream, len(names)
    inputs_of, outputs_of = _in_order(names, launcher._inputs), _in_order(results, launcher._outputs)

    def launch(*tensors: Any) -> None:
        device = device_of(tensors[0])
        key = (stream_of(device), *map(address, tensors))
        start = ready.get(key)
        here = host.one_device or host.device() == device
        if start is None or not here or start():  # a thread that is new to CUDA has no context to launch in
            checked(key, tensors[:count], tensors[count:])

    def checked(key: Any, given: Sequence[Any], made: tuple[Any, ...]) -> None:
        inputs, outputs = lay(given), outputs_of(made)
        launcher.run(dict(zip(names, inputs, strict=True)), outputs)
        if all(one is other for one, other in zip(inputs, given, strict=True)):
            start = _found(launcher, key[0], inputs_of(inputs), outputs)
            if start is not None:
                with _LOCK:
                    _keep(ready, _KEPT, key, start)

    return launch


def _in_order(names: Sequence[str], wanted: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function of one thing for each of `names`, that puts those `wanted` in their order."""
    places = [names.index(name) for name in wanted]
    return lambda given: tuple([given[place] for place in places])


def _found(launcher: Launcher, stream: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Start | None:
    """The launch that the launcher has just made of these tensors, in its own order; None if others have driven it
    out since.
    """
    _, layout, addresses = launcher._key(*inputs)
    frame = launcher._frames.get(_with(layout, outputs))
    if frame is None:
        return None
    call = launcher._calls.get((frame.number, stream, addresses, *[one.data_ptr() for one in outputs]))
    if call is None:
        return None
    start: Start = functools.partial(launcher._host.launch, *call.arguments)
    return (
        start if not stream or frame.table is None else _keeping(frame.table, start, launcher._host.capturing)
    )


def _keeping(table: Any, start: Start, capturing: Callable[[], bool]) -> Start:
    """The same launch of a kernel that reads a table, which a CUDA graph that captures it reads at every replay."""

    def launch() -> int:
        if capturing():
            _CAPTURED[id(table)] = table
        return start()

    return launch
