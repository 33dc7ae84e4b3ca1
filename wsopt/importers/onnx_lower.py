"""From an ONNX graph to nodes of ours: what depends on no input is computed, the table says the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from wsopt.errors import InternalError
from wsopt.graph.types import DType
from wsopt.importers.bands import is_mask, said
from wsopt.importers.model import Array, Unsaid
from wsopt.importers.onnx_file import DOMAINS, OnnxFile
from wsopt.importers.onnx_operations import TABLE
from wsopt.importers.onnx_table import Call, Result
from wsopt.importers.onnx_types import INT64, dtype_of
from wsopt.torch.values import Shape, Untaken, Value
from wsopt.torch.writer import Writer

_MOST_BYTES = 1 << 27
"""A tensor of more bytes is not computed while a model is read, nor searched for a mask."""
_KNOWN_KINDS = (6, INT64, 9)
"""Integers and truth values: what a model brings of them are shapes, positions and masks, not weights."""
_FLOAT_KINDS = (1, 10, 16)
_BY_CHANCE = (
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
)
_CONTROL = ("If", "Loop", "Scan", "RNN", "GRU", "LSTM")


@dataclass(slots=True)
class Lowered:
    """What our graphs say of an ONNX graph: values by tensor, contents of those that depend on no input, and the
    operations that could not be said. `weights` has the tensors that the file brings, `made` the contents of
    constant inputs that are none of these.
    """

    file: OnnxFile
    writer: Writer = field(default_factory=Writer)
    values: dict[str, Value] = field(default_factory=dict)
    contents: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, onnx.TensorProto] = field(default_factory=dict)
    made: dict[str, Array] = field(default_factory=dict)
    unsaid: list[Unsaid] = field(default_factory=list)
    _judged: dict[str, bool] = field(default_factory=dict)

    def constant(self, name: str) -> Array | None:
        """The contents of a tensor, where they are known."""
        return self.contents.get(name)

    def is_said(self, name: str) -> bool:
        """Whether nothing that a tensor depends on was refused."""
        return self._judged.get(name, True)

    def value(self, name: str) -> Value:
        """A tensor as a value. Raises Untaken where no graph has it."""
        if name not in self.values:
            self.values[name] = self._brought(name)
        return self.values[name]

    def _brought(self, name: str) -> Value:
        """A tensor that depends on no input: said by indices, or a constant input."""
        found = self.contents.get(name)
        weight = self.weights.get(name)
        if found is None and weight is not None and _may_be_mask(weight):
            array = self.file.array(weight)
            found = array if is_mask(array) else None
        if found is not None:
            try:
                return _rounded(self.writer, said(self.writer, found), found)
            except Untaken:
                pass
        if weight is not None:
            return self.writer.input(name, _shape(tuple(weight.dims)), dtype_of(weight.data_type))
        if found is None:
            raise InternalError(f"{name} was not computed before it was read")
        dtype = dtype_of(helper.np_dtype_to_tensor_dtype(found.dtype))
        self.made[name] = as_type(found, dtype, name)
        return self.writer.input(name, _shape(found.shape), dtype)


def lower(file: OnnxFile) -> Lowered:
    """Say an ONNX graph. What could not be said is in `unsaid`, all of it."""
    found = Lowered(file, weights={one.name: one for one in file.graph.initializer})
    for name, weight in found.weights.items():
        if weight.data_type in _KNOWN_KINDS or not weight.dims:
            found.contents[name] = file.array(weight)
    for place, given in enumerate(file.graph.input):
        if given.name not in found.weights:
            _enter(found, place, given)
    live = _live(file.graph)
    for place, node in enumerate(file.graph.node):
        if place in live:
            _node(found, place, node)
    return found


def _enter(found: Lowered, place: int, given: onnx.ValueInfoProto) -> None:
    """Make an input of the model one of the graph."""
    tensor = given.type.tensor_type
    try:
        shape = _shape(tuple(dim.dim_value for dim in tensor.shape.dim))
        found.values[given.name] = found.writer.input(given.name, shape, dtype_of(tensor.elem_type))
    except Untaken as reason:
        found.unsaid.append(Unsaid(f"/graph/input/{place}", given.name, "input", str(reason)))
        found._judged[given.name] = False


def _live(graph: onnx.GraphProto) -> set[int]:
    """The places of nodes that an output depends on."""
    wanted, live = {one.name for one in graph.output}, set()
    for place in range(len(graph.node) - 1, -1, -1):
        node = graph.node[place]
        if wanted & set(node.output):
            live.add(place)
            wanted.update(node.input)
    return live


def _node(found: Lowered, place: int, node: onnx.NodeProto) -> None:
    """Compute a node or say it. One that reads what could not be said is not judged."""
    if not all(map(found.is_said, node.input)):
        found._judged |= dict.fromkeys(node.output, False)
        return
    pointer, name = f"/graph/node/{place}", node.name or node.output[0]
    before = set(found.writer.nodes)
    try:
        if not _computed(found, node):
            _say(found, node)
    except Untaken as reason:
        w = found.writer
        lost = set(w.nodes) - before
        for one in lost:
            del w.nodes[one], w.groups[one], w.types[one]
        found.values = {key: value for key, value in found.values.items() if value.tensor not in lost}
        found.unsaid.append(Unsaid(pointer, name, node.op_type, str(reason)))
        found._judged |= dict.fromkeys(node.output, False)


# --- what depends on no input ---------------------------------------------------------------------------


def _computed(found: Lowered, node: onnx.NodeProto) -> bool:
    """Compute a node whose operands are known, as ONNX's own reference does. Whether that was done: not where they
    are unknown, for nodes of chance or with graphs inside, nor for results too large to keep. Raises Untaken.
    """
    if node.op_type in ("Shape", "Size") and node.domain in DOMAINS and node.input[0] not in found.contents:
        shape = found.value(node.input[0]).shape
        attrs = _attributes(node)
        part = shape[attrs.get("start", 0) : attrs.get("end", None)]
        whole = np.array(part if node.op_type == "Shape" else np.prod(shape, dtype=np.int64), dtype=np.int64)
        found.contents[node.output[0]] = whole
        return True
    given = [name for name in node.input if name]
    known = all(name in found.contents for name in given) and node.op_type not in _BY_CHANCE
    if not known or not all(found.file.kinds.get(name) for name in node.output if name):
        return False
    if any(one.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for one in node.attribute):
        return False
    results = _evaluated(found, node, given)
    if results is None or sum(one.nbytes for one in results) > _MOST_BYTES:
        return False
    found.contents |= {name: array for name, array in zip(node.output, results, strict=False) if name}
    return True


class GatherElements(OpRun):  # type: ignore[misc]  # ONNX says no types for it
    """The operation of this name: ONNX's reference fails where an axis is long, or several are picked of a row."""

    op_domain = ""

    def _run(self, data: Array, indices: Array, axis: int | None = None) -> tuple[Array]:
        return (np.take_along_axis(data, indices.astype(np.int64), axis or 0),)


