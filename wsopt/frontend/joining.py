"""Joins axes that no operation relates, in graphs without a product, where a kernel may take them as one.

Every use of an input has axes of its own, and outputs that share no tensor have as well. A tile of rows goes along
one set of axes: those that no tensor has both of can be the same, for what goes along them is computed side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim


def one_axis(axes: Axes, found: Iterable[Dim]) -> bool:
    """Whether axes can count as one: they have one extent, and no tensor has two of them."""
    names = set(found)
    if len({axes.extents[axis] for axis in names}) != 1:
        return False
    return not any(len(names.intersection(axes.all_atoms(use))) > 1 for use in axes.shapes)


def join_uses(axes: Axes) -> None:
    """Make the axes of an input one, where it is used more than once."""
    first, sliced = dict[str, str](), {axes.same[whole] for whole in axes.slices}
    for use, path in axes.paths.items():
        end = axes.instance(use, len(path) - 1)
        known = first.setdefault(path[-1], end)
        for dim in range(len(axes.shapes[end])):
            if not sliced & {*axes.atoms(known, dim), *axes.atoms(end, dim)}:
                _join(axes, axes.atoms(known, dim), axes.atoms(end, dim))


def join_outputs(axes: Axes) -> None:
    """Make the axes of outputs one, dimension by dimension of the widest."""
    widest = max(axes.graph.outputs, key=lambda name: (len(axes.shapes[name]), axes.shapes[name]))
    for name in axes.graph.outputs:
        for dim in range(len(axes.shapes[name])):
            _join(axes, axes.atoms(widest, dim), axes.atoms(name, dim))
    for whole, parts in axes.joints.items():
        for other, others in axes.joints.items():
            if axes.same[whole] == axes.same[other] and len(parts) == len(others):
                axes.same.union(parts[0][0], others[0][0])


def check_joints(axes: Axes) -> None:
    """Refuse tensors one behind the other along several axes: a kernel has as many tiles as there are parts of one.

    One that is itself a part of what is joined along the same axis has its parts there.
    """
    nodes = {node.name: node for node in axes.graph.nodes}
    inner = {
        (name, along)
        for node, along in axes.joints
        for name in nodes[node].tensors
        if (name, along) in axes.joints and name not in axes.graph.outputs
    }
    outer = [joint for joint in axes.joints if joint not in inner]
    for (known, before), (node, along) in itertools.product(outer[:1], outer[1:]):
        parts, others = len(axes.joints[node, along]), len(axes.joints[known, before])
        if parts != others or axes.same[node, along] != axes.same[known, before]:
            raise LoweringError(
                f"node {node}: it joins {parts} parts along axis {along}, and {known} {others} along axis {before}; "
                f"a kernel has one tile for all: {remedies.OWN_OUTPUTS}"
            )


def _join(axes: Axes, some: Sequence[Dim], others: Sequence[Dim]) -> None:
    if len(some) == len(others):
        for one, other in zip(some, others, strict=True):
            if one != other and one_axis(axes, (one, other)):
                axes.same.union(one, other)
