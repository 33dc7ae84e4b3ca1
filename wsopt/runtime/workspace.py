"""Device memory that the launches of one kernel on one stream share: partial sums of tiles, and counters.

The text of this file below its imports stands after that of launcher.py in every emitted kernel.py whose blocks leave
parts of results, or take their tiles at run time.

A launch finds the counters, and sums that atomics add up, as zeros and leaves them so: the next one on the stream,
and every replay of a CUDA graph, needs nothing in between. Launches on two streams may run at the same time, so each
stream has a workspace of its own.
"""

from typing import Any

import torch

from wsopt.runtime.driver import _Call
from wsopt.runtime.launcher import _CALLS, _LAYOUTS, _LOCK, Launcher, _keep

_SPARE_COUNTERS = 512  # for so many captured launches, between two calls outside of captures


def _new_workspace(device: Any, elements: int, counters: int, new: Any = torch.empty) -> Any:
    """Memory for so many f32 elements of partial sums, and so many counters."""
    return (
        new((elements,), dtype=torch.float32, device=device),
        torch.zeros((counters,), dtype=torch.int32, device=device),
    )


def _new_zeros(device: Any, elements: int, counters: int) -> Any:
    """The same where atomics add the partial sums: elements are zeros then, as counters are."""
    return _new_workspace(device, elements, counters, torch.zeros)


def _too_small(workspace: Any, elements: int, counters: int) -> bool:
    return workspace is None or workspace[0].numel() < elements or workspace[1].numel() < counters


class WorkspaceLauncher(Launcher):
    """Calls a kernel whose last arguments are a workspace: partial sums, then counters, or counters alone.

    A stream's workspace is made, or made anew at least twice as large, when a call first needs it. What was made is
    never freed, since a captured graph may use it at every replay; all of a stream's workspaces together are at most
    twice the largest. Of counters alone every captured launch has its own, so that graphs that were captured on one
    stream may be replayed at the same time.
    """

    def __init__(
        self,
        kernel: Any,
        options: Any,
        key: Any,
        bind: Any,
        inputs: Any,
        outputs: Any,
        arguments: int,
        new: Any = _new_workspace,
    ) -> None:
        def bound(tensors: Any, outputs: Any) -> Any:
            return bind(tensors, outputs, self._workspace)

        super().__init__(kernel, options, key, bound, inputs, outputs)
        self._arguments = arguments  # how many of the kernel's the workspace is
        self._new = new
        self._workspaces: dict[Any, Any] = {}  # by device and stream
        self._spare: dict[Any, Any] = {}  # by device: for a stream that captures and has none
        self._made: list[Any] = []
        self._asked = (0, 0)

    def _workspace(self, device: Any, elements: int, counters: int) -> Any:
        """The current stream's workspace, of at least so many elements and counters."""
        with _LOCK:
            self._asked = elements, counters
            key = (device.index, self._host.stream(device.index))
            found = self._workspaces.get(key)
            if torch.cuda.is_current_stream_capturing():
                if self._arguments == 1:
                    return self._own_counters(device, counters)
                found = self._captured(device, found, elements, counters)
            else:
                if _too_small(found, elements, counters):
                    found = self._grown(device, found, elements, counters)
                self._set_aside(device, elements, counters)
            self._workspaces[key] = found
            return found

    def _captured(self, device: Any, found: Any, elements: int, counters: int) -> Any:
        """The workspace of a stream that captures: its own, or the spare one, which is then its own."""
        if _too_small(found, elements, counters):
            found = self._spare.pop(device.index, None)
        if _too_small(found, elements, counters):
            raise RuntimeError(
                "this stream has no workspace for partial sums yet, and none can be cleared while a CUDA graph is "
                "captured: call run() or prepare() once on it, with tensors of these shapes, before the capture"
            )
        return found

    def _own_counters(self, device: Any, counters: int) -> Any:
        """Counters that no other launch has, of those that were cleared outside of captures."""
        spare: Any = self._spare.get(device.index)
        if _too_small(spare, 0, counters):
            raise RuntimeError(
                "no counter of tiles is left for one more launch, and none can be cleared while a CUDA graph is "
                "captured: call run() or prepare() once, with tensors of these shapes, before the capture"
            )
        self._spare[device.index] = spare[0], spare[1][counters:]
        return spare[0], spare[1][:counters]

    def _set_aside(self, device: Any, elements: int, counters: int) -> None:
        """Have a spare workspace, or counters for many captured launches, cleared before any stream may take them."""
        spare = self._spare.get(device.index)
        if self._arguments == 1:
            if _too_small(spare, 0, _SPARE_COUNTERS // 2 * counters):
                self._spare[device.index] = self._grown(device, None, 0, _SPARE_COUNTERS * counters)
                torch.cuda.current_stream(device).synchronize()
        elif _too_small(spare, elements, counters):
            self._spare[device.index] = self._grown(device, spare, elements, counters)
            torch.cuda.current_stream(device).synchronize()

    def _grown(self, device: Any, before: Any, elements: int, counters: int) -> Any:
        if before is not None:
            elements, counters = max(elements, 2 * before[0].numel()), max(counters, 2 * before[1].numel())
        self._made.append(self._new(device, elements, counters))
        return self._made[-1]

    def _framed(self, layout: Any, inputs: list[Any], given: tuple[Any, ...]) -> Any:
        """The frame of a layout, in which the workspace's addresses are left open, as tensors' are."""
        with _LOCK:
            if layout in self._frames:
                return self._frames[layout]
            unfinished = (self, layout)  # under a key that nobody else asks for
            made: Any = super()._framed(unfinished, inputs, given)
            del self._frames[unfinished]
            first = len(self._inputs) + len(self._outputs)
            for number, place in enumerate(
                made.places[-2 - self._arguments : -2], first
            ):  # before scratch memory's
                made.addresses.append((place, number, False))
            made.table, made.workspace = None, self._asked
            _keep(self._frames, _LAYOUTS, layout, made)
            return made

    def _called(self, key: Any, frame: Any, inputs: list[Any], outputs: Any) -> _Call:
        """The launch at these addresses on a stream, with that stream's workspace."""
        with _LOCK:
            workspace = self._workspace(inputs[0].device, *frame.workspace)
            longer = (*key, *[one.data_ptr() for one in workspace[-self._arguments :]])
            made = super()._called(longer, frame, inputs, outputs)
            del self._calls[longer]
            _keep(self._calls, _CALLS, key, made)
            return made
