"""Roles of the axes of a graph without products and reductions: which of them are the rows and the columns of a tile.

Axes that lie next to each other in every tensor are one run of elements. The innermost run has the columns; where it
is long it has the rows too, so that it is cut anew: into rows that TMA can move, whatever shapes the graph has. Else
another run has the rows: that along which tensors lie turned, their elements next to each other, or else that along
which the most tensors vary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from wsopt.errors import LoweringError
from wsopt.frontend import remedies
from wsopt.frontend.axes import Axes, Dim, RawDim
from wsopt.frontend.joining import check_joints, join_outputs
from wsopt.frontend.merging import find, mergeable, merged
from wsopt.tensors.views import Role

_LEAST_COLUMNS, _MOST_COLUMNS = 256, 4096
"""Elements of a row, at least and at most, where there is a choice: shorter rows are copied in short pieces, and of
longer ones there may be fewer than SMs.
"""
_LEAST_BITS = 1024
"""Bits of a row for which no axis is cut: TMA copies such rows at full rate, and any number of them is taken."""
_NEAR_ROWS = 16
"""Rows that lie one behind the other for which a tile has those, and not rows that lie apart: an embedding of
positions, by 32 heads of 128 columns, took 33.6 us with heads as rows, and 34.2 with positions, to which its tables
belong (`docs/calibration/h200_blocks_elements.json`, by hand).
"""
_VECTOR = 1 << 14
"""Elements of a run at most that threads load by address, as vectors along columns, rather than rows of it by TMA."""
_TMA_BITS = 128

Run = tuple[Dim, ...]
"""Axes that lie together in every tensor, outer ones first."""


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The dimensions of all tensors, each merged as far as runs are; so many are `stored`. `bits` are those of
    the narrowest elements. Of some an index may have `chosen` rows.
    """

    views: tuple[tuple[RawDim, ...], ...]
    bits: int
    stored: int
    chosen: bool

    def varying(self, *runs: Run) -> int:
        """How many tensors vary along all of these runs."""
        return sum(all(find(dims, run[-1]) is not None for run in runs) for dims in self.views)

    def long(self, run: Run) -> bool:
        """Whether a run has as many elements as a tile wants rows."""
        return any((dim := find(dims, run[-1])) and dim.extent >= _NEAR_ROWS for dims in self.views)

    def across(self, others: Sequence[Run], last: Run) -> Run | None:
        """The run among `others` along which tensors that have the `last` one have their elements next to each other,
        if there are such: that of the most.
        """
        turned = [dims for dims in self.views if (along := find(dims, last[-1])) and along.stride > 1]
        near = [run for run in others for dims in turned if (d := find(dims, run[-1])) and d.stride == 1]
        return max(reversed(near), key=near.count, default=None)

    def rows_of(self, others: Sequence[Run], last: Run, *, near: bool) -> Run:
        """The run among `others` that has the rows of tiles whose columns are the `last`: that along which tensors
        lie turned, or else the innermost, if it is long enough for tiles to be stretches of memory (`near`), or else
        that along which the most tensors vary: of those again a `long` one, if there is one. Where every tensor that
        is read repeats along some run, one with which all are vectors of a tile, if there is one: each is then loaded
        once a row or once a column. Rows at an index are no vector.
        """
        if turned := self.across(others, last):
            return turned
        if not self.chosen and self.varying(*others, last) == self.stored:
            vectors = [run for run in others if self.varying(run, last) == self.stored]
            if vectors:
                return vectors[-1]
        if near and not self.chosen:
            return others[-1]
        return max(reversed(others), key=lambda run: (self.varying(run, last), self.long(run)))


