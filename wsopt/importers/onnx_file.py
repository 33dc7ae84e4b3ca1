"""An ONNX file as one flat graph with fixed extents, whose tensors have known types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, inliner, numpy_helper, shape_inference

from wsopt.errors import InputError, Problem
from wsopt.importers.model import check_extents

Array = npt.NDArray[Any]
DOMAINS = ("", "ai.onnx")
"""How files name the domain of ONNX's own operations."""


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """A model of which functions are written out and extents are fixed; its path, the version of its operations,
    where each node stood in the file, and the element type of each tensor, as ONNX numbers types.
    """

    path: Path
    model: onnx.ModelProto
    opset: int
    kinds: Mapping[str, int]

    @property
    def graph(self) -> onnx.GraphProto:
        """The graph of nodes."""
        return self.model.graph

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The contents of a tensor of the file. Raises InputError where a file beside it is missing or too short."""
        try:
            if external_data_helper.uses_external_data(tensor):
                loaded = onnx.TensorProto()
                loaded.CopyFrom(tensor)
                external_data_helper.load_external_data_for_tensor(loaded, str(self.path.parent))
                tensor = loaded
            found: Array = numpy_helper.to_array(tensor)
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            told = f"the contents of {tensor.name} cannot be read: {error}"
            raise InputError(str(self.path), [Problem("", told)]) from error
        return found


def read_onnx(path: Path, extents: Mapping[str, int], known: frozenset[str]) -> OnnxFile:
    """The model of a file. Operations that are not `known`, and that ONNX defines by others, are written out.

    Raises InputError for a file that is none, and for extents that are open.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be read: {error.strerror}")]) from error
    except (DecodeError, ValueError) as error:
        raise InputError(str(path), [Problem("", f"is no ONNX file: {error}")]) from error
    if not model.graph.node or not model.opset_import:
        raise InputError(str(path), [Problem("", "is no ONNX file, or one without operations")])
    _fix(model, str(path), extents)
    opset = next((one.version for one in model.opset_import if one.domain in DOMAINS), 0)
    try:
        model = _flat(model, opset, known)
        model = shape_inference.infer_shapes(model, data_prop=True)
    except (RuntimeError, ValueError, onnx.checker.ValidationError, shape_inference.InferenceError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(
            str(path), [Problem("", f"is no ONNX model that holds together: {first}")]
        ) from error
    return OnnxFile(path, model, opset, _kinds(model.graph))


def _fix(model: onnx.ModelProto, source: str, extents: Mapping[str, int]) -> None:
    """Put numbers in the place of open extents, and leave the others to be inferred from them."""
    brought = {one.name for one in model.graph.initializer}
    wanted = []
    for place, one in enumerate(model.graph.input):
        if one.name in brought:
            continue
        for axis, dim in enumerate(one.type.tensor_type.shape.dim):
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value > 0:
                continue
            name = dim.dim_param or f"{one.name}.{axis}"
            wanted.append((name, f"/graph/input/{place} ({one.name}, axis {axis})"))
            dim.dim_value = extents.get(name, 1)
    check_extents(source, wanted, extents)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    if wanted:
        del model.graph.value_info[:]


def _flat(model: onnx.ModelProto, opset: int, known: frozenset[str]) -> onnx.ModelProto:
    """The model without calls of its own functions, and of those that ONNX defines and the table lacks."""
    if model.functions:
        model = inliner.inline_local_functions(model)
    # A definition may use operations that are defined by others themselves.
    while others := _defined_by_others(model.graph, opset, known):
        names = [(domain, name) for name in others for domain in DOMAINS]
        model = inliner.inline_selected_functions(model, names, inline_schema_functions=True)
        if others == _defined_by_others(model.graph, opset, known):
            break
    return model


def _defined_by_others(graph: onnx.GraphProto, opset: int, known: frozenset[str]) -> list[str]:
    """Operations of a graph that are not known, and that ONNX defines by others."""
    names = {node.op_type for node in graph.node if node.domain in DOMAINS}
    return sorted(name for name in names - known if _is_function(name, opset))


_CONTROL = {"If", "Loop", "Scan"}


def _is_function(op: str, opset: int) -> bool:
    """Whether ONNX defines an operation by others, without loops and branches, which graphs of ours lack."""
    if not onnx.defs.has(op, opset, ""):
        return False
    schema = onnx.defs.get_schema(op, opset, "")
    if schema.has_function:
        return _CONTROL.isdisjoint(node.op_type for node in schema.function_body.node)
    return bool(schema.has_context_dependent_function)


def _kinds(graph: onnx.GraphProto) -> dict[str, int]:
    declared = (*graph.input, *graph.value_info, *graph.output)
    kinds = {one.name: one.type.tensor_type.elem_type for one in declared}
    return kinds | {one.name: one.data_type for one in graph.initializer}
