"""Inputs and nodes on their way in: read field by field, then named, ordered and typed.

A faulty node becomes a draft with holes. Whatever rests on a hole is not judged, so that one fault gives
one message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wsopt.graph.elsewhere import SAID
from wsopt.graph.faults import MAX_CANDIDATES, Faults, hint, join, quote
from wsopt.graph.fields import (
    SCALAR_WORDS,
    read_attr,
    read_dtype,
    read_flag,
    read_list,
    read_name,
    read_object,
    read_operand,
    read_shape,
    read_strides,
)
from wsopt.graph.infer import MAX_ELEMENTS, OpFault, tensor_fault
from wsopt.graph.op_spec import AttrSpec, OpSpec
from wsopt.graph.ops import OPS
from wsopt.graph.types import AttrValue, DType, Input, Node, Operand, TensorType, row_major_strides

INPUT_KEYS = (("name", "shape", "dtype"), ("constant", "strides"))
NODE_KEYS = (("name", "op"), ("inputs", "attrs"))

_MISSPELT = 0.8
"""Likeness of a misspelt op and the op: that of "gather" and "greater" is 0.77."""

_SCALAR = {int: TensorType((), DType.I32), float: TensorType((), DType.F32)}


@dataclass(frozen=True, slots=True)
class InputDraft:
    """An input as read. `label` is what the file calls it, right or wrong; `input` is None if faulty."""

    pointer: str
    label: str | None
    input: Input | None


@dataclass(frozen=True, slots=True)
class NodeDraft:
    """A node as read. None marks a hole: an unreadable name, op, operand, or set of attributes."""

    pointer: str
    label: str | None
    name: str | None
    spec: OpSpec | None
    operands: tuple[Operand | None, ...]
    attrs: dict[str, AttrValue] | None
    has_attrs: bool
    arity_ok: bool

    def place(self, below: str) -> str:
        """The pointer of a part of the node; missing `attrs` are missing from the node itself."""
        if not below or (below == "attrs" and not self.has_attrs):
            return self.pointer
        return f"{self.pointer}/{below}"


def _label(entry: dict[str, Any]) -> str | None:
    name = entry.get("name")
    return name if isinstance(name, str) else None


# --- inputs ---------------------------------------------------------------------------------------------


def read_input(value: object, pointer: str, faults: Faults) -> InputDraft:
    """One entry of `inputs`."""
    before = len(faults)
    entry = read_object(value, pointer, *INPUT_KEYS, faults)
    if entry is None:
        return InputDraft(pointer, None, None)
    name = read_name(entry["name"], join(pointer, "name"), faults) if "name" in entry else None
    shape = read_shape(entry["shape"], join(pointer, "shape"), faults) if "shape" in entry else None
    dtype = read_dtype(entry["dtype"], join(pointer, "dtype"), faults) if "dtype" in entry else None
    constant = read_flag(entry.get("constant", False), join(pointer, "constant"), faults)
    strides = None
    if "strides" in entry:
        strides = read_strides(entry["strides"], join(pointer, "strides"), faults)
    if shape is not None and dtype is not None:
        tensor = TensorType(shape, dtype)
        if fault := tensor_fault(tensor):
            faults.add(join(pointer, "shape"), fault)
        if strides is not None and (fault := _strides_fault(strides, tensor)):
            faults.add(join(pointer, "strides"), fault)
        if name is not None and len(faults) == before:
            plain = None if strides == row_major_strides(shape) else strides
            return InputDraft(pointer, name, Input(name, tensor, constant, plain))
    return InputDraft(pointer, _label(entry), None)


def _strides_fault(strides: tuple[int, ...], tensor: TensorType) -> str | None:
    shape = tensor.shape
    if len(strides) != len(shape):
        return f"{len(strides)} strides for shape {list(shape)}; wants {len(shape)}"
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    if span > MAX_ELEMENTS:
        return f"shape {list(shape)} spans {span} elements with these strides; at most 2**48 are allowed"
    if tensor.dtype is DType.I4 and (strides[-1] != 1 or any(stride % 2 for stride in strides[:-1])):
        return "i4 is packed two to a byte: the last stride has to be 1 and the others even"
    return None


# --- nodes ----------------------------------------------------------------------------------------------


def read_node(value: object, pointer: str, faults: Faults) -> NodeDraft:
    """One entry of `nodes`."""
    entry = read_object(value, pointer, *NODE_KEYS, faults)
    if entry is None:
        return NodeDraft(pointer, None, None, None, (), None, False, False)
    name = read_name(entry["name"], join(pointer, "name"), faults) if "name" in entry else None
    spec = _read_op(entry["op"], join(pointer, "op"), faults) if "op" in entry else None
    raw = read_list(entry.get("inputs", []), join(pointer, "inputs"), "names and scalars", faults)
    operands = _read_operands(raw or [], join(pointer, "inputs"), spec, faults)
    arity_ok = raw is not None and spec is not None
    if spec is not None and raw is not None and not spec.arity[0] <= len(raw) <= spec.arity[1]:
        at = join(pointer, "inputs") if "inputs" in entry else pointer
        faults.add(at, f"found {len(raw)} inputs; {spec.name} wants {_wanted_operands(spec)}")
        arity_ok = False
    attrs = _read_attrs(entry, pointer, spec, faults) if spec is not None else None
    return NodeDraft(pointer, _label(entry), name, spec, operands, attrs, "attrs" in entry, arity_ok)


def _read_op(value: object, pointer: str, faults: Faults) -> OpSpec | None:
    if not isinstance(value, str):
        faults.wants(pointer, "the name of an op (a string)", value)
    elif value not in OPS:
        faults.add(pointer, _unknown_op(value))
    else:
        return OPS[value]
    return None


def _unknown_op(name: str) -> str:
    """Message for an op that the format does not have: another library's, or a misspelling."""
    if name in SAID:
        return f"unknown op {quote(name)}; here that is {SAID[name]}"
    return f"unknown op {quote(name)}{hint(name, OPS, _MISSPELT) or '; `wsopt ops` lists all'}"


