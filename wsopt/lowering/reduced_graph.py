"""A graph at other extents: its inputs, index tensors and reshapes written anew, and read like any graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wsopt.errors import InputError, InternalError
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import producer
from wsopt.frontend.names import free_name, names_of
from wsopt.graph.infer import places
from wsopt.graph.lengths import compared_extents
from wsopt.graph.parse import parse_graph
from wsopt.graph.serialize import graph_to_json
from wsopt.graph.types import DType, Graph, Input, row_major_strides
from wsopt.lowering.kept_axes import dimensions_moved
from wsopt.tensors.views import TRANSPOSED_BITS, Role

ALIGNMENT = 16
"""Extents stay multiples of 16 elements, so that TMA can move tensors of every element type."""

BATCHES = 2
"""Elements of a batch axis at most."""

SHORTEST = 8
"""Rows, and elements of the streamed axis, of the shortest run: a part of one K-block. Elements of the last K-block
where a tail of 16 is too short for a multiple of 16.
"""

BOX = 256
"""Elements that rows are multiples of where TMA sees them in parts."""


def parse_derived(data: dict[str, Any], graph: Graph) -> Graph:
    """The graph that was derived from a checked one. Raises InternalError where it is none: no fault of the input."""
    try:
        return parse_graph(data, f"{graph.name} at reduced extents")
    except InputError as error:
        raise InternalError(f"{error.source} is no graph ({error.problems[0]})") from error


def dense_strides(shape: list[int], strides: list[int]) -> list[int]:
    """Strides of a tensor as dense as TMA takes it, with its dimensions in the same order in memory.

    What repeats still repeats, and dimensions that lay next to a contiguous one of one element still lie apart.
    """
    found, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda d: (strides[d], -d)):
        if strides[dim]:
            step = ALIGNMENT if step == 1 < strides[dim] else step
            found[dim] = step
            step *= -(-shape[dim] // ALIGNMENT) * ALIGNMENT if step == 1 < shape[dim] else shape[dim]
    return found


def _is_aligned(shape: Sequence[int], strides: Sequence[int], dtype: DType) -> bool:
    """Whether TMA can move a tensor: strides of whole 16 bytes, but for the contiguous one."""
    steps = (stride for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    return all(stride == 1 or stride * dtype.bits % (8 * 16) == 0 for stride in steps)


def alike(extents: Mapping[Dim, int], groups: Iterable[Iterable[Dim]]) -> dict[Dim, int]:
    """The extents, with axes that are one dimension of one input as long as the longest of them."""
    found = dict(extents)
    together = [[axis for axis in group if axis in found] for group in groups]
    for _, group in itertools.product(together, together):  # a longest one is handed on from group to group
        found |= dict.fromkeys(group, max((found[axis] for axis in group), default=0))
    return found


def shared_axes(axes: Axes) -> list[tuple[Dim, ...]]:
    """Axes that are one dimension of one input, which is used more than once: they keep one extent."""
    known: dict[tuple[str, int, int], list[Dim]] = {}
    for use, path in axes.paths.items():
        end = axes.instance(use, len(path) - 1)
        for dim in range(len(axes.shapes[end])):
            for place, atom in enumerate(axes.atoms(end, dim)):
                known.setdefault((path[-1], dim, place), []).append(atom)
    return [tuple(dict.fromkeys(atoms)) for atoms in known.values() if len(set(atoms)) > 1]


def _broadcast(axes: Axes) -> set[str]:
    """Lengths and offsets, which are compared with indices, and views of them: along axes of one element they stay
    so at other extents.
    """
    compared = compared_extents(axes.graph)
    return {name for path in axes.paths.values() for name in path if path[-1] in compared}


def _is_shared(axes: Axes, given: Input) -> bool:
    """Whether neighbours along reduced rows share each element of an input: of the axes that a reshape makes one row
    of, it has outer ones alone.
    """
    *outer, inner = axes.atoms_of(Role.COLUMN) or (("", 0),)
    uses = [{*axes.all_atoms(use)} for use, path in axes.paths.items() if path[-1] == given.name]
    return bool(outer) and all(inner not in atoms and atoms & {*outer} for atoms in uses)


def _column(axes: Axes, given: Input) -> int | None:
    """The dimension along which the elements of a product's operand lie together whose last one has one element, as
    `merging.py` orders them; None of other tensors.
    """
    shape, strides = given.type.shape, given.element_strides
    ends = (axes.instance(use, len(path) - 1) for use, path in axes.paths.items() if path[-1] == given.name)
    contracted = any(axes.roles.get(atom) is Role.STREAM for end in ends for atom in axes.all_atoms(end))
    if not contracted or shape[-1] > 1 or given.type.dtype.bits != TRANSPOSED_BITS:
        return None
    pairs = enumerate(zip(shape, strides, strict=True))
    return next((dim for dim, (extent, stride) in pairs if extent > 1 == stride), None)


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The shapes that a graph's tensors have where its axes have other `extents`.

    `instances` are the uses of tensors, by name, whose dimensions are told apart by axes; tensors of `broadcast` keep
    axes of one element.
    """

    axes: Axes
    extents: Mapping[Dim, int]
    instances: Mapping[str, str]
    broadcast: Container[str]

    @classmethod
    def of(cls, axes: Axes, extents: Mapping[Dim, int]) -> _Shapes:
        """The shapes of all tensors of a graph at new extents of its axes."""
        instances = {name: name for name in axes.shapes}
        for use, path in axes.paths.items():
            instances.update({name: axes.instance(use, index) for index, name in enumerate(path)})
        return cls(axes, extents, instances, _broadcast(axes))

    def shape(self, name: str, within: Container[Dim] | None = None) -> list[int]:
        """The new shape of a tensor; axes of one element that are not `within` an operand stay as they are."""
        use = self.instances[name]

        def extent(atom: Dim) -> int:
            stays = name in self.broadcast or (within is not None and atom not in within)
            new = self.extents.get(atom, self.axes.extents[atom])
            return 1 if stays and self.axes.extents[atom] == 1 else new

        dims = range(len(self.axes.shapes[use]))
        return [math.prod(map(extent, self.axes.atoms(use, dim))) for dim in dims]

    def reshaped(self, name: str, operand: str | None) -> list[int]:
        """The new shape of what is made in a shape that the graph gives; of an `operand`, where it is reshaped."""
        return self.shape(name, None if operand is None else self.axes.all_atoms(self.instances[operand]))

    def places_of(self, graph: Graph, name: str) -> dict[str, int]:
        """Where a slice begins and ends if it has other extents now; without a step, as those that may have."""
        node = producer(graph, name)
        dim, new = node.attr("axis", int), self.shape(name)
        start = places(dict(node.attrs), graph.type_of(node.tensors[0]).shape[dim]).start
        return {} if new[dim] == node.type.shape[dim] else {"start": start, "stop": start + new[dim]}

    def units_of(self, operand: str, units: int | list[int]) -> int | list[int]:
        """A group or a block as long as whole axes, at their new extents; other ones stay."""
        own = [units] if isinstance(units, int) else units
        before, after = self.axes.shapes[self.instances[operand]], self.shape(operand)
        pairs = zip(own, before[len(before) - len(own) :], after[len(before) - len(own) :], strict=True)
        found = [new if unit == whole else unit for unit, whole, new in pairs]
        return found[0] if isinstance(units, int) else found