def _evaluated(found: Lowered, node: onnx.NodeProto, given: list[str]) -> list[Array] | None:
    """The results of a node by ONNX's reference; None where that has no operation of this version. Raises Untaken
    where it does not know it.
    """
    kinds = found.file.kinds
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(found.contents[name].dtype), None)
        for name in dict.fromkeys(given)
    ]
    outputs = [helper.make_tensor_value_info(name, kinds[name], None) for name in node.output if name]
    model = helper.make_model(
        helper.make_graph([node], "node", inputs, outputs), opset_imports=found.file.model.opset_import
    )
    try:
        evaluator = ReferenceEvaluator(model, new_ops=[GatherElements])
    except RuntimeError:  # by which it says that it begins with a later version
        return None
    try:
        results = evaluator.run(None, {name: found.contents[name] for name in given})
    except NotImplementedError as reason:  # by which ONNX's reference says so
        raise Untaken(f"ONNX's reference does not compute it: {reason}") from reason
    return [np.asarray(one) for one in results]


# --- what the table says --------------------------------------------------------------------------------


def _say(found: Lowered, node: onnx.NodeProto) -> None:
    """Write the nodes of an ONNX node, with the casts to the types that ONNX says. Raises Untaken."""
    write = TABLE.get(node.op_type) if node.domain in DOMAINS else None
    if write is None:
        domain = "" if node.domain in DOMAINS else f" of {node.domain}"
        why = ": it is a loop or a branch, and a graph has neither" if node.op_type in _CONTROL else ""
        raise Untaken(f"no entry for {node.op_type}{domain}{why}")
    w = found.writer
    w.group = f"@{node.output[0]}"
    call = Call(
        w, found, node.op_type, found.file.opset, _attributes(node), tuple(node.input), len(node.output)
    )
    result: Result = write(call)
    results = result if isinstance(result, tuple) else (result,)
    wanted = [name for name in node.output if name]
    if len(results) < len(wanted):
        raise Untaken(f"its result {wanted[len(results)]} is not said")
    for name, value in zip(node.output, results, strict=False):
        if name:
            found.values[name] = _typed(found, name, value)


def _typed(found: Lowered, name: str, value: Value) -> Value:
    """A result in the element type that ONNX says."""
    kind = found.file.kinds.get(name, 0)
    if not kind or not isinstance(value.tensor, str):
        return value
    w, wanted = found.writer, dtype_of(kind)
    if w.dtype(value) is wanted:
        return value
    if w.dtype(value) is DType.BOOL or not wanted.is_float:
        raise Untaken(f"a result of {wanted.value} from {w.dtype(value).value}")
    return w.cast(value, wanted)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes by name, texts as text."""
    found = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return {name: one.decode() if isinstance(one, bytes) else one for name, one in found.items()}


def _shape(shape: Shape) -> Shape:
    if 0 in shape:
        raise Untaken(f"shape {list(shape)}: no elements")
    return shape


def _may_be_mask(tensor: onnx.TensorProto) -> bool:
    """Whether it is worth to look into a weight."""
    size = int(np.prod(tensor.dims, dtype=np.int64)) * np.dtype(np.float32).itemsize
    return tensor.data_type in _FLOAT_KINDS and len(tensor.dims) > 1 and size <= _MOST_BYTES


def _rounded(w: Writer, value: Value, found: Array) -> Value:
    """What was said of an array, in the array's type."""
    if not isinstance(value.tensor, str):
        return value
    return w.cast(value, dtype_of(helper.np_dtype_to_tensor_dtype(found.dtype)))


def as_type(found: Array, dtype: DType, name: str) -> Array:
    """Contents in the type that their input has. Raises Untaken for integers that i32 does not hold."""
    if found.dtype.kind in "iu" and dtype is DType.I32 and found.size:
        least, most = int(found.min()), int(found.max())
        if least < -(2**31) or most >= 2**31:
            raise Untaken(f"{name} has integers from {least} to {most}, which i32 does not hold")
    return found.astype(dtype.numpy)


def contents_of(found: Lowered, constants: Mapping[str, str]) -> dict[str, Any]:
    """The arrays of constant inputs by the graph's names for them."""
    arrays = {}
    for tensor, name in constants.items():
        if tensor in found.made:
            arrays[name] = found.made[tensor]
        elif tensor in found.weights:
            weight = found.weights[tensor]
            arrays[name] = as_type(found.file.array(weight), dtype_of(weight.data_type), tensor)
    return arrays
