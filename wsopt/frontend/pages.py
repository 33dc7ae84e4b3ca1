"""Operands of products that lie in pages: boxes along the streamed axis, each at the place that a table has for it.

In a graph that is a `gather` of an input along its pages by a table of i32, behind it transposes and a reshape that
makes one axis of the places in the table and the elements in a page. The operand is the input itself then: what
streams are its boxes, and the loading warp reads the table.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, RawView
from wsopt.frontend.kinds import paged, producer
from wsopt.graph.types import Graph, Node
from wsopt.tensors.views import Role


def own_gathers(graph: Graph) -> Graph:
    """The graph with a gather of pages, and views of it, for each product that reads it: like every use of an input
    it has axes of its own, so that one may be keys and values.
    """
    pages, nodes, read, names = paged(graph), list[Node](), set[str](), {item.name for item in graph.inputs}
    names |= {node.name for node in graph.nodes}

    def own(name: str) -> str:
        """The name of a tensor of pages that no product has read, if need be of a copy of it."""
        if name not in pages:
            return name
        node = producer(graph, name)
        inputs = (own(str(node.inputs[0])), *node.inputs[1:])
        if name not in read and inputs == node.inputs:
            read.add(name)
            return name
        new = next(found for number in count(1) if (found := f"{name}_{number}") not in names)
        names.add(new)
        nodes.append(replace(node, name=new, inputs=inputs))
        return new

    for node in graph.nodes:
        given = [own(x) if isinstance(x, str) and node.name not in pages else x for x in node.inputs]
        nodes.append(replace(node, inputs=tuple(given)))
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=tuple(nodes))


def check_pages(axes: Axes) -> None:
    """Refuse gathers of a chain's operands but of whole pages of the streamed axis, or of all of it for a batch."""
    stream = axes.atoms_of(Role.STREAM)
    for node in (node for node in axes.graph.nodes if node.op == "gather"):
        table, operand = node.tensors[1], {*axes.all_atoms(node.name)}
        found = [axis for axis in axes.all_atoms(f"{node.name}:1") if axes.extents[axis] > 1]
        within = tuple(axis for axis in found if axis in stream)
        if not operand & {*stream} or {axes.roles.get(axis) for axis in found} - {Role.BATCH, Role.STREAM}:
            raise LoweringError(
                f"node {node.name}: {table} chooses along other axes than the streamed one and batches; gather is "
                f"not lowered there beside products; {remedies.computed_before([node.name])}"
            )
        if within != stream[: len(within)] or within == stream:
            raise LoweringError(
                f"node {node.name}: {table} chooses single elements of the streamed axis, and whole pages are read: "
                "give the tensor an axis of a page's elements, and merge it with that of the table's places by a "
                "reshape, the table's first"
            )


def paged_operand(axes: Axes, gather: Node, table: str) -> RawView:
    """The input of whose boxes a `gather` makes an operand, with the use of the `table` that chooses them.

    Raises LoweringError where the axis that is chosen from is not one of the input's own.
    """
    use, along = f"{gather.name}:0", gather.attr("axis", int)
    view, atoms = axes.raw_view(use), axes.atoms(use, along)
    own = [dim for dim in view.dims if dim.axis in atoms]
    if len(own) != 1 or own[0].cutout or own[0].part != (0, 1):
        raise LoweringError(
            f"node {gather.name}: a view takes axis {along} of {gather.tensors[0]} apart, or a part of it, along "
            f"which indices choose; {remedies.computed_before([gather.tensors[0]])}"
        )
    return replace(view, chosen=(atoms[0], table))
