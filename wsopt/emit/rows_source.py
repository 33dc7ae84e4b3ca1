"""The text of a kernel that streams rows: what its template asks for, from the plan."""

from __future__ import annotations

from typing import Any

from wsopt.emit import text
from wsopt.emit.instructions import Advance, Expect, WaitEmpty
from wsopt.emit.rows_plan import RowsPlan
from wsopt.frontend.types import Role


def rows_context(plan: RowsPlan) -> dict[str, Any]:
    """What the device part of such a kernel's template needs."""
    loads = [WaitEmpty("ring", "step", "RING_DEPTH"), Expect("ring_full.index(slot)", "RING_BYTES")]
    return {
        "device": "rows.jinja",
        "register_layouts": [],
        "operand_layout": False,
        "uses_products": False,
        "loader_parameters": _loader_parameters(plan),
        "slot_loads": text.write([*loads, *plan.slot_loads(), Advance(1)]),
        "consumer_parameters": _consumer_parameters(plan),
        "early_reads": False,
        "needs_columns": _mentions(plan, "columns"),
        "needs_rows": _mentions(plan, "rows"),
        "allocations": _allocations(plan),
        "barriers": [("RING_DEPTH", [("ring_full", 1), ("ring_empty", plan.s.consumers)])],
        "partitions": text.partitions(
            plan, _loader_parameters(plan), _consumer_parameters(plan), set(_staging(plan))
        ),
    }


def rows_constants(plan: RowsPlan) -> list[tuple[str, str, str]]:
    """The constants of the kernel: name, value, comment."""
    s = plan.s
    return [
        ("TILE_ROWS", str(s.tile_rows), ""),
        ("TILE_COLUMNS", str(s.columns), ""),
        ("ROW_LENGTH", str(plan.program.region.extent(Role.COLUMN)), "elements of a row"),
        ("CONSUMERS", str(s.consumers), ""),
        ("CONSUMER_ROWS", str(s.rows), ""),
        ("RING_DEPTH", str(plan.depth), ""),
        ("RING_BYTES", str(plan.slot_bytes()), "bytes that fill a slot"),
        ("PIECE_LAYOUT", plan.layout.text(), "how a tile of rows lies in a consumer's registers"),
    ]


def _mentions(plan: RowsPlan, name: str) -> bool:
    """Whether a tile's program reads the indices of its rows or columns."""
    words = text.write(plan.piece()).replace("(", " ").replace(")", " ").replace(",", " ").split()
    return name in words


def _staging(plan: RowsPlan) -> list[str]:
    return [pool.name for pool in plan.staging()]


def _ring_names(plan: RowsPlan) -> list[str]:
    return [ring.name for ring in plan.rings()] + ["ring_full", "ring_empty"]


def _loader_parameters(plan: RowsPlan) -> list[str]:
    return [*(ring.box.descriptor for ring in plan.rings()), *_ring_names(plan), *plan.counts()]


def _consumer_parameters(plan: RowsPlan) -> list[str]:
    vectors = [
        name
        for vector in plan.vectors().values()
        for name in (vector.pointer, *(stride for _, stride in vector.strides))
    ]
    stores = [box.descriptor for box in plan.outputs().values()]
    return [*_ring_names(plan), *vectors, *_staging(plan), *stores, *plan.sizes(), "index: gl.constexpr"]


def _allocations(plan: RowsPlan) -> list[str]:
    slots = "RING_DEPTH" if plan.s.consumers == 1 else f"RING_DEPTH * {plan.s.consumers}"
    lines = [text.allocate(ring.name, ring.box.gluon, slots, ring.box) for ring in plan.rings()]
    lines += [text.barrier("ring_full", "RING_DEPTH"), text.barrier("ring_empty", "RING_DEPTH")]
    for consumer in range(plan.s.consumers):
        for pool in plan.staging():
            lines.append(text.allocate(f"{pool.name}_{consumer}", pool.box.gluon, str(pool.count), pool.box))
    return lines
