"""The slots that a consumer's passes look at: its operations of later stages are at K-blocks before the newest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wsopt.emit.operations import Operations
from wsopt.emit.rings import Ring
from wsopt.emit.slots import SlotCounter, Window
from wsopt.program.ids import OpKind, ValueKind
from wsopt.schedule.program_order import Step


def windows_of(operations: Operations, order: Iterable[Step]) -> tuple[Window, ...]:
    """The counters of the rings that a consumer reads, with the places that its passes look at."""
    s, found = operations.plan.s, dict[SlotCounter, Window]()
    for ring, reads, slot in _touches(operations, order):
        known = found.setdefault(ring.counter, Window(ring.counter))
        place = slot.op.copy - slot.stage * s.copies
        phases = min(known.phases, place) if reads else known.phases
        found[ring.counter] = Window(ring.counter, min(known.slots, place), phases)
    return tuple(found.values())


def _touches(operations: Operations, order: Iterable[Step]) -> Iterator[tuple[Ring, bool, Step]]:
    """The rings that operations read, or hand slots of back."""
    for slot in order:
        for tile in (tile for tile in slot.op.inputs if tile.kind is ValueKind.TILE):
            yield operations.place(tile)[0], True, slot
        if slot.op.kind is OpKind.RELEASE:
            yield from (
                (ring, False, slot) for ring in operations.plan.rings if slot.op.id in ring.plan.releases
            )
