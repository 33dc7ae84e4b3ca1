"""How a compiled kernel is called from Python: what a launch needs is made once, and found again.

The text of this file below its imports stands in every emitted kernel.py, after that of driver.py.

A warm call costs the host two dictionary look-ups, the allocation of outputs, and one call of the driver. What
comes of layouts alone (checks, extents, grid, order of tiles) is kept by layout; what comes of addresses too (encoded
tensor maps) by addresses and stream. All caches are bounded, and drop what was made first.
"""

import functools
import itertools
import keyword
import threading
from typing import Any

import torch

from wsopt.runtime.driver import _INVALID_CONTEXT, _Call, _check, _Compiled, _driver, _Frame

_LAYOUTS, _CALLS, _TABLES = 256, 1024, 64  # what each cache holds at most
_LOCK = threading.RLock()
_ORDERS: dict[Any, Any] = {}
_CAPTURED: dict[int, Any] = {}  # tables that CUDA graphs read at every replay: never freed


def _expect(condition: Any, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _typed(tensors: dict[str, Any], expected: dict[str, tuple[Any, int]]) -> list[Any]:
    """The expected tensors in order, each of its type and number of dimensions."""
    for name, (dtype, rank) in expected.items():
        _expect(name in tensors, f"tensor {name} is missing; expected {', '.join(expected)}")
        found, dims = tensors[name].dtype, len(tensors[name].shape)
        _expect(found == dtype, f"tensor {name} is {found}, expected {dtype}")
        _expect(dims == rank, f"tensor {name} has {dims} dimensions, expected {rank}")
    return [tensors[name] for name in expected]


def _keep(cache: dict[Any, Any], limit: int, key: Any, value: Any) -> None:
    """Put a value into a bounded cache. Called with the lock held, since it walks the cache."""
    while len(cache) >= limit:
        cache.pop(next(iter(cache)))
    cache[key] = value


def _table(device: Any, extents: tuple[int, ...], make: Any) -> Any:
    """The i32 tensor of `make()` on a device, made once for the same extents."""
    with _LOCK:
        key = (str(device), *extents)
        found = _ORDERS.get(key)
        if found is None:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    "the order of tiles is not on the device yet, and cannot be copied there while a CUDA graph is "
                    "captured: call run() or prepare() once with tensors of these shapes before the capture"
                )
            found = torch.tensor(make(), dtype=torch.int32, device=device)
            _keep(_ORDERS, _TABLES, key, found)
        return found


def _empty(size: Any, stride: Any, dtype: Any) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _never(*_tensors: Any) -> bool:
    return False


def _guards() -> Any:
    """A function that makes one that tells whether tensors have the layouts, types and device of those given to it.

    It is the one of torch's compiler, and takes a quarter of the time that a key of all those takes.
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        def made(inputs: Any) -> Any:
            return TensorGuards(*inputs, dynamic_dims_sizes=None, dynamic_dims_strides=None).check

        one = torch.empty(1)
        return made if made((one,))(one) else lambda _inputs: _never
    except (ImportError, AttributeError, TypeError):  # torch's own, and may change
        return lambda _inputs: _never


class _Host:
    """What a warm call asks of torch and of the driver: their quickest forms, of which some are torch's own."""

    def __init__(self) -> None:
        try:
            from torch._C._dynamo.guards import _empty_strided_cuda as empty
        except ImportError:  # on the current device, as the quicker one is
            self.empty: Any = _empty
        else:
            self.empty = empty
        self.stream, self.device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        self.capturing, self.grads = torch._C._cuda_isCurrentStreamCapturing, torch.is_grad_enabled
        self.launch, self.guards = _driver().cuLaunchKernelEx, _guards()
        self.one_device = torch.cuda.device_count() == 1


_host = functools.cache(_Host)


def _with(layout: Any, given: Any) -> Any:
    """A layout of inputs with that of given outputs."""
    return (*layout, *[(x.shape, x.stride(), x.dtype) for x in given])


def _argument(name: str) -> str:
    """What an operator's argument is called: as the input, unless Python has that word for itself."""
    return f"{name}_" if keyword.iskeyword(name) else name


