"""From an FX graph of ATen operations to nodes of our graphs; what has no entry stays in FX, with a reason."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from wsopt.errors import InternalError
from wsopt.frontend.kinds import VIEWS
from wsopt.graph.types import DType, row_major_strides
from wsopt.torch.copies import Copies
from wsopt.torch.dtypes import DTYPES, dtype_of
from wsopt.torch.folding import SMALL, Folded
from wsopt.torch.integers import Integers
from wsopt.torch.nested import CALLING
from wsopt.torch.operations import TABLE
from wsopt.torch.repeats import written_out
from wsopt.torch.say_products import OPERANDS
from wsopt.torch.symbols import Symbols, symbols_of
from wsopt.torch.table import Entry
from wsopt.torch.values import Untaken, Value
from wsopt.torch.writer import Writer, number

Result = Value | tuple[Value, ...]
MADE = "wsopt_made"
"""The entry in the `meta` of an FX node that was put into a graph here: nobody asks why it stays."""


@dataclass(slots=True)
class Lowered:
    """What our graphs say of an FX graph.

    `values` has the value of each FX node that is said, `owners` the FX node whose value a tensor holds (a tensor
    without one cannot leave its group), `copied` the tensors that FX copies to lie densely, `refused` why an FX node
    is not said. `constants` are FX inputs whose
    contents are fixed before a call, `symbols` its extents that change, `functions` the graphs that it hands to
    operations. Where it `narrows`, integers of 64 bits come from outside as i32.
    """

    graph: fx.Graph
    constants: frozenset[str] = frozenset()
    writer: Writer = field(default_factory=Writer)
    values: dict[str, Result] = field(default_factory=dict)
    owners: dict[str, fx.Node] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    folded: Folded = field(default_factory=Folded)
    symbols: Symbols = field(default_factory=Symbols)
    narrows: bool = False
    functions: dict[str, fx.GraphModule] = field(default_factory=dict)
    _computed: frozenset[str] = frozenset()

    def owned(self, node: fx.Node) -> bool:
        """Whether nodes of ours compute an FX node: neither what stays in FX nor a view."""
        return node.name in self.computed

    @property
    def computed(self) -> frozenset[str]:
        """The FX nodes that nodes of ours are written for."""
        return self._computed or frozenset(self.writer.groups.values())

    def through(self, node: fx.Node) -> bool:
        """Whether an FX node is another one's value, seen in another way, or a number."""
        return node.name in self.values and not self.owned(node) and node.name not in self.writer.types


def lower(
    module: fx.GraphModule,
    constants: Collection[str] = (),
    *,
    copies: Copies | None = None,
    device: str | None = None,
    ranges: bool = False,
    contents: Mapping[str, torch.Tensor] = MappingProxyType({}),
    narrows: bool = False,
    more: Mapping[Any, Entry] = MappingProxyType({}),
    precision: str = "ieee",
) -> Lowered:
    """Say as much of an FX graph as the table can. `constants` are names of placeholders that nothing writes to.

    What is not on the kind of `device` stays in FX, if one is given; so do those `copies` that repeat elements that
    are to stay, none if nothing is said of them, and what has extents that change, but for `ranges`. `contents` are
    those of placeholders that are known, from which integers and truth values are computed; if it `narrows`, other
    integers of 64 bits are read as i32.
    `more` are entries beside those of the table. Products of f32 have a `precision`; without one they stay in FX.
    """
    symbols, table = symbols_of(module.graph) if ranges else Symbols(), {**TABLE, **more}
    integers = Integers(limits=symbols.limits)
    writer = Writer(copies=copies or Copies(), integers=integers, precision=precision)
    found = Lowered(module.graph, frozenset(constants), writer, symbols=symbols, narrows=narrows)
    found.folded.symbols = symbols
    for node in module.graph.nodes:
        if node.op == "placeholder" and node.name in contents:
            found.folded.known[node] = contents[node.name]
        if node.op == "get_attr":
            _constant(found, module, node)
        elif node.op == "call_function" and not isinstance(node.meta.get("val"), torch.SymInt):
            _say_or_refuse(found, node, table.get(node.target), device)
    found._computed = found.computed
    return found


def _say_or_refuse(found: Lowered, node: fx.Node, entry: Entry | None, device: str | None) -> None:
    """Say a call by its entry, or note why it stays in FX; nothing is noted of a node that this backend made."""
    try:
        _check_device(node, device)
        _say(found, node, entry)
    except Untaken as reason:
        if MADE not in node.meta:
            found.refused[node.name] = str(reason)


