"""How Inductor calls a piece: as it calls its own library of products, not through torch's dispatcher.

Inductor allocates the result as it allocates its own, in memory that it uses again, and the code that it writes calls
a function by name. What is used here of Inductor is what its own lowerings use, alike in torch 2.9 to 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from wsopt.runtime.direct import Launch

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Extents, strides and type of a result."""
Layouts = Callable[[Iterable[Sequence[Any]]], tuple[Layout, ...]]
"""The layouts of results for inputs of these shapes."""


def lower_directly(target: Any, name: str, launch: Launch, layouts: Layouts, *, several: bool) -> None:
    """Have Inductor write direct calls of `launch` for an operator with results in these layouts, one or `several`.

    Where it writes C++, which calls no function of Python by name, it calls the operator.
    """
    from torch._inductor import ir
    from torch._inductor.lowering import fallback_handler, register_lowering
    from torch._inductor.select_algorithm import extern_kernels
    from torch._inductor.virtualized import V

    dispatched = fallback_handler(target, add_to_fallback_set=False)
    how = {"python_kernel_name": f"extern_kernels.wsopt_{name}", "op_overload": target}

    def lowered(*inputs: Any) -> Any:
        if V.graph.cpp_wrapper:
            return dispatched(*inputs)
        given = [ir.ExternKernel.realize_input(one) for one in inputs]
        device = given[0].get_device()
        fixed = [
            ir.FixedLayout(device, dtype, list(shape), list(strides))
            for shape, strides, dtype in layouts(one.get_size() for one in given)
        ]
        if not several:
            return ir.TensorBox.create(ir.ExternKernelOut(fixed[0], given, **how))
        call = ir.ExternKernelAlloc(ir.MultiOutputLayout(device=device), given, **how)
        call.outputs = [ir.MultiOutput(one, call, [(tuple, number)]) for number, one in enumerate(fixed)]
        return tuple(map(ir.TensorBox.create, call.outputs))

    # Code that Inductor finds in its cache calls it without having been lowered here.
    setattr(extern_kernels, f"wsopt_{name}", _making(launch, layouts) if several else _into(launch))
    register_lowering(target, type_promotion_kind=None)(lowered)


def _into(launch: Launch) -> Callable[..., None]:
    """A function that computes one result into the tensor that it is given for it."""

    def into(*inputs: torch.Tensor, out: torch.Tensor) -> None:
        launch(*inputs, out)

    return into


def _making(launch: Launch, layouts: Layouts) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A function that makes several results, where its inputs are, on the device that is the current one."""
    from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda

    def making(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        empty = _empty_strided_cuda if inputs[0].is_cuda else _empty_strided_cpu
        found = tuple([empty(*one) for one in layouts(x.shape for x in inputs)])
        launch(*inputs, *found)
        return found

    return making
