"""Writes a graph as the torch code that a person would write, to be timed against and shown in reports.

Tensors keep torch's own dtypes: a bf16 product stays bf16, casts stand where the graph has them, and a bias
goes into the linear layer.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Mapping, Sequence

from wsopt.primitives import PRIMITIVES
from wsopt.runtime.raw_graph import Operand, RawGraph, RawInput, RawNode

TORCH_NAMES = {
    "f32": "torch.float32",
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "f8e4m3": "torch.float8_e4m3fn",
    "f8e5m2": "torch.float8_e5m2",
    "i32": "torch.int32",
    "i8": "torch.int8",
    "bool": "torch.bool",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_F8 = ("f8e4m3", "f8e5m2")


class Inapplicable(Exception):
    """A baseline that has no counterpart for this graph; the text says why."""


class Missing(Inapplicable):
    """A baseline that would apply, of a package that is not installed."""


def variable(name: Operand) -> str:
    """The name of a tensor as a Python variable. Raises ValueError for what is no name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no tensor name")
    reserved = keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in ("torch", "F", "float")
    return f"{name}_" if reserved else name


def function_source(graph: RawGraph, body: Sequence[str], outputs: Sequence[str], name: str) -> str:
    """A function of all the graph's inputs from the lines of its body."""
    arguments = ", ".join(variable(item.name) for item in graph.inputs)
    returned = ", ".join(variable(output) for output in outputs)
    lines = [*body, f"return {returned}" + ("," if len(outputs) == 1 else "")]
    return "\n".join([f"def {name}({arguments}):", *(f"    {line}" for line in lines), ""])


def eager_source(graph: RawGraph) -> str:
    """The whole graph in idiomatic torch; the function returns a tuple of the outputs.

    Raises Inapplicable if torch has no plain counterpart of a node.
    """
    return function_source(graph, _body(graph), graph.outputs, "eager")


def compiled_source(graph: RawGraph, dtypes: Mapping[str, str]) -> str:
    """The same for a compiler, which fuses a cast: outputs are stored in the graph's dtypes, given by name, so that
    as many bytes are written. The result of a product is left in torch's, for there it would be a kernel more.
    """
    products = {node.name for node in graph.nodes if node.op in ("matmul", "grouped_matmul")}
    cast = [
        f"{variable(name)} = {variable(name)}.to({TORCH_NAMES[dtypes[name]]})"
        for name in graph.outputs
        if name not in products
    ]
    return function_source(graph, [*_body(graph), *cast], graph.outputs, "eager")


def _body(graph: RawGraph) -> list[str]:
    """A line for each node."""
    biases = _fused_biases(graph)
    skipped = {product for product, _ in biases.values()}
    body = []
    for node in graph.nodes:
        if node.name in skipped:
            continue
        if node.name in biases:
            product, bias = biases[node.name]
            matmul = graph.node(product)
            assert matmul is not None
            text = _product(graph, matmul, bias)
        else:
            text = _expression(graph, node)
        body.append(f"{variable(node.name)} = {text}")
    return body


# --- products -------------------------------------------------------------------------------------------


def is_linear(graph: RawGraph, node: RawNode) -> bool:
    """True for `x @ w.T` with `w` an input of two axes: torch's linear layer."""
    weight = graph.input(node.inputs[1])
    layout = node.flag("transpose_b") and not node.flag("transpose_a")
    return layout and weight is not None and len(weight.shape) == 2


def product_expression(graph: RawGraph, node: RawNode) -> str:
    """A matmul by itself, in torch. Raises Inapplicable for operands that torch cannot multiply."""
    return _product(graph, node, None)


def _product(graph: RawGraph, node: RawNode, bias: str | None) -> str:
    _check_product(graph, node)
    a, b = node.inputs
    if is_linear(graph, node):
        third = f", {variable(bias)}" if bias else ""
        return f"F.linear({variable(a)}, {variable(b)}{third})"
    left = variable(a) + (".mT" if node.flag("transpose_a") else "")
    right = variable(b) + (".mT" if node.flag("transpose_b") else "")
    return f"torch.matmul({left}, {right})"


def grouped_expression(graph: RawGraph, node: RawNode) -> str:
    """A product of groups of rows, in torch. Raises Inapplicable for operands that torch cannot multiply."""
    a, b, offsets = node.inputs
    if {_dtype_of(graph, a), _dtype_of(graph, b)} != {"bf16"}:
        raise Inapplicable(f"{node.name}: torch multiplies groups of bf16")
    right = variable(b) + (".mT" if node.flag("transpose_b") else "")
    return f"torch._grouped_mm({variable(a)}, {right}, offs={variable(offsets)})"