def _wanted_operands(spec: OpSpec) -> str:
    least, most = spec.arity
    if not most:
        return "none"
    count = str(most) if least == most else f"{least} to {most}"
    return f"{count}: {', '.join(spec.operands)}"


def _read_operands(
    raw: list[Any], pointer: str, spec: OpSpec | None, faults: Faults
) -> tuple[Operand | None, ...]:
    operands = []
    for index, value in enumerate(raw):
        operand = read_operand(value, join(pointer, index), faults)
        if operand is not None and not isinstance(operand, str) and spec and index < len(spec.operands):
            role = spec.operands[index]
            if role not in spec.scalars:
                told = f"a tensor's name for {role}: {spec.name} takes no scalar there"
                faults.wants(join(pointer, index), told, value)
                operand = None
        operands.append(operand)
    return tuple(operands)


def _read_attrs(
    entry: dict[str, Any], pointer: str, spec: OpSpec, faults: Faults
) -> dict[str, AttrValue] | None:
    before = len(faults)
    at = join(pointer, "attrs")
    required = [attr.name for attr in spec.attrs if attr.required]
    optional = [attr.name for attr in spec.attrs if not attr.required]
    # Attributes that are missing altogether are missing from the node.
    given = read_object(
        entry.get("attrs", {}), at if "attrs" in entry else pointer, required, optional, faults, "attr"
    )
    attrs = {attr.name: _attr_value(attr, given or {}, at, faults) for attr in spec.attrs}
    return attrs if len(faults) == before else None


def _attr_value(spec: AttrSpec, given: dict[str, Any], pointer: str, faults: Faults) -> AttrValue:
    if spec.name not in given:
        return spec.default
    return read_attr(spec, given[spec.name], join(pointer, spec.name), faults)


# --- names and types ------------------------------------------------------------------------------------


def check_references(draft: NodeDraft, known: Mapping[str, str], faults: Faults) -> bool:
    """Every name that the node reads is one of `known`; False, with faults noted, if not."""
    before = len(faults)
    for index, operand in enumerate(draft.operands):
        if isinstance(operand, str) and operand not in known:
            faults.add(draft.place(f"inputs/{index}"), _unknown_name(operand, known))
    return len(faults) == before


def _unknown_name(name: str, known: Mapping[str, str]) -> str:
    """Message for a name that no tensor has."""
    try:
        float(name)
    except ValueError:
        names = [*known, *SCALAR_WORDS] if len(known) < MAX_CANDIDATES else []
        return f"unknown tensor {quote(name)}{hint(name, names)}"
    return f'unknown tensor {quote(name)}; a number stands without quotes, an infinite one is "inf"'


def type_node(draft: NodeDraft, types: Mapping[str, TensorType], faults: Faults) -> Node | None:
    """The node with its result's type, or None if it is faulty or rests on something faulty."""
    operands = [operand for operand in draft.operands if operand is not None]
    if draft.spec is None or draft.attrs is None or not draft.arity_ok or len(operands) < len(draft.operands):
        return None
    if any(isinstance(operand, str) and operand not in types for operand in operands):
        return None
    found = tuple(types[item] if isinstance(item, str) else _SCALAR[type(item)] for item in operands)
    try:
        result, attrs = draft.spec.infer(found, draft.attrs)
    except OpFault as fault:
        for place, message in fault.faults:
            faults.add(draft.place(place), message)
        return None
    if draft.name is None:
        return None
    return Node(draft.name, draft.spec.name, tuple(operands), tuple(sorted(attrs.items())), result)