def _constant(found: Lowered, module: fx.GraphModule, node: fx.Node) -> None:
    """A tensor of no dimensions that the graph holds is a number; a graph that it holds a function."""
    held = getattr(module, str(node.target), None)
    if isinstance(held, fx.GraphModule):
        found.functions[node.name] = held
    if isinstance(held, FakeTensor) or not isinstance(held, torch.Tensor):
        return
    if held.ndim == 0 and held.device.type == "cpu":
        with unset_fake_temporarily():  # which reads no tensor with contents
            found.values[node.name] = number(held.item())


def _say(found: Lowered, node: fx.Node, write: Entry | None) -> None:
    """Write the nodes of an FX node by its entry, all or none. Raises Untaken."""
    if node.target is operator.getitem:
        _say_item(found, node)
        return
    w = found.writer
    before = set(w.nodes)
    w.group, w.shape = node.name, _shape_of(found, node)
    # Whoever narrows says that int64 from outside is i32, and so is what is computed of it.
    w.integers.wide = _type_of(node) is torch.int64 and not found.narrows
    folded = found.folded.value(w, node)
    if folded is not None:
        # Small integers are indices here, and have no type in which they could leave a piece.
        stays = isinstance(folded.tensor, str) and _type_of(node) in SMALL
        found.values[node.name] = folded if stays else _finished(found, node, folded)
        return
    if write is None:
        why = "its graphs are cut by themselves" if node.target in CALLING else ""
        raise Untaken(f"{node.target}: {why}" if why else f"no entry for {node.target}")
    try:
        dense = {node.args[place] for place in OPERANDS.get(node.target, ())}
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs), lambda one: _operand(found, one, node, dense=one in dense)
        )
        _check_form(write, w, args, kwargs)
        result = write(w, *args, **kwargs)
        result = result if isinstance(result, tuple) else _finished(found, node, result)
    except Untaken as reason:
        w.forget(set(w.nodes) - before)
        raise Untaken(f"{node.target}: {reason}") from reason
    found.values[node.name] = result


def _check_form(write: Entry, w: Writer, args: Any, kwargs: Any) -> None:
    """Raise Untaken for an argument that an entry does not know: a form of the operation that it does not say."""
    try:
        _signature(write).bind(w, *args, **kwargs)
    except TypeError as reason:
        raise Untaken(str(reason)) from reason


_signature = cache(inspect.signature)
"""How an entry is called; found once."""


def _say_item(found: Lowered, node: fx.Node) -> None:
    """One of several results; what is written for it belongs to what computes it."""
    source, place = node.args
    results = found.values.get(getattr(source, "name", ""))
    if not isinstance(results, tuple):
        raise Untaken(f"a result of {getattr(source, 'target', source)}, which is not taken")
    if not isinstance(place, int) or place >= len(results):
        whose = f"result {place} of {getattr(source, 'target', source)}"
        raise Untaken(f"{whose} is none that our graphs say; it is {_use_of(node)}")
    found.writer.group = str(getattr(source, "name", ""))
    found.values[node.name] = _finished(found, node, results[place])


def _use_of(node: fx.Node) -> str:
    """What an FX node is for, in words: a result of the graph may be kept for a backward graph."""
    told = (
        "a result of the graph" if user.op == "output" else f"read by {user.target}" for user in node.users
    )
    return " and ".join(dict.fromkeys(told)) or "read by nothing"


def _finished(found: Lowered, node: fx.Node, value: Value) -> Value:
    """A result in the element type that FX says, entered as the FX node's."""
    w, shape = found.writer, _shape_of(found, node)
    if value.shape != shape:
        raise InternalError(f"{node.target} gives {list(shape)} and was written as {list(value.shape)}")
    if not isinstance(value.tensor, str):
        return replace(value, tensor=_in_type(value.tensor, node.meta["val"].dtype))
    wanted = dtype_of(node.meta["val"].dtype)
    if w.dtype(value) is not wanted:
        if w.dtype(value) is DType.BOOL or not wanted.is_float:
            raise Untaken(f"a result of {wanted.value} from {w.dtype(value).value}")
        value = w.cast(value, wanted)
    tensor = str(value.tensor)
    if node.target is torch.ops.aten.clone.default:
        found.copied.add(tensor)
        if value.whole and _is_of_a_result_turned(found, tensor, node):
            found.owners[tensor] = node
    if tensor in w.nodes:
        found.owners.setdefault(tensor, node)
    return value


