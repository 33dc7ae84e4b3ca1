"""A stand-in for torch's tensors and the CUDA driver, under which a kernel.py's launcher runs without either."""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from wsopt.interpret.dtypes import DTYPES
from wsopt.interpret.host import Device, HostTensor, aligned
from wsopt.interpret.machine import Machine
from wsopt.interpret.modules import load

GOLDEN = Path(__file__).parents[1] / "emit" / "goldens" / "plain.txt"
BF16 = next(dtype.numpy for dtype in DTYPES if dtype.torch_name == "bfloat16")
INVALID_CONTEXT = 201
GAP = 16


class FakeTensor(HostTensor):
    """A tensor on some device that may require a gradient."""

    requires_grad = False

    def get_device(self) -> int:
        return self.device.index if self.is_cuda else -1

    def detach(self) -> FakeTensor:
        return like(self)


def like(tensor: HostTensor, **changes: Any) -> FakeTensor:
    """The same memory as a tensor of its own, with other attributes."""
    made = FakeTensor(tensor.numpy_array, storage=tensor.storage)
    vars(made).update(vars(tensor) | changes)
    return made


def tensor(*shape: int, dtype: Any = BF16) -> FakeTensor:
    """A tensor of zeros, of bf16 if nothing else is said."""
    array = aligned(shape, dtype)
    array[...] = 0
    return FakeTensor(array)


class FakeDriver:
    """Counts calls, and keeps what a launch passes: its grid, stream, and parameters as bytes."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.calls: Counter[str] = Counter()
        self.launches: list[tuple[tuple[int, ...], int, list[bytes]]] = []
        self.errors: list[int] = []

    def cuLaunchKernelEx(self, config: Any, _handle: Any, parameters: Any, extra: Any) -> int:
        if self.errors:
            return self.errors.pop(0)
        found = config._obj
        assert (parameters is None) != (extra is None)
        if parameters is None:
            assert (extra[0], extra[2], extra[4]) == (1, 2, None)
            assert ctypes.c_size_t.from_address(extra[3]).value == self.offset(len(self.sizes)) - GAP
            parameters = [extra[1] + self.offset(place) for place in range(len(self.sizes))]
        passed = [ctypes.string_at(at, size) for at, size in zip(parameters, self.sizes, strict=True)]
        self.launches.append((tuple(found.grid), found.stream or 0, passed))
        return 0

    def offset(self, place: int) -> int:
        """Where a parameter lies in the device's memory: here with a gap before each."""
        return sum(self.sizes[:place]) + GAP * (place + 1)

    def cuKernelGetParamInfo(self, _handle: Any, index: Any, offset: Any, size: Any) -> int:
        if index.value >= len(self.sizes):
            return 1
        offset._obj.value = self.offset(index.value)
        size._obj.value = self.sizes[index.value]
        return 0

    def cuTensorMapEncodeTiled(self, place: Any, _kind: int, _rank: int, address: Any, *_: Any) -> int:
        self.calls["encode"] += 1
        ctypes.memmove(place.value, address.value.to_bytes(8, "little"), 8)
        return 0

    def cuTensorMapReplaceAddress(self, place: int, address: int) -> int:
        self.calls["replace"] += 1
        ctypes.memmove(place, address.to_bytes(8, "little"), 8)
        return address % 16

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 13000
        return 0

    def cuGetErrorString(self, _error: int, words: Any) -> int:
        words._obj.value = b"some fault"
        return 0

    def __getattr__(self, name: str) -> Any:
        assert name in ("cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute"), name
        self.calls[name] += 1
        return lambda *_: 0


class Stage:
    """A kernel.py loaded with stand-ins: y[M, N] = x[M, K] w[N, K] in bf16. `memory` is how many addresses of the
    launcher's own memory it is given.
    """

    def __init__(self, source: str = "", memory: int = 0) -> None:
        self.names = load(source or GOLDEN.read_text("utf-8"), Machine(0, 4, "kernel.py"))
        maps = [size for _ in range(3) for size in (128, 4, 4, 8, 8)]
        self.driver = FakeDriver([*maps, 4, 4, 4, 4, 4, *[8] * memory, 8, 8])
        self.calls: Counter[str] = Counter()
        self.grads, self.capturing, self.stream, self.device = True, False, 7, 0
        self.scratch = 0
        self.names["_driver"] = lambda: self.driver
        self.names["_host"] = lambda: self.host
        self.names["torch"] = SimpleNamespace(
            **vars(self.names["torch"])
            | {"is_grad_enabled": lambda: self.grads, "cuda": self._cuda(), "empty": self._empty}
        )
        launcher = self.names["_LAUNCHER"]
        launcher._bind = self._counted("bind", launcher._bind)
        launcher._kernel = SimpleNamespace(warmup=self._counted("warmup", self._warmup))
        self.launcher = launcher
        self.host = SimpleNamespace(
            empty=lambda size, _stride, _dtype: like(tensor(*size), device=Device("cuda", self.device)),
            stream=lambda _device: self.stream,
            device=lambda: self.device,
            capturing=lambda: self.capturing,
            grads=lambda: self.grads,
            launch=self.driver.cuLaunchKernelEx,
            one_device=True,
            guards=self._counted("guards", self._guards),
        )

    def _cuda(self) -> Any:
        properties = SimpleNamespace(multi_processor_count=4)
        return SimpleNamespace(
            get_device_properties=lambda _device: properties,
            is_current_stream_capturing=lambda: self.capturing,
            device=lambda device: _Guard(self, device),
            set_device=lambda device: self.calls.update(["set_device"]),
            current_stream=self._current_stream,
        )

    def _current_stream(self, _device: Any = None) -> Any:
        return SimpleNamespace(synchronize=lambda: self.calls.update(["synchronize"]))

    def _empty(self, shape: Any, *, dtype: Any, device: Any) -> FakeTensor:
        return like(tensor(*shape, dtype=dtype.element.numpy), device=device)

    def _guards(self, inputs: Any) -> Any:
        key = self.names["_key"]

        def alike(*tensors: Any) -> bool:
            return bool(key(*tensors)[1] == key(*inputs)[1])

        return self._counted("alike", alike)

    def _counted(self, name: str, function: Any) -> Any:
        def counting(*args: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return function(*args, **named)

        return counting

    def _warmup(self, *_: Any, **__: Any) -> Any:
        metadata = SimpleNamespace(
            global_scratch_size=self.scratch, profile_scratch_size=0, name="kernel", shared=1000, num_warps=12
        )
        return SimpleNamespace(metadata=metadata, asm={"cubin": b"code"})

    def run(self, **tensors: Any) -> Any:
        return self.names["run"](**tensors)

    def passed(self, launch: int = -1) -> list[int]:
        """The addresses of x, w and y in a launch."""
        parameters = self.driver.launches[launch][2]
        return [int.from_bytes(parameters[place][:8], "little") for place in (0, 5, 10)]


class _Guard:
    """`torch.cuda.device`."""

    def __init__(self, stage: Stage, device: Any) -> None:
        self.stage, self.index = stage, device.index if isinstance(device, Device) else device

    def __enter__(self) -> None:
        self.before, self.stage.device = self.stage.device, self.index

    def __exit__(self, *_: object) -> None:
        self.stage.device = self.before


ELSEWHERE = Device("cuda", 1)