def _check_product(graph: RawGraph, node: RawNode) -> None:
    dtypes = {_dtype_of(graph, item) for item in node.inputs}
    if dtypes & set(_F8):
        raise Inapplicable(f"{node.name}: torch multiplies f8 only by scaled_mm")
    if "i8" in dtypes:
        raise Inapplicable(f"{node.name}: torch has no public product of i8 matrices on a GPU")
    if node.attrs.get("precision") == "tf32":
        raise Inapplicable(f"{node.name}: a tf32 product is a switch of the whole process in torch")


def _dtype_of(graph: RawGraph, name: Operand) -> str | None:
    """The dtype of an input, or of a cast of anything, through movement; None for what is computed."""
    found: RawInput | RawNode | None = graph.input(name) or graph.node(name)
    if isinstance(found, RawInput):
        return found.dtype
    if found is not None and found.op == "cast":
        return str(found.attrs["dtype"])
    if found is not None and found.op in ("reshape", "transpose", "slice"):
        return _dtype_of(graph, found.inputs[0])
    return None


def _fused_biases(graph: RawGraph) -> dict[str, tuple[str, str]]:
    """Additions of a row to a product read by nothing else: name -> (product, bias)."""
    found = {}
    for node in graph.nodes:
        if node.op != "add":
            continue
        for product, bias in (node.inputs, node.inputs[::-1]):
            matmul, row = graph.node(product), graph.input(bias)
            if matmul is None or matmul.op != "matmul" or row is None or len(row.shape) != 1:
                continue
            same = row.dtype == _dtype_of(graph, matmul.inputs[0])
            if same and is_linear(graph, matmul) and graph.uses(matmul.name) == 1:
                found[node.name] = (matmul.name, row.name)
    return found


# --- everything else ------------------------------------------------------------------------------------

_CALLS = {
    **{name: f"F.{name}" for name in ("relu", "silu")},
    **{name: f"torch.{name}" for name in ("reciprocal", "tanh", "sigmoid")},
    **{"reduce_sum": "torch.sum", "reduce_mean": "torch.mean"},
    **{"reduce_max": "torch.amax", "reduce_min": "torch.amin", "logsumexp": "torch.logsumexp"},
}


def _expression(graph: RawGraph, node: RawNode) -> str:
    operands = [_operand(item) for item in node.inputs]
    if node.op == "matmul":
        return product_expression(graph, node)
    if node.op == "grouped_matmul":
        return grouped_expression(graph, node)
    if node.op in _SPECIAL:
        return _SPECIAL[node.op](graph, node, operands)
    if node.op.startswith("reduce_") or node.op == "logsumexp":
        axis, keep = int(node.attrs["axis"]), node.flag("keepdims")
        return f"{_CALLS[node.op]}({operands[0]}, dim={axis}, keepdim={keep})"
    if node.op in _CALLS:
        return f"{_CALLS[node.op]}({operands[0]})"
    if node.op in PRIMITIVES:
        return PRIMITIVES[node.op].in_torch(*operands)
    raise Inapplicable(f"{node.name}: no torch code is written for {node.op}")


def _operand(item: Operand) -> str:
    if isinstance(item, str):
        return variable(item)
    if isinstance(item, float) and not math.isfinite(item):
        return f'float("{item}")'
    # Parentheses, for a negative base of a power.
    return repr(item) if item >= 0 else f"({item!r})"


