"""Holds a cut.json against its graph and its kernels, without the code that made it.

Every step computes what the graph says, from what is there by then, and nothing that is still read is written over.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from wsopt.folder import BuildFolder
from wsopt.graph.types import Graph, row_major_strides
from wsopt.partition.document import CutRecord, Place, Step
from wsopt.partition.memory import ALIGNMENT

Strides = tuple[int, ...] | None
_CLOSE = 1e-9


def faults(graph: Graph, record: CutRecord, kernels: Sequence[BuildFolder]) -> Iterator[str]:
    """What is wrong with a record, a sentence each. `kernels` are those of the record's steps, in order."""
    there = {one.name for one in graph.inputs}
    strides = {place.tensor: _strides(graph, place) for place in record.places}
    for number, (step, kernel) in enumerate(zip(record.steps, kernels, strict=True)):
        yield from _step_faults(graph, f"step {number}", step, kernel, strides)
        yield from (
            f"step {number} reads {name} before it is made" for name in step.inputs if name not in there
        )
        there.update(step.outputs)
    yield from (f"no step makes output {name}" for name in graph.outputs if name not in there)
    yield from _place_faults(graph, record)
    total = math.fsum(step.predicted_us for step in record.steps)
    if not math.isclose(total, record.predicted_us, rel_tol=_CLOSE):
        yield f"the steps take {total} us together, said are {record.predicted_us} us"


def _step_faults(
    graph: Graph, where: str, step: Step, kernel: BuildFolder, strides: Mapping[str, Strides]
) -> Iterator[str]:
    """A step whose kernel computes something else than the nodes of the graph that it stands for."""
    own = kernel.graph
    named = {name: step.tensors.get(name, "") for name in (*own.constants, *_tensors(own))}
    if tuple(named[one.name] for one in own.inputs) != step.inputs:
        yield f"{where} says other inputs than its kernel has"
    if tuple(named[name] for name in own.outputs) != step.outputs:
        yield f"{where} says other outputs than its kernel has"
    yield from _input_faults(graph, where, own, named, strides)
    yield from _node_faults(graph, where, own, named)
    told = kernel.verified.schedule.prediction.microseconds
    if not math.isclose(told, step.predicted_us, rel_tol=_CLOSE):
        yield f"{where} is said to take {step.predicted_us} us, its kernel takes {told} us"


def _input_faults(
    graph: Graph, where: str, own: Graph, named: Mapping[str, str], strides: Mapping[str, Strides]
) -> Iterator[str]:
    """Inputs of a kernel that are other tensors of the graph than those by whose names they are `named`."""
    for one in own.inputs:
        name = named[one.name]
        whole = graph.input(name)
        if name not in _tensors(graph) or graph.type_of(name) != one.type:
            yield f"{where}: {name} is no {one.type} of the graph"
        elif one.constant and (whole is None or not whole.constant):
            yield f"{where}: {name} is read early as a constant, and is none"
        elif one.strides != (whole.strides if whole is not None else strides.get(name)):
            yield f"{where}: {name} has other strides"


def _node_faults(graph: Graph, where: str, own: Graph, named: Mapping[str, str]) -> Iterator[str]:
    """Nodes of a kernel that compute something else than those by whose names they are `named`."""
    for node in own.nodes:
        whole, facts = graph.producer(named[node.name]), (node.op, node.attrs, node.type)
        inputs = tuple(named[one] if isinstance(one, str) else one for one in node.inputs)
        if whole is None or (whole.op, whole.attrs, whole.type) != facts:
            yield f"{where}: node {node.name} is not what the graph computes as {named[node.name]}"
        elif not _same(inputs, whole.inputs):
            yield f"{where}: node {node.name} has other operands than {named[node.name]}"


def _strides(graph: Graph, place: Place) -> Strides:
    """The strides of a tensor between kernels; None if it is dense."""
    shape = graph.type_of(place.tensor).shape
    return row_major_strides((*shape[:-1], place.pitch)) if place.pitch else None


def _same(left: Sequence[object], right: Sequence[object]) -> bool:
    """Whether operands are the same; nan is nan."""
    return len(left) == len(right) and all(
        a == b or (a != a and b != b) for a, b in zip(left, right, strict=True)
    )


def _tensors(graph: Graph) -> frozenset[str]:
    return frozenset((*(one.name for one in graph.inputs), *(node.name for node in graph.nodes)))


def _place_faults(graph: Graph, record: CutRecord) -> Iterator[str]:
    """Tensors between kernels without a place, or in that of another one that is still read."""
    written: dict[str, int] = {}
    used: dict[str, int] = {}
    for number, step in enumerate(record.steps):
        for name in step.outputs:
            written.setdefault(name, number)
        used |= dict.fromkeys((*step.inputs, *step.outputs), number)
    between = {name for name in written if name not in graph.outputs}
    placed = {place.tensor: place for place in record.places}
    if between != set(placed):
        yield "the tensors that have a place are not those between kernels"
        return
    for name, place in placed.items():
        yield from _size_faults(graph, place, record.workspace_bytes)
        if (place.first, place.last) != (written[name], used[name]):
            yield f"tensor {name} is said to be kept at other steps than it is"
    yield from _overlaps(record.places)


def _size_faults(graph: Graph, place: Place, workspace_bytes: int) -> Iterator[str]:
    """A place that is not as large as its tensor, or does not lie in the workspace."""
    type_ = graph.type_of(place.tensor)
    rows, length = math.prod(type_.shape[:-1]), type_.shape[-1] if type_.shape else 1
    size = (rows * (place.pitch or length) * type_.dtype.bits + 7) // 8
    if place.nbytes != size or 0 < place.pitch < length or place.offset % ALIGNMENT:
        yield f"tensor {place.tensor} has a place of another size, or one that is not aligned"
    if place.offset < 0 or place.offset + place.nbytes > workspace_bytes:
        yield f"tensor {place.tensor} has a place outside of the workspace"


def _overlaps(places: Sequence[Place]) -> Iterator[str]:
    """Tensors that lie in one place while both are needed."""
    for a, b in itertools.product(places, repeat=2):
        together = a.first <= b.last and b.first <= a.last
        over = a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
        if a.tensor < b.tensor and together and over:
            yield f"tensors {a.tensor} and {b.tensor} lie in one place at the same time"
