"""Calls builds on a GPU as a server would: in a CUDA graph, from threads, into given outputs, as PyTorch's operators.

    python tests/runtime/calls_on_gpu.py FOLDER...

Needs torch and triton alone. Each check compares with what the same kernel gave for the same inputs in a plain call,
which is itself compared with the reference. Ends with status 1 where anything differs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from torch import Tensor

from wsopt.runtime.inputs import poison, random_inputs
from wsopt.runtime.launch import BuildFolder, load_folder, run_folder

CALLS = 1000
OTHER_EXTENTS = 70
"""More than an emitted launcher keeps tables of extents."""

Inputs = dict[str, Tensor]
Check = Callable[[], bool]


def flat(results: Any) -> tuple[Tensor, ...]:
    """The outputs of a call, whatever it returns them in."""
    if isinstance(results, Mapping):
        return tuple(results.values())
    return results if isinstance(results, tuple) else (results,)


def same(found: Any, expected: Any) -> bool:
    """Whether two calls gave the same bytes."""
    pairs = list(zip(flat(found), flat(expected), strict=True))
    return bool(pairs) and all(torch.equal(raw(a), raw(b)) for a, b in pairs)


def raw(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(torch.uint8).cpu()


class Called:
    """A build with two sets of inputs, and what plain calls give for them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder: BuildFolder = load_folder(path)
        self.module = self.folder.module
        self.inputs: tuple[Inputs, Inputs] = (self.made(1), self.made(2))
        self.expected = [flat(self.module.run(**given)) for given in self.inputs]
        self.name = self.folder.graph.name

    def made(self, seed: int, device: str = "cuda") -> Inputs:
        """Inputs of a seed."""
        return random_inputs(self.folder.graph, seed, device)

    def shorter(self, rows: int) -> Inputs | None:
        """The inputs with fewer rows in the first; None where that is no call of this kernel."""
        first = next(iter(self.inputs[0]))
        tensor = self.inputs[0][first]
        if tensor.dim() != 2 or tensor.shape[0] <= rows:
            return None
        return {**self.inputs[0], first: tensor[: tensor.shape[0] - rows]}


def captured(all_called: list[Called]) -> bool:
    """All builds in one CUDA graph, replayed with other contents after launches at many other extents."""
    held = [{name: tensor.clone() for name, tensor in called.inputs[0].items()} for called in all_called]
    for called, inputs in zip(all_called, held, strict=True):
        called.module.run(**inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [flat(called.module.run(**inputs)) for called, inputs in zip(all_called, held, strict=True)]
    for called in all_called:
        for rows in range(1, OTHER_EXTENTS + 1):
            shorter = called.shorter(8 * rows)
            if shorter is None:
                break
            try:
                called.module.run(**shorter)
            except ValueError:
                break  # the schedule takes no other number of rows
    right = True
    for turn in (1, 0):
        for called, inputs in zip(all_called, held, strict=True):
            for name, tensor in inputs.items():
                tensor.copy_(called.inputs[turn][name])
        for tensors in results:
            for tensor in tensors:
                poison(tensor)
        graph.replay()
        torch.cuda.synchronize()
        for called, tensors in zip(all_called, results, strict=True):
            agrees = same(tensors, called.expected[turn])
            right = right and agrees
            if not agrees:
                print(f"{called.name}: a replayed graph gives other bytes")
    return right


def from_threads(called: Called) -> bool:
    """Two threads on two streams, each with its own inputs, many calls each."""
    wrong: list[int] = []

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(CALLS):
                found = flat(called.module.run(**called.inputs[index]))
            torch.cuda.current_stream().synchronize()
            if not same(found, called.expected[index]):
                wrong.append(index)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not wrong


def into_given(called: Called) -> bool:
    """`out=` writes to those tensors, and returns them."""
    given = tuple(torch.empty_like(one) for one in called.expected[0])
    for one in given:
        poison(one)
    returned = called.module.run(**called.inputs[0], out=given if len(given) > 1 else given[0])
    there = all(a is b for a, b in zip(flat(returned), given, strict=True))
    return there and same(given, called.expected[0])


def with_gradient(called: Called) -> bool:
    """An input that requires a gradient is refused, but not under no_grad."""
    first = next((name for name, x in called.inputs[0].items() if x.dtype.is_floating_point), None)
    if first is None:
        return True
    inputs = {**called.inputs[0], first: called.inputs[0][first].clone().requires_grad_()}
    try:
        called.module.run(**inputs)
    except (RuntimeError, ValueError) as error:
        refused = "requires a gradient" in str(error)
    else:
        refused = False
    with torch.no_grad():
        return refused and same(called.module.run(**inputs), called.expected[0])


def on_second_gpu(called: Called) -> bool:
    """On another device than the current one, where there is one."""
    if torch.cuda.device_count() < 2:
        return True
    inputs = {name: tensor.to("cuda:1") for name, tensor in called.inputs[0].items()}
    found = flat(called.module.run(**inputs))
    torch.cuda.synchronize(1)
    return all(x.device.index == 1 for x in found) and same(found, called.expected[0])


def as_operator(called: Called) -> bool:
    """The registered operator passes `opcheck`, compiles whole, and is exported."""
    operator = called.module.register()
    arguments = tuple(called.inputs[0].values())
    torch.library.opcheck(operator.default, arguments)

    class Model(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            return [one.float() * 2.0 for one in flat(operator(*tensors))]

    expected = Model()(*arguments)
    compiled = torch.compile(Model(), fullgraph=True)(*arguments)
    exported = torch.export.export(Model(), arguments).module()(*arguments)
    return same(tuple(compiled), tuple(expected)) and same(tuple(exported), tuple(expected))


def together(all_called: list[Called]) -> bool:
    """A model of three operators under torch.compile agrees with eager."""
    operators = [called.module.register() for called in all_called]

    def model(*groups: Inputs) -> list[Tensor]:
        return [
            torch.relu(one.float()) + 1.0
            for operator, inputs in zip(operators, groups, strict=True)
            for one in flat(operator(*inputs.values()))
        ]

    groups = [called.inputs[0] for called in all_called]
    return same(tuple(torch.compile(model, fullgraph=True)(*groups)), tuple(model(*groups)))


def checks(all_called: list[Called]) -> Iterator[tuple[str, Check]]:
    """Everything that is checked, by name."""
    for called in all_called:
        yield f"{called.name}: the reference", lambda c=called: run_folder(c.path).accepted()
        for check in (into_given, with_gradient, from_threads, on_second_gpu):
            yield f"{called.name}: {check.__name__}", lambda c=called, check=check: check(c)
    yield f"{len(all_called)} builds in one graph", lambda: captured(all_called)
    for called in all_called[:5]:
        yield f"{called.name}: as_operator", lambda c=called: as_operator(c)
    yield "three operators compiled", lambda: together(all_called[:3])


def main(paths: list[str]) -> int:
    """Run all checks and print what failed; return the status."""
    failed = 0
    found = list(checks([Called(Path(path)) for path in paths]))
    for name, check in found:
        right = check()
        failed += not right
        print(f"{'right' if right else 'WRONG'}  {name}", flush=True)
    print(f"{len(found)} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