class Launcher:
    """Calls a kernel, from any thread, on the current stream of the device that its tensors are on.

    `key(*inputs)` returns the inputs, their device and layouts, and their addresses. `bind` checks tensors,
    makes outputs where it is given none, and returns the grid, the kernel's arguments, and the outputs.
    """

    def __init__(self, kernel: Any, options: Any, key: Any, bind: Any, inputs: Any, outputs: Any) -> None:
        self._kernel, self._options, self._key, self._bind = kernel, options, key, bind
        self._inputs, self._outputs = inputs, outputs
        self._frames: dict[Any, _Frame] = {}
        self._calls: dict[Any, _Call] = {}
        self._compiled: dict[Any, _Compiled] = {}
        self._numbers = itertools.count()
        self._operator: Any = None
        self._host: Any = None
        self._usual: Any = (_never, None)  # whether inputs are as those of most calls, and the frame of those
        self._last: Any = None

    def again(self, inputs: Any, addresses: Any) -> Any:
        """The output of a call that repeats one, in a new tensor; None where anything is new or not usual.

        What most calls are, and no step more: one output, no gradients, and no table that a capture could keep (the
        default stream is never captured).
        """
        alike, frame = self._usual
        if not alike(*inputs):
            frame = self._known(inputs)
            if frame is None or frame.fresh is None:
                return None
        host, device = self._host, frame.device
        if not host.one_device and host.device() != device:
            return None
        stream = host.stream(device)
        if stream and frame.table is not None:
            return None
        result = host.empty(*frame.fresh)
        call = self._calls.get((frame.number, stream, addresses, result.data_ptr()))
        if call is None:
            return None
        if error := host.launch(*call.arguments):
            _launch_again(error, call, device)
        return result

    def _known(self, inputs: Any) -> Any:
        """The frame of inputs of a known layout; one asked for twice in a row is the usual one from then on."""
        frame = self._frames.get(self._key(*inputs)[1])
        if frame is not None and frame is self._last and frame.fresh is not None:
            self._usual = (self._host.guards(inputs), frame)
        self._last = frame
        return frame

    def run(self, tensors: dict[str, Any], out: Any) -> Any:
        """Compute the outputs into new tensors, or into `out`: one tensor, or a tuple of several."""
        inputs, layout, addresses = self._named(tensors)
        return self._run(tensors, inputs, layout, addresses, out)

    def _run(self, tensors: dict[str, Any], inputs: Any, layout: Any, addresses: Any, out: Any) -> Any:
        """The same, of inputs in order, whatever is new about them and wherever they are."""
        host, device = self._open(), layout[0]
        if device != host.device():
            _expect(device >= 0, f"tensor {self._inputs[0]} is on {inputs[0].device}, expected a CUDA device")
            with torch.cuda.device(device):
                return self.run(tensors, out)
        given = () if out is None else out if isinstance(out, tuple) else (out,)
        if given:
            layout = _with(layout, given)
        frame = self._frames.get(layout)
        if frame is None or (frame.guarded and host.grads()):
            frame = self._framed(layout, inputs, given)
        results = given or tuple([host.empty(*one) for one in frame.outputs])
        stream = host.stream(device)
        key = (frame.number, stream, addresses, *[x.data_ptr() for x in results])
        call = self._calls.get(key) or self._called(key, frame, inputs, results)
        if stream and frame.table is not None and host.capturing():
            _CAPTURED[id(frame.table)] = frame.table
        if error := host.launch(*call.arguments):
            _launch_again(error, call, device)
        return results[0] if len(results) == 1 else results

    def _open(self) -> Any:
        """Find the driver and what torch has, when they are first needed."""
        self._host = _host()
        return self._host

    def prepare(self, tensors: dict[str, Any], outputs: dict[str, Any] | None) -> Any:
        """Check tensors once; return a function that launches the kernel on them, and the outputs by name."""
        host, (inputs, layout, addresses) = self._open(), self._named(tensors)
        device = layout[0]
        _expect(device >= 0, f"tensor {self._inputs[0]} is on {inputs[0].device}, expected a CUDA device")
        with torch.cuda.device(device):
            named = self._bind(tensors, outputs)[2]
            results = tuple(named[name] for name in self._outputs)
            frame = self._framed(_with(layout, results), inputs, results)
        where = tuple(x.data_ptr() for x in results)
        calls: dict[int, _Call] = {}  # by stream
        stream_of, start, capturing, table = host.stream, host.launch, host.capturing, frame.table

        def called(stream: int) -> _Call:
            with torch.cuda.device(device):
                made = self._called((frame.number, stream, addresses, *where), frame, inputs, results)
            return calls.setdefault(stream, made)

        def launch() -> None:
            stream = stream_of(device)
            call = calls.get(stream) or called(stream)
            if stream and table is not None and capturing():
                _CAPTURED[id(table)] = table
            if error := start(*call.arguments):
                _launch_again(error, call, device)

        def launch_there() -> None:
            with torch.cuda.device(device):
                launch()

        called(host.stream(device))
        return (
            launch if host.one_device else lambda: launch() if host.device() == device else launch_there(),
            named,
        )

    def register(self, name: str, fake: Any) -> Any:
        """Make `torch.ops.wsopt.NAME` of the kernel, once; `fake(tensors)` makes outputs without computing them."""
        if self._operator is None:
            _expect(
                not hasattr(torch.ops.wsopt, name),
                f"torch.ops.wsopt.{name} is another kernel's: choose a name, as in register({name + '_2'!r})",
            )
            self._library = torch.library.Library("wsopt", "FRAGMENT")
            parameters = ", ".join(f"Tensor {_argument(one)}" for one in self._inputs)
            results = (
                "Tensor" if len(self._outputs) == 1 else f"({', '.join('Tensor' for _ in self._outputs)})"
            )
            tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
            self._library.define(f"{name}({parameters}) -> {results}", tags=tags)
            self._library.impl(
                name, lambda *given: self.run(dict(zip(self._inputs, given, strict=True)), None), "CUDA"
            )
            torch.library.register_fake(
                f"wsopt::{name}",
                lambda *given: fake(dict(zip(self._inputs, given, strict=True))),
                lib=self._library,
            )
            self._operator = getattr(torch.ops.wsopt, name)
        return self._operator

    def _named(self, tensors: dict[str, Any]) -> Any:
        """The inputs in order, their device and layouts, and their addresses. Other tensors are ignored."""
        for name in self._inputs:
            _expect(name in tensors, f"tensor {name} is missing; the inputs are {', '.join(self._inputs)}")
        return self._key(*[tensors[name] for name in self._inputs])

    def _framed(self, layout: Any, inputs: list[Any], given: tuple[Any, ...]) -> _Frame:
        """Check tensors, and make what depends on their layout alone."""
        for name, one in zip(self._inputs, inputs, strict=True):
            _expect(
                not (one.requires_grad and torch.is_grad_enabled()),
                f"tensor {name} requires a gradient, and this kernel computes none: call it under torch.no_grad(), "
                f"or pass {name}.detach()",
            )
        wanted = ", ".join(self._outputs)
        _expect(
            len(given) in (0, len(self._outputs)), f"out has {len(given)} tensors; the outputs are {wanted}"
        )
        with _LOCK:
            if layout in self._frames:
                return self._frames[layout]
            # As objects of their own, so that two inputs that happen to be one tensor are told apart.
            apart = [one.detach() for one in inputs]
            grid, arguments, results = self._bound(apart, [one.detach() for one in given])
            made = _Frame(next(self._numbers), grid, arguments, [*apart, *results], results)
            made.guarded = any(one.requires_grad for one in inputs)
            if len(results) == 1 and not made.guarded:
                made.fresh = made.outputs[0]
            _keep(self._frames, _LAYOUTS, layout, made)
            return made

    def _bound(self, inputs: list[Any], given: Any) -> Any:
        """The grid, the kernel's arguments, and the outputs in their order."""
        outputs = dict(zip(self._outputs, given, strict=True)) if given else None
        grid, arguments, results = self._bind(dict(zip(self._inputs, inputs, strict=True)), outputs)
        return grid, arguments, [results[name] for name in self._outputs]

    def _called(self, key: Any, frame: _Frame, inputs: list[Any], outputs: Any) -> _Call:
        """The launch of a frame at these addresses on a stream; the kernel is compiled where it never was."""
        _number, stream, (*addresses,), *rest = key
        addresses += rest
        device = inputs[0].get_device()
        for name, one in zip((*self._inputs, *self._outputs), (*inputs, *outputs), strict=True):
            _expect(one.get_device() == device, f"tensor {name} is on {one.device}, expected cuda:{device}")
            _expect(one.data_ptr() or not one.numel(), f"tensor {name} has no memory")
        # The compiler is told which pointers are multiples of 16 bytes, as Triton's own launches tell it.
        aligned = tuple(addresses[number] % 16 == 0 for _, number, is_map in frame.addresses if not is_map)
        with _LOCK:
            compiled = self._compiled.get((device, aligned))
            if compiled is None:
                grid, arguments, _ = self._bound(inputs, outputs)
                binary = self._kernel.warmup(*arguments, grid=grid, **self._options, launch_pdl=True)
                compiled = self._compiled[device, aligned] = _Compiled(binary, device, frame.sizes)
            if frame.table is not None and not torch.cuda.is_current_stream_capturing():
                # Its memory is not given to others before this stream has read it.
                frame.table.record_stream(torch.cuda.current_stream())
            made = _Call(frame, compiled, stream, addresses)
            _keep(self._calls, _CALLS, key, made)
            return made


def _launch_again(error: int, call: _Call, device: int) -> None:
    """Launch once more where the thread had no context yet, as one that is new to CUDA has not; else raise."""
    if error == _INVALID_CONTEXT:
        torch.cuda.set_device(device)
        error = _driver().cuLaunchKernelEx(*call.arguments)
    _check(error, "the kernel cannot be launched")
