"""Roles of the axes of a graph that reduces whole rows: the reduced axis is the column axis of every tile."""

from __future__ import annotations

from wsopt.errors import LoweringError
from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import reduces_rows
from wsopt.tensors.views import Role


def _column(axes: Axes) -> Dim:
    """The one axis that all reductions go along. Raises LoweringError where there are several.

    What is reduced is bound by its reduction, so axes of one extent count as one, if no tensor has both; and so
    do they and an axis that is stored.
    """
    found: dict[Dim, str] = {}
    for node in axes.graph.nodes:
        if reduces_rows(node):
            atoms = axes.atoms(*axes.reduced(node))
            if len(atoms) != 1:
                raise LoweringError(
                    f"node {node.name}: a reshape merges or splits the axis that is reduced; "
                    "declare the inputs with the shape after it"
                )
            found.setdefault(atoms[0], node.name)
    if not one_axis(axes, list(found)):
        names = " and ".join(found.values())
        raise LoweringError(
            f"nodes {names} reduce different axes; a kernel holds one axis whole: "
            "where the axes are neighbours, declare them as one"
        )
    stored = [atom for name in axes.graph.outputs for atom in reversed(_dims(axes, name))]
    whole = [axis for axis in stored if one_axis(axes, [*found, axis])]
    axes.same.union(*found, *whole[:1])
    column: Dim = axes.same[next(iter(found))]
    return column


def one_axis(axes: Axes, found: list[Dim]) -> bool:
    """Whether axes can count as one: they have one extent, and no tensor has two of them."""
    names = set(found)
    apart = any(len(names & set(_dims(axes, use))) > 1 for use in axes.shapes)
    return len({axes.extents[axis] for axis in names}) == 1 and not apart


def _dims(axes: Axes, use: str) -> list[Dim]:
    """The atoms of all dimensions of a tensor."""
    return [atom for dim in range(len(axes.shapes[use])) for atom in axes.atoms(use, dim)]


def assign_rows(axes: Axes) -> None:
    """Give the axes of a graph without products their roles: columns are reduced, the rest are rows.

    Raises LoweringError for reductions along different axes, and for a tensor of a single row.
    """
    column = _column(axes)
    nodes = sorted(axes.graph.nodes, key=lambda node: -node.type.rank)
    found = dict.fromkeys(atom for node in nodes for atom in _dims(axes, node.name))
    outer = [axis for axis in found if axis != column]  # outer ones first, those of one element among them
    others = [axis for axis in outer if axes.extents[axis] > 1]
    if not others:
        raise LoweringError(f"graph {axes.graph.name}: there is one row; a kernel spreads rows over the card")
    *batches, row = others
    axes.roles = {column: Role.COLUMN, row: Role.ROW, **dict.fromkeys(batches, Role.BATCH)}
    axes.batches = batches
    axes.singles = [axis for axis in outer if axes.extents[axis] == 1]