def assign_elementwise(axes: Axes) -> None:
    """Give the axes of a graph without products and reductions their roles.

    Raises LoweringError for outputs whose axes are not the same, and for more runs than a kernel tells apart.
    """
    widest = max(axes.graph.outputs, key=lambda name: math.prod(axes.graph.type_of(name).shape))
    join_outputs(axes)
    check_joints(axes)
    order = axes.tile_atoms(widest)
    wide = [atom for atom in order if axes.extents[atom] > 1]
    _check_outputs(axes, widest, wide)
    counted = _counted(axes)
    runs, tensors = _runs(axes, wide, counted)
    rows, columns = _cut(axes, runs, tensors, order, counted)
    outer = [atom for run in runs for atom in run if atom not in {*rows, *columns, *_cut_up(axes, run)}]
    if len([run for run in runs if set(run) & set(outer)]) > 2:
        raise LoweringError(
            f"graph {axes.graph.name}: its elements lie along {len(runs)} axes that no two tensors have alike; a "
            f"kernel takes four: {remedies.ALIKE}"
        )
    *further, row = rows
    roles = dict.fromkeys(columns, Role.COLUMN) | {row: Role.ROW}
    axes.roles = roles | dict.fromkeys((*outer, *further), Role.BATCH)
    ones = (atom for atom in order if axes.extents[atom] == 1)
    axes.singles = [atom for atom in ones if atom not in counted and atom not in axes.roles]


def _cut_up(axes: Axes, run: Run) -> set[Dim]:
    """The axes of a run that were cut into parts since it was found."""
    return {atom for atom in run if axes.leaves(atom) != (atom,)}


def _check_outputs(axes: Axes, widest: str, wide: Sequence[Dim]) -> None:
    """Refuse outputs that have not the axes of the widest one, one that has an axis twice, and single elements."""
    if not wide:
        raise LoweringError(f"output {widest} has one element; compute it outside")
    for name in axes.graph.outputs:
        atoms = [atom for atom in axes.tile_atoms(name) if axes.extents[atom] > 1]
        if len(set(atoms)) < len(atoms):
            raise LoweringError(f"output {name} has one axis twice; compute it outside")
        if set(atoms) != set(wide):
            raise LoweringError(
                f"outputs {widest} and {name} do not have the same axes; a kernel has one tile for all: "
                f"{remedies.OWN_GRAPH}"
            )


def _counted(axes: Axes) -> set[Dim]:
    """The axes along which the graph counts: an index along a merged one would be another."""
    nodes = (node for node in axes.graph.nodes if node.op == "iota")
    return {atom for node in nodes for atom in axes.atoms(node.name, node.attr("axis", int))}


def _runs(axes: Axes, wide: Sequence[Dim], counted: set[Dim]) -> tuple[list[Run], _Tensors]:
    """The axes of more than one element in runs, outer ones first, and the tensors with a dimension for each run."""
    uses = [axes.raw_view(use) for use in (*axes.paths, *axes.graph.outputs)]
    views = [tuple(dim for dim in raw.dims if dim.extent > 1) for raw in uses]
    runs: list[Run] = []
    for atom in wide:
        before = runs[-1] if runs else ()
        if before and not counted & {atom, *before} and mergeable(views, before[-1], atom):
            views = [merged(dims, before[-1], atom) for dims in views]
            runs[-1] = (*before, atom)
        else:
            runs.append((atom,))
    bits = min((raw.dtype.bits for raw in uses), default=_TMA_BITS)
    chosen = any(node.op == "gather" for node in axes.graph.nodes)
    if not chosen and _has_short_groups(axes, runs, views, counted, bits):
        (*outer, whole), inner = runs[:-1], runs[-1]
        size = math.prod(axes.extents[atom] for atom in inner)
        views = [merged(dims, whole[-1], inner[-1], size) for dims in views]
        runs = [*outer, (*whole, *inner)]
    return runs, _Tensors(tuple(views), bits, len(axes.graph.outputs), chosen)


def _has_short_groups(
    axes: Axes, runs: Sequence[Run], views: Sequence[tuple[RawDim, ...]], counted: set[Dim], bits: int
) -> bool:
    """Whether the innermost run is too short to be a tile's columns, and some tensors have an element for each of it,
    as the statistics of groups of channels: those are read by address then, and both runs are columns.
    """
    if len(runs) < 3 or counted & {*runs[-2], *runs[-1]}:
        return False
    outer, inner = runs[-2][-1], runs[-1][-1]
    short = math.prod(axes.extents[atom] for atom in runs[-1]) * bits < _LEAST_BITS
    whole = all((along := find(dims, outer)) is None or along.cutout is None for dims in views)
    return short and whole and mergeable(views, outer, inner, groups=True)