def at_extents(axes: Axes, extents: Mapping[Dim, int]) -> Graph:
    """A graph whose axes are told apart by atoms at other extents: inputs, indices, slices and reshapes alike."""
    graph, shapes = axes.graph, _Shapes.of(axes, {**extents, **dimensions_moved(axes, extents)})
    data = graph_to_json(graph)
    for item in data["inputs"]:
        item["shape"] = shapes.shape(item["name"])
        given = graph.input(item["name"])
        assert given is not None, "inputs are the graph's"
        strides = _new_strides(axes, item["shape"], item.get("strides"), given)
        if strides is not None:
            item["strides"] = strides
    for item in data["nodes"]:
        if "shape" in item.get("attrs", {}):
            operand = item["inputs"][0] if item["op"] == "reshape" else None
            item["attrs"]["shape"] = shapes.reshaped(item["name"], operand)
        if item["op"] == "slice":
            item["attrs"] |= shapes.places_of(graph, item["name"])
        for key in {"group", "block"} & item.get("attrs", {}).keys():
            item["attrs"][key] = shapes.units_of(item["inputs"][0], item["attrs"][key])
    data["nodes"] = [one for item in data["nodes"] for one in _with_casts(item, graph)]
    return parse_derived(data, graph)


def _with_casts(item: dict[str, Any], graph: Graph) -> Iterator[dict[str, Any]]:
    """A node as a graph has it: in front of a product of which a kernel widens an operand the cast that does so."""
    if item["op"] == "matmul":
        left, right = (graph.type_of(name).dtype for name in item["inputs"])
        if left is not right:
            name = free_name(f"{item['inputs'][1]}_wide_{item['name']}", names_of(graph))
            yield {"name": name, "op": "cast", "inputs": item["inputs"][1:], "attrs": {"dtype": left.value}}
            item = item | {"inputs": [item["inputs"][0], name]}
    yield item


def _new_strides(axes: Axes, shape: list[int], strides: list[int] | None, given: Input) -> list[int] | None:
    """The strides of an input in its new shape, where it had some or has to have some now; else None.

    Rows that TMA could not move are further apart, as a caller would have to lay them; not where they are as they lie
    in the graph itself.
    """
    steps = strides or row_major_strides(tuple(shape))
    last, dtype = shape[-1] if shape else 1, given.type.dtype
    moved = _is_aligned(given.type.shape, given.element_strides, dtype)
    if last == 1 < math.prod(shape) and given.type.size == 1 < len(steps):
        # Of one element any axis could be the contiguous one, and the kernel has taken the last.
        return dense_strides(shape, [*(ALIGNMENT for _ in steps[1:]), 1])
    if last > 1 and (along := _column(axes, given)) is not None:
        # The kernel has taken another axis than the last, which had one element, as the contiguous one.
        return dense_strides(shape, [1 if dim == along else ALIGNMENT for dim in range(len(steps))])
    if strides is None and not (last > 1 and moved and not _is_aligned(shape, steps, dtype)):
        return None
    if strides is None and _is_shared(axes, given):
        return None  # threads read it, and its rows may be one axis with what is before them
    return dense_strides(shape, list(steps))
