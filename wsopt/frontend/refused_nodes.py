"""Nodes that no kernel takes where they stand, refused with a remedy before any axis has a role.

They are operands of products that are computed or are of types that tensor cores do not take, slices, concatenations,
gathers, segments, and rows added by index.
"""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.expand import OPERANDS
from wsopt.frontend.kinds import Kind, gathered, input_path, paged, producer
from wsopt.frontend.segments import check_segments
from wsopt.graph.types import DType, Graph, Node

_PLACES = {
    Kind.PRODUCTS: "",
    Kind.COMPUTED: " where others are computed",
    Kind.FACTORED: "",
    Kind.CHAIN: " in a chain of products",
    Kind.SCALED: " where their rows are reduced",
    Kind.REDUCED: " where the product's rows are reduced",
}
"""Where operands stand, for refusals of their element type."""


def check_operands(
    graph: Graph, kind: Kind, matmuls: list[Node], fed: tuple[str, ...], computed: int | None
) -> None:
    """Refuse operands of other types than the tensor cores', and computed ones; the left ones of `fed` may be, and
    all of the `computed` side.
    """
    plain = kind in (Kind.PRODUCTS, Kind.FACTORED)
    for node in matmuls if kind is not Kind.FACTORED else ():
        for operand in (one for one in range(node.name in fed, 2) if one != computed):
            name = node.tensors[operand]
            if kind is Kind.CHAIN and gathered(graph, name):
                continue
            if input_path(graph, name) is None:
                raise LoweringError(
                    f"node {node.name}: operand {operand} of the matmul is computed by "
                    f"{producer(graph, name).op} node {name}; it has to be an input of the graph "
                    "(or a reshape or transpose of one): "
                    f"{remedies.computed_operand(graph, name)}"
                )
    allowed = OPERANDS if plain else (DType.F16, DType.BF16)
    for node in matmuls:
        dtype = graph.type_of(node.tensors[0]).dtype
        if dtype not in allowed:
            raise LoweringError(
                f"node {node.name}: operands of {dtype.value} are not lowered{_PLACES[kind]}; "
                + remedies.OPERAND_TYPE.format(", ".join(one.value for one in allowed))
            )
        if dtype is DType.F32 and node.attr("precision", str) == "ieee":
            raise LoweringError(f"node {node.name}: {remedies.IEEE}")
        if not plain and node.attr("accumulate", str) == "promoted":
            raise LoweringError(
                f"node {node.name}: promoted sums are not lowered{_PLACES[kind]}; {remedies.PROMOTED}"
            )


def check_nodes(graph: Graph, kind: Kind) -> None:
    """Refuse nodes other than products that a kernel of this kind does not compute where they stand."""
    _check_slices(graph)
    _check_joints(graph, kind)
    _check_gathers(graph, kind)
    check_segments(graph, kind)
    _check_added_rows(graph)


def _check_slices(graph: Graph) -> None:
    """Refuse slices of what is computed, and zeros around it; those that slices of inputs make are written so."""
    for node in (node for node in graph.nodes if node.op in ("slice", "pad")):
        if input_path(graph, node.name) is None:
            what = "around which it puts zeros" if node.op == "pad" else "of which it is a slice"
            raise LoweringError(
                f"node {node.name}: {node.tensors[0]}, {what}, is computed; "
                f"{remedies.computed_before([node.tensors[0]])}"
            )


def _check_joints(graph: Graph, kind: Kind) -> None:
    """Refuse tensors one behind the other but where elements alone are computed."""
    for node in (node for node in graph.nodes if node.op == "concat"):
        if kind is not Kind.ELEMENTWISE:
            raise LoweringError(
                f"node {node.name}: concat is not lowered beside products and reductions; {remedies.OWN_OUTPUTS}"
            )


def _check_gathers(graph: Graph, kind: Kind) -> None:
    """Refuse elements at indices beside products, but for pages of operands, and of what is computed or seen in
    parts.
    """
    pages = paged(graph)
    for node in (node for node in graph.nodes if node.op == "gather"):
        roles = zip(node.tensors, ("of which it reads elements", "at which it reads elements"), strict=True)
        computed = {name: role for name, role in roles if input_path(graph, name) is None}
        if computed:
            told = " and ".join(f"{name}, {role}, is computed" for name, role in computed.items())
            raise LoweringError(f"node {node.name}: {told}; {remedies.computed_before([*computed])}")
        if kind is Kind.CHAIN and node.name in pages:
            continue
        if kind not in (Kind.ELEMENTWISE, Kind.ROWS):
            raise LoweringError(
                f"node {node.name}: gather is not lowered beside products; {remedies.computed_before([node.name])}"
            )


def _check_added_rows(graph: Graph) -> None:
    """Refuse rows that are added by index: no kernel adds what others may add to in one order."""
    for node in (node for node in graph.nodes if node.op == "scatter_add"):
        raise LoweringError(
            f"node {node.name}: scatter_add is not lowered; {remedies.rows_by_product(graph, node)}"
        )