# --- rows and columns -----------------------------------------------------------------------------------


def _cut(
    axes: Axes, runs: Sequence[Run], tensors: _Tensors, order: Sequence[Dim], counted: set[Dim]
) -> tuple[Run, Run]:
    """The axes of the rows and those of the columns of a tile."""
    *others, last = runs
    length, one = math.prod(axes.extents[atom] for atom in last), _one_before(axes, order, counted)
    if not others and len(last) == 1 and one is not None:
        return (one,), last
    if not others or (len(last) > 1 and length > _VECTOR and not tensors.across(others, last)):
        found = _anew(axes, last, tensors.bits, splits=not others)
        if found is not None:
            return found
    if others:
        near = math.prod(axes.extents[atom] for atom in others[-1]) >= _NEAR_ROWS
        return tensors.rows_of(others, last, near=near), last
    return (axes.add_one_row(),), last


def _one_before(axes: Axes, order: Sequence[Dim], counted: set[Dim]) -> Dim | None:
    """An axis of one element that the output has before all others, along which there may be more at run time."""
    ones = itertools.takewhile(lambda atom: axes.extents[atom] == 1, order)
    cut = (axis for axis, _ in (*axes.slices.values(), *itertools.chain(*axes.joints.values())))
    parts = {leaf for axis in cut for leaf in axes.leaves(axis)}
    return next((atom for atom in ones if atom not in {*counted, *parts}), None)


def _anew(axes: Axes, run: Run, bits: int, *, splits: bool) -> tuple[Run, Run] | None:
    """A run of elements as rows whose length TMA takes as a pitch; None if its length has no such divisor.

    Rows end where an axis does, if they are long enough then, for the number of rows is free at run time. Else an
    axis is cut, if one may be (`splits`).
    """
    pitch = _TMA_BITS // bits
    inner = [math.prod(axes.extents[atom] for atom in run[place:]) for place in range(1, len(run))]
    ends = [place for place, size in enumerate(inner, 1) if size % pitch == 0]
    long = [place for place in ends if inner[place - 1] >= _LEAST_COLUMNS]
    if long:
        return run[: long[-1]], run[long[-1] :]
    found = _length(axes, run, pitch) if splits else None
    longest = max((inner[place - 1] for place in ends), default=0)
    if found is not None and longest * bits < _LEAST_BITS:
        place, _, part = found
        outer, inner_part = axes.cut(run[place], part)
        return (*run[:place], outer), (inner_part, *run[place + 1 :])
    return (run[: ends[0]], run[ends[0] :]) if ends else None


def _length(axes: Axes, run: Run, pitch: int) -> tuple[int, int, int] | None:
    """The best length of a row that ends inside an axis: the axis by its place, the length, and the axis's part.

    Multiples of `_LEAST_COLUMNS` come first, then the longest up to `_MOST_COLUMNS`.
    """
    found = list[tuple[int, int, int]]()
    for place, atom in enumerate(run):
        below, extent = math.prod(axes.extents[inner] for inner in run[place + 1 :]), axes.extents[atom]
        ends = _ends(axes, atom)
        parts = (
            part for part in range(2, min(extent - 1, _MOST_COLUMNS) + 1) if extent % part == ends % part == 0
        )
        found += [(place, part * below, part) for part in parts if part * below % pitch == 0]
    return max(found, key=lambda one: _convenience(one[1]), default=None)


def _ends(axes: Axes, atom: Dim) -> int:
    """Elements of an axis at whose multiples each tensor begins and ends of which it is a slice, maybe with zeros
    around it; 0 where it is none.
    """
    own = ((whole, part) for whole, part in axes.slices.items() if atom in axes.leaves(part[0]))
    return math.gcd(*(place for whole, (_, start) in own for place in (start, axes.extents[whole])))


def _convenience(length: int) -> tuple[bool, bool, int]:
    """What makes one length of a row better than another."""
    short = length <= _MOST_COLUMNS
    return short and length % _LEAST_COLUMNS == 0, short, length if short else -length
