"""Graphs at reduced extents, a few tiles each way with ragged edges, for runs on the CPU.

The first run's graph is `reduced`; `reaching` is as long as masks reach. Lines of a kernel that neither runs are for
extents that `further` has, some of them beyond those of the graph itself: a kernel's extents are run-time values.

Of a chain of products, consumers look at K-blocks of their own, so the last tile of rows leaves one of them without
any; and where queries are as many as keys they stay so, since a mask means them both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from wsopt.frontend.axes import Axes, Dim
from wsopt.frontend.kinds import Kind
from wsopt.frontend.needed import end_is_masked, every_row_counts
from wsopt.frontend.region import find_region
from wsopt.frontend.roles import graph_axes
from wsopt.graph.needed import needed
from wsopt.graph.types import Graph
from wsopt.lowering.kept_axes import batches_in_parts, kept_axes, moved_axes
from wsopt.lowering.lower import bounds_of, version_of
from wsopt.lowering.reduced_graph import ALIGNMENT, alike, at_extents, shared_axes
from wsopt.program.types import Structure, column_role, row_role
from wsopt.tensors.orders import is_turned
from wsopt.tensors.views import FRAGMENT, TMA_BITS, Bound, Packing, Role

_SHORTEST = 8
"""Rows, and elements of the streamed axis, of the shortest run: a part of one K-block. Elements of the last K-block
where a tail of 16 is too short for a multiple of 16.
"""

_PART_K_BLOCKS = 4
"""K-blocks of a part with which every pass of its loop runs."""

_FAR = 6144
"""Rows and elements of the streamed axis that are too many to be executed one by one: 2 seconds, and 144 MiB for each
step of the reference.
"""

_SEGMENTS = 5
"""Segments of rows: enough for empty ones, one smaller than a tile, and one behind them."""

_BATCHES, _SHARED_BATCHES = 2, 4
"""Elements of a batch axis at most; with equal shares of K-blocks, of which a block that takes all tiles has no
parts, together as many as go round what it holds for a tile.
"""

_LONG = 4
"""How many times as long as it is asked for the streamed axis may be before a tile of rows is left out: tiles have
K-blocks enough then, and each takes its time.
"""

_BOX = 256
"""Elements that rows are multiples of where TMA sees them in parts."""


def reduced(graph: Graph, s: Structure, k_iterations: int, *, longer: bool = False) -> Graph:
    """The graph with every tiled axis cut to a few tiles of `s`, and the streamed one to `k_iterations` K-blocks.

    No axis is made longer than it is, but the streamed one of products where that is asked for. What no output needs
    is left out. Raises InternalError if that gives no graph.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        extents = _chain_extents(axes, *_within(axes, *_few(axes, s, k_iterations)), _batches(s))
    elif axes.kind in (Kind.ROWS, Kind.LONG_ROWS):
        extents = _row_extents(axes, s, k_iterations)
    elif axes.kind is Kind.ELEMENTWISE:
        extents = _element_extents(axes, s, k_iterations)
    else:
        extents = _product_extents(axes, s, k_iterations, longer=longer)
    return at_extents(axes, extents)