def _is_of_a_result_turned(found: Lowered, tensor: str, copy: fx.Node) -> bool:
    """Whether a dense copy is all that is read of what turns a result: whoever computes the result then stores it so.

    Of what turns an input, or a part of a result, the copy may be left out instead; and so may one that repeats
    elements.
    """
    nodes, val, at = found.writer.nodes, copy.meta["val"], found.owners.get(tensor)
    turning = nodes.get(tensor)
    source = nodes.get(turning.tensors[0]) if turning is not None and turning.op == "transpose" else None
    if source is None or source.op in VIEWS:
        return False
    if found.symbols.strides(val) != row_major_strides(found.symbols.shape(val)):
        return False
    while at is not None and at is not copy:
        at = next(iter(at.users)) if len(at.users) == 1 else None
    return at is copy


def _in_type(held: float, dtype: torch.dtype) -> float:
    """A number or truth value as a tensor of a type holds it: integers are cut off, other numbers rounded."""
    with unset_fake_temporarily():
        found: float = torch.tensor(held).to(dtype).item()
    return found


def _operand(found: Lowered, node: fx.Node, reader: fx.Node, *, dense: bool) -> Any:
    """The value of an argument: said before, or a tensor that comes from FX. An operand of a product, which is to be
    `dense`, comes from FX as well where FX has all elements of what is said with fewer, repeated.
    """
    known, val = found.values.get(node.name, found.functions.get(node.name)), node.meta.get("val")
    repeats = dense and _repeats(known)
    if repeats and found.narrows and isinstance(known, Value):  # nobody is there beside our graphs
        return written_out(found.writer, known)
    if known is not None and not (repeats and _has_every_element(val)):
        return known
    if isinstance(val, torch.SymInt):
        return found.symbols.extent(val)
    if not isinstance(val, torch.Tensor):
        raise Untaken(f"{node.name} is no tensor, or depends on contents")
    shape, short = _shape_of(found, node), val.dtype in DTYPES
    chooses = val.dtype is torch.int64 and reader.target in _CHOOSING
    if not (short or chooses or (found.narrows and val.dtype is torch.int64)):
        raise Untaken(f"{node.name} is {val.dtype}")
    if val.device != _device(reader):
        raise Untaken(f"{node.name} is on {val.device}")
    found.owners[node.name] = node
    value = found.writer.input(node.name, shape, dtype_of(val.dtype))
    if known is None and (short or found.narrows):
        found.values[node.name] = value  # others do not read it as i32
    return value


def _repeats(value: Any) -> bool:
    """Whether a value repeats elements in its last two dimensions, as no product reads them."""
    dims = value.dims[-2:] if isinstance(value, Value) else ()
    return any(atom.repeated for dim in dims for atom in dim)


def _has_every_element(val: Any) -> bool:
    """Whether an FX node's tensor has a place in memory for each of its elements."""
    held = isinstance(val, torch.Tensor) and val.dtype in DTYPES
    return held and not any(isinstance(stride, int) and stride == 0 for stride in val.stride())


_aten = torch.ops.aten
_CHOOSING = (_aten.embedding.default, _aten.gather.default, _aten.scatter.value, _aten.scatter.src)
"""Operations of which integers of 64 bits are places along a dimension, and so no more than 32 bits hold."""


def _check_device(node: fx.Node, kind: str | None) -> None:
    found = _device(node)
    if kind is not None and found is not None and found.type != kind:
        raise Untaken(f"it is on {found}")


def _device(node: fx.Node) -> Any:
    first = _first_of(node)
    return first.device if isinstance(first, torch.Tensor) else None


def _type_of(node: fx.Node) -> Any:
    """The element type of an FX node's (first) result, if it has one."""
    return getattr(_first_of(node), "dtype", None)


def _first_of(node: fx.Node) -> Any:
    """An FX node's value; of several the first one that there is, as gradients are given that are asked for alone."""
    val = node.meta.get("val")
    return next((one for one in val if one is not None), None) if isinstance(val, tuple | list) else val


def _shape_of(found: Lowered, node: fx.Node) -> tuple[int, ...]:
    """The shape of an FX node's (first) result. Untaken where it has none, or one that our graphs cannot say."""
    first = _first_of(node)
    if not isinstance(first, torch.Tensor) or first.layout is not torch.strided:
        raise Untaken("no tensor")
    shape = found.symbols.shape(first)
    if 0 in shape:
        raise Untaken(f"shape {list(shape)}: no elements")
    if first.is_complex() or first.is_sparse or first.is_quantized:
        raise Untaken(f"{first.dtype}, {first.layout}")
    return shape