def _extreme(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    scalars = [text for item, text in zip(node.inputs, operands, strict=True) if not isinstance(item, str)]
    if len(scalars) == 1:
        tensor = next(text for text in operands if text is not scalars[0])
        return f"torch.clamp({tensor}, {'min' if node.op == 'maximum' else 'max'}={scalars[0]})"
    return f"torch.{node.op}({operands[0]}, {operands[1]})"


def _iota(graph: RawGraph, node: RawNode, _operands: Sequence[str]) -> str:
    shape = [int(extent) for extent in node.attrs["shape"]]
    axis = int(node.attrs["axis"]) % len(shape)
    column = [1] * (len(shape) - axis - 1)
    device = f"{variable(graph.inputs[0].name)}.device"
    return f"torch.arange({shape[axis]}, device={device}).reshape({[-1, *column]}).expand({shape})"


def _gelu(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    approximate = "tanh" if node.attrs.get("approximate") == "tanh" else "none"
    return f'F.gelu({operands[0]}, approximate="{approximate}")'


def _cast(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    if node.attrs["dtype"] not in TORCH_NAMES:
        raise Inapplicable(f"{node.name}: torch has no dtype {node.attrs['dtype']}")
    return f"{operands[0]}.to({TORCH_NAMES[node.attrs['dtype']]})"


def _pad(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    axes = [*zip(node.attrs["low"], node.attrs["high"], strict=True)]
    return f"F.pad({operands[0]}, {[int(n) for axis in reversed(axes) for n in axis]})"


def _slice(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    steps = ["step"] if node.attrs.get("step", 1) != 1 else []
    part = [node.attrs.get(key) for key in ("start", "stop", *steps)]
    places = ":".join("" if place is None else str(int(place)) for place in part)
    return _indexed(operands[0], int(node.attrs.get("axis", -1)), places)


def _gather(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    return _indexed(operands[0], int(node.attrs.get("axis", 0)), f"{operands[1]}.long()")


def _indexed(tensor: str, axis: int, places: str) -> str:
    """The text of places of a tensor along an axis, which counts from the end where it is negative."""
    before = ":, " * axis if axis >= 0 else "..., "
    behind = ", :" * (-axis - 1) if axis < 0 else ""
    return f"{tensor}[{before}{places}{behind}]"


def _argmax(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    axis, keep = int(node.attrs["axis"]), node.flag("keepdims")
    return f"torch.argmax({operands[0]}, dim={axis}, keepdim={keep}).to(torch.int32)"


def _cumsum(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    return f"torch.cumsum({operands[0]}, dim={int(node.attrs['axis'])}, dtype=torch.float32)"


def _scatter_add(_graph: RawGraph, _node: RawNode, operands: Sequence[str]) -> str:
    x, indices, rows = operands
    return f"{x}.float().index_add(0, {indices}.long(), {rows}.float())"


def _norm(graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    eps = float(node.attrs.get("eps", 1e-6 if node.op == "rms_norm" else 1e-5))
    x, *weights = operands
    # torch's norms take weights in the type of what they norm.
    known = _dtype_of(graph, node.inputs[0])
    weights = [
        text if _dtype_of(graph, weight) == known else f"{text}.to({x}.dtype)"
        for text, weight in zip(weights, node.inputs[1:], strict=True)
    ]
    return f"F.{node.op}({x}, {x}.shape[-1:], {', '.join(weights)}, eps={eps!r})"


def _dequantize(graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    if _dtype_of(graph, node.inputs[0]) == "i4":
        raise Inapplicable(f"{node.name}: torch has no packed i4")
    unit = [int(n) for n in node.attrs.get("block") or [node.attrs["group"]]]
    spread = ".".join(
        f"repeat_interleave({times}, dim={axis - len(unit)})" for axis, times in enumerate(unit)
    )
    q, scale, *zero = operands
    if _dtype_of(graph, node.inputs[0]) in _F8:
        q = f"{q}.float()"
    if zero:
        q = f"({q} - {zero[0]}.{spread})" if isinstance(node.inputs[2], str) else f"({q} - {zero[0]})"
    return f"{q} * {scale}.{spread}"


_LARGEST = {"f8e4m3": 448.0, "i8": 127.0}


def _grouped(node: RawNode, x: str) -> str:
    """A tensor with its last axis cut into groups that share a scale."""
    if node.attrs.get("block"):
        raise Inapplicable(f"{node.name}: scales of blocks are not written in torch")
    return f"{x}.float().unflatten(-1, (-1, {int(node.attrs['group'])}))"


def _quantize_scale(_graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    scale = f"{_grouped(node, operands[0])}.abs().amax(dim=-1) / {_LARGEST[node.attrs['dtype']]}"
    return f"(lambda scale: torch.where(scale == 0, 1.0, scale))({scale})"


def _quantize(graph: RawGraph, node: RawNode, operands: Sequence[str]) -> str:
    scale = f"{_quantize_scale(graph, node, operands)}.unsqueeze(-1)"
    rounded = ".round()" if node.attrs["dtype"] == "i8" else ""
    quotient = f"({_grouped(node, operands[0])} / {scale}).flatten(-2)"
    return f"{quotient}{rounded}.to({TORCH_NAMES[node.attrs['dtype']]})"


_SPECIAL: dict[str, Callable[[RawGraph, RawNode, Sequence[str]], str]] = {
    "maximum": _extreme,
    "minimum": _extreme,
    "iota": _iota,
    "gelu": _gelu,
    "cast": _cast,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "dequantize": _dequantize,
    "quantize": _quantize,
    "quantize_scale": _quantize_scale,
    "gather": _gather,
    "reduce_argmax": _argmax,
    "cumsum": _cumsum,
    "scatter_add": _scatter_add,
    "pad": _pad,
    "slice": _slice,
    "concat": lambda _g, node, operands: (
        f"torch.cat([{', '.join(operands)}], dim={int(node.attrs.get('axis', -1))})"
    ),
    "pow": lambda _graph, _node, operands: f"{operands[0]} ** {operands[1]}",
    "softmax": lambda _g, node, operands: f"torch.softmax({operands[0]}, {int(node.attrs.get('axis', -1))})",
    "reshape": lambda _g, node, operands: f"{operands[0]}.reshape({[int(n) for n in node.attrs['shape']]})",
    "transpose": lambda _g, node, operands: f"{operands[0]}.permute({[int(n) for n in node.attrs['perm']]})",
}