def reaching(graph: Graph, s: Structure, k_iterations: int) -> Graph | None:
    """The graph at reduced extents, but with sequences long enough that each mask has masked and unmasked elements.

    None where the few tiles of `reduced` are as long, and where a mask reaches too far to be executed.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is not Kind.CHAIN:
        return None
    few, reach = _chain_extents(axes, *_within(axes, *_few(axes, s, k_iterations))), _reach(axes, s)
    lengths = ((axes.extent(role), _elements(axes, few, role)) for role in (Role.ROW, Role.STREAM))
    if reach > _FAR or all(min(extent, reach) <= found for extent, found in lengths):
        return None
    length = _ragged(reach + s.tile_rows + s.depth, s)
    return at_extents(axes, _chain_extents(axes, *_within(axes, length, length), batches=1))


def further(graph: Graph, s: Structure, k_iterations: int) -> Iterator[Graph]:
    """Graphs at other extents, for lines that have not run at those of `reduced`; `k_iterations` K-blocks are enough
    for every pass of a loop. Short ones come first.

    Where a number may stand for minus infinity since every row keeps an element, no row is empty.
    """
    axes = graph_axes(needed(graph))
    if axes.kind is Kind.CHAIN:
        number = find_region(axes.graph).full_rows
        for lengths in _further(axes, s, k_iterations):
            extents = _chain_extents(axes, *lengths)
            new = (_elements(axes, extents, role) for role in (Role.ROW, Role.STREAM))
            if not number or every_row_counts(_masks(axes), *new):
                yield at_extents(axes, extents)
    elif axes.kind not in (Kind.ROWS, Kind.LONG_ROWS, Kind.ELEMENTWISE):
        yield reduced(graph, s, k_iterations, longer=True)


def beyond(graph: Graph, s: Structure) -> Graph | None:
    """A graph as long as masks reach that is too long to be executed whole; None where `further` goes as far."""
    axes = graph_axes(needed(graph))
    if axes.kind is not Kind.CHAIN or (length := max(_far(axes, s), _of_parts(axes, s))) <= _FAR:
        return None
    return at_extents(axes, _chain_extents(axes, length, length, batches=1))


# --- products -------------------------------------------------------------------------------------------


def _product_extents(axes: Axes, s: Structure, k_iterations: int, *, longer: bool) -> dict[Dim, int]:
    """The new extent of every axis of products, if it is not shorter already: about two and a half tiles each way,
    and enough K-blocks to go round the ring. Rows that are reduced stay whole.

    Batches of products that are not reduced may be merged into rows, so that all are kept, and each has a share of
    the rows. An axis that lies inside another one in a dimension of a tensor stays, for the kernel knows its extent.
    """
    targets, found = _product_targets(axes, s, k_iterations), dict[Dim, int]()
    for axis, role in axes.roles.items():
        extent, target = axes.extents[axis], targets.get(role, _BATCHES)
        kept = axes.kind is Kind.REDUCED and role is Role.COLUMN
        found[axis] = target if longer and role is Role.STREAM else extent if kept else min(target, extent)
    for role in (Role.COLUMN, Role.STREAM) if axes.kind.plain else ():
        streams = role is Role.STREAM
        kept = streams and bool(s.tail)
        found |= _in_parts(axes, role, targets[role], kept=kept, longer=longer and streams)
    found |= batches_in_parts(axes, targets) if axes.kind.plain else {}
    few = () if axes.kind is Kind.PRODUCTS else axes.batches[1:]
    return alike(found, shared_axes(axes)) | dict.fromkeys(few, 1) | _known_extents(axes)


def _product_targets(axes: Axes, s: Structure, k_iterations: int) -> dict[Role, int]:
    """The extents that axes of products get by their roles."""
    rows = math.ceil((2 * s.tile_rows + s.rows // 2) / ALIGNMENT) * ALIGNMENT
    columns = math.ceil((2 * s.columns + s.columns // 4) / ALIGNMENT) * ALIGNMENT
    rest = (s.tail or s.depth) * 3 // 4 // ALIGNMENT * ALIGNMENT or _SHORTEST
    whole = _fragment(axes)
    targets = {
        row_role(s.swap): rows + _ragged_rows(axes) * (not s.swap),
        column_role(s.swap): columns,
        Role.SEGMENT: _SEGMENTS,
        Role.STREAM: math.ceil(((k_iterations - 1) * s.depth + rest) / whole) * whole,
    }
    if axes.kind is Kind.PRODUCTS and axes.batches:
        targets[Role.ROW] = math.ceil(targets[Role.ROW] / (_BATCHES * ALIGNMENT)) * ALIGNMENT
    return targets


def _known_extents(axes: Axes) -> dict[Dim, int]:
    """The axes whose extents a kernel knows, for they lie inside another one in a dimension of a tensor."""
    inner, moved = _inner_roles(axes), moved_axes(axes)
    known = {
        axis: axes.extents[axis] for axis, role in axes.roles.items() if role in inner and axis not in moved
    }
    if Role.ROW in inner:
        # A group of batch elements that share an operand may be rows: it is such a part too.
        dims = (dim for use in axes.paths for dim in axes.raw_view(use).dims)
        known |= {dim.axis: axes.extents[dim.axis] for dim in dims if dim.part[0]}
    return known


def _inner_roles(axes: Axes) -> frozenset[Role]:
    """The roles of axes that are an inner part of a dimension of some tensor, as the width of packed heads is."""
    region = find_region(axes.graph)
    views = [*(one.view for one in region.sources), *(one.view for one in region.outputs)]
    views += [*region.streams, *region.stationary_operands]
    return frozenset(
        role for view in views for role, (take, _) in zip(view.roles, view.parts, strict=False) if take
    )


def _fragment(axes: Axes) -> int:
    """Elements of the streamed axis that packed constants have a multiple of."""
    if axes.kind is not Kind.COMPUTED:
        return 1
    views = (source.view for source in find_region(axes.graph).streamed_sources)
    return math.lcm(*(FRAGMENT[view.dtype] for view in views if view.packing is Packing.FRAGMENTS))


def _ragged_rows(axes: Axes) -> int:
    """Rows of the last tile behind whole ones: as few as TMA may begin the next row of turned factors behind."""
    if axes.kind is not Kind.COMPUTED:
        return ALIGNMENT // 2
    views = (source.view for source in find_region(axes.graph).streamed_sources)
    turned = (TMA_BITS // view.dtype.bits for view in views if view.packing is Packing.TURNED)
    return max(ALIGNMENT // 2, *turned, 0)


def _in_parts(axes: Axes, role: Role, target: int, *, kept: bool, longer: bool) -> dict[Dim, int]:
    """The extents of axes that are one to the kernel, for a reshape merges them: the outermost has what the target
    leaves, the others stay, as do all where the length has to be what it is (`kept`). None is made longer unless that
    is asked for.
    """
    own = [axis for axis, known in axes.roles.items() if known is role]
    if len(own) < 2:
        return {}
    outer, *inner = own
    below = math.prod(axes.extents[axis] for axis in inner)
    extents = {axis: axes.extents[axis] for axis in own}
    wanted = -(-target // below)
    return extents if kept else extents | {outer: wanted if longer else min(wanted, axes.extents[outer])}


# --- rows -----------------------------------------------------------------------------------------------


def _row_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The new extent of every axis of streamed rows: `k_iterations` tiles for each of two blocks, the last one
    ragged.

    There are as many rows as that takes, also where the graph has fewer: the kernel is called with any number. A row
    stays as long as it is where it is reduced: what it is divided by is part of the kernel.
    """
    region = version_of(find_region(axes.graph), s)
    batches = min(_BATCHES, math.prod(axes.extents[a] for a in axes.batches))
    k_iterations = _BATCHES if region.running else k_iterations  # each of many parts
    rows = math.ceil(_BATCHES * k_iterations / batches) * s.tile_rows - s.tile_rows // 2
    if any(map(is_turned, region.row_tiles)):
        rows = math.ceil(rows / ALIGNMENT) * ALIGNMENT  # neighbours in memory
    found, kept = dict[Dim, int](), kept_axes(axes)
    for axis, role in ((axis, role) for axis, role in axes.roles.items() if axis not in kept):
        extent = axes.extents[axis]
        long = rows if role is Role.ROW and extent > 1 else extent
        found[axis] = min(_BATCHES, extent) if role is Role.BATCH else long
        if role is Role.COLUMN and axes.kind is Kind.ROWS and not (region.whole_rows or region.running):
            found[axis] = min(extent, math.ceil((2 * s.columns + s.columns // 4) / _BOX) * _BOX)
    return found | dict.fromkeys([axis for axis in axes.batches[1:] if axis not in kept], 1)


def _element_extents(axes: Axes, s: Structure, k_iterations: int) -> dict[Dim, int]:
    """The new extent of every axis of tiles without a reduction: two columns of tiles and a part of one, two of each
    batch, and as many rows as give each of two blocks `k_iterations` tiles, the last one ragged.

    A tensor whose rows are seen in parts still is, and axes that a kernel knows stay.
    """
    kept, found = kept_axes(axes), dict(axes.extents)
    outer, *inner = (axis for axis, role in axes.roles.items() if role is Role.COLUMN)
    below = math.prod(axes.extents[axis] for axis in inner)
    columns = below * axes.extents[outer]
    if outer not in kept:
        unit = _BOX if columns % _BOX == 0 else ALIGNMENT
        unit //= math.gcd(unit, below)
        target = math.ceil((2 * s.columns + s.columns // 4) / below / unit) * unit
        found[outer] = min(target, axes.extents[outer])
        columns = below * found[outer]
    tiles = math.ceil(columns / s.columns)
    for axis in axes.batches:
        found[axis] = axes.extents[axis] if axis in kept else min(_BATCHES, axes.extents[axis])
        tiles *= found[axis]
    row = next(axis for axis, role in axes.roles.items() if role is Role.ROW)
    if axes.extents[row] > 1 and row not in kept:
        found[row] = max(1, math.ceil(_BATCHES * k_iterations / tiles) * s.tile_rows - s.tile_rows // 2)
        if any(map(is_turned, find_region(axes.graph).row_tiles)):
            found[row] = math.ceil(found[row] / ALIGNMENT) * ALIGNMENT  # neighbours in memory
    return alike({axis: found[axis] for axis in axes.roles}, shared_axes(axes))


# --- chains of products ---------------------------------------------------------------------------------


def _further(axes: Axes, s: Structure, k_iterations: int) -> Iterator[tuple[int, int, int]]:
    """Rows, elements of the streamed axis, and the most of a batch axis, of graphs for lines not run: shorter than a
    K-block; a few tiles; as far as masks reach, and on until K-blocks lie to tiles as before; with a single row for
    one of the consumers; and with many rows for few K-blocks, and the reverse. Parts of split sums take as many more.
    """
    yield (*_within(axes, _SHORTEST, _SHORTEST), _batches(s))
    yield (*_few(axes, s, k_iterations), _batches(s))
    far = _far(axes, s)
    if far <= _FAR:
        yield far, far, 1
        if far < _of_parts(axes, s) <= _FAR:
            yield _of_parts(axes, s), _of_parts(axes, s), 1
        for own in range(0, s.tile_rows, s.rows):
            yield far // s.tile_rows * s.tile_rows + own + 1, far + _reach(axes, s), 1
        yield far, _SHORTEST, 1
        yield _SHORTEST, far, 1


def _batches(s: Structure) -> int:
    """Batch elements of a few tiles, at most."""
    return _SHARED_BATCHES if s.shares else _BATCHES


def _far(axes: Axes, s: Structure) -> int:
    """As far as masks reach, and on until K-blocks lie to tiles as before."""
    return _ragged(_reach(axes, s) + s.tile_rows + math.lcm(s.tile_rows, s.depth), s)


def _of_parts(axes: Axes, s: Structure) -> int:
    """A length with which each part of the last tile has a few K-blocks, under a mask that moves with the rows."""
    return _ragged(_reach(axes, s) + _PART_K_BLOCKS * s.splits * s.depth, s) if s.splits > 1 else 0


def _reach(axes: Axes, s: Structure) -> int:
    """Elements from which on every mask is at work in some K-block."""
    return max((abs(bound.constant) for bound in _masks(axes)), default=0) + s.depth


def _ragged(least: int, s: Structure) -> int:
    """The least length that ends in the first consumer's rows of a tile, and inside of a K-block."""
    rest = -(-(s.rows // 2) // ALIGNMENT) * ALIGNMENT + ALIGNMENT // 2
    return max(0, math.ceil((least - rest) / s.tile_rows)) * s.tile_rows + rest


def _few(axes: Axes, s: Structure, k_iterations: int) -> tuple[int, int]:
    """Two tiles of rows and a part of one, and `k_iterations` K-blocks, the last one ragged; where masks want many
    more K-blocks, one tile of rows and a part.
    """
    rows, k_blocks = _ragged(2 * s.tile_rows, s), (k_iterations - 1) * s.depth
    if axes.extent(Role.ROW) == axes.extent(Role.STREAM):
        rows = max(rows, _ragged(k_blocks + _SHORTEST, s))
        return rows, rows
    stream = k_blocks + (s.depth * 3 // 4 // ALIGNMENT * ALIGNMENT or _SHORTEST)
    if _to_the_end(axes, min(rows, axes.extent(Role.ROW)), stream) > _LONG * stream:
        rows = _ragged(s.tile_rows, s)
    return rows, stream


def _to_the_end(axes: Axes, rows: int, stream: int) -> int:
    """Elements of the streamed axis, no fewer than `stream`: where a mask ends every row before the axis does it
    still does, so that the region's loop stays what it is. The end of the axis itself moves with it.
    """
    bounds = _masks(axes)
    if not end_is_masked(bounds, axes.extent(Role.ROW), axes.extent(Role.STREAM)):
        return stream
    fixed = (b for b in bounds if b.stream < 0 and not b.terms)
    ends = [max(b.constant, b.row * (rows - 1) + b.constant) + 1 for b in fixed]
    return max(stream, min(ends))


def _within(axes: Axes, rows: int, stream: int) -> tuple[int, int]:
    """Rows and elements of the streamed axis, no more than there are."""
    return min(rows, axes.extent(Role.ROW)), min(stream, axes.extent(Role.STREAM))


def _masks(axes: Axes) -> list[Bound]:
    """The bounds that masks put on K-blocks, the end of the streamed axis left out."""
    region = find_region(axes.graph)
    return [bound for bound in region.bounds if bound != bounds_of(region).end]


def _elements(axes: Axes, extents: Mapping[Dim, int], role: Role) -> int:
    """Elements along the axes of a role at these extents."""
    return math.prod(extents[axis] for axis in axes.atoms_of(role))


def _pages(axes: Axes, found: Mapping[Dim, int]) -> dict[Dim, int]:
    """The new extents of axes of tensors that lie in pages: no more pages than the tables have places, and one that
    none of them has.
    """
    extents = dict[Dim, int]()
    for node in (node for node in axes.graph.nodes if node.op == "gather"):
        (atom,) = axes.atoms(f"{node.name}:0", node.attr("axis", int))
        places = math.prod(found.get(axis, axes.extents[axis]) for axis in axes.all_atoms(f"{node.name}:1"))
        extents[atom] = min(axes.extents[atom], places + 1)
    return extents


def _chain_extents(axes: Axes, rows: int, stream: int, batches: int = _BATCHES) -> dict[Dim, int]:
    """The new extent of every axis; what a block holds whole stays, and so does what a kernel knows. Axes that are
    one dimension of an input stay alike.
    """
    kept, stream = kept_axes(axes), _to_the_end(axes, rows, stream)
    new, found = {Role.ROW: rows, Role.STREAM: stream}, dict[Dim, int]()
    for axis, role in axes.roles.items():
        found[axis] = new.get(role, axes.extents[axis])
    places, *page = axes.atoms_of(Role.STREAM)
    found |= {axis: axes.extents[axis] for axis in page}
    found[places] = math.ceil(stream / math.prod(axes.extents[axis] for axis in page))
    found |= _batch_extents(axes, batches, kept)
    found |= {axis: axes.extents[axis] for axis in kept}
    for shared in shared_axes(axes):
        known = kept & {*shared} or {*shared}
        found |= dict.fromkeys(shared, min(found.get(axis, axes.extents[axis]) for axis in known))
    return found | _pages(axes, found)


def _batch_extents(axes: Axes, batches: int, kept: Collection[Dim]) -> dict[Dim, int]:
    """The extents of batch axes: a few elements of each, and `batches` of all together if there are so many. Beside
    one that is `kept` there are many tiles already, and only the innermost of the others is more than one.
    """
    own = {axis: axes.extents[axis] for axis in axes.batches}
    free = [axis for axis in own if axis not in kept]
    found = own | {axis: min(own[axis], batches, _BATCHES) for axis in free}
    if len(free) < len(own):
        found |= dict.fromkeys(free[:-1], 1)
        free = free[-1:]
    for axis in reversed(free):
        others = math.prod(found.values()) // found[axis]
        found[axis] = max(found[axis], min(own[axis], math.ceil(batches / others)))
    return found
