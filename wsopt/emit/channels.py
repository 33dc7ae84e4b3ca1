"""Channels of a kernel: memory and barriers through which one role hands tiles to another.

From the list of channels follow what a kernel allocates, how its barriers are set up, and which names each role is
given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wsopt.emit import pairs, tensor_tiles
from wsopt.emit.dynamic import NUMBERS, NUMBERS_LAYOUT
from wsopt.emit.plan import STATIONARY, KernelPlan
from wsopt.emit.prefetched import vector_columns
from wsopt.emit.rings import Ring
from wsopt.emit.tensors import GLUON, Box
from wsopt.graph.types import DType
from wsopt.program.facts import Release
from wsopt.program.ids import ValueKind
from wsopt.program.program import Value
from wsopt.schedule.types import PartitionRole

_CONSUMER = frozenset({PartitionRole.CONSUMER})
_CORRECTION = frozenset({PartitionRole.CORRECTION})
_LOADED = frozenset({PartitionRole.LOADER, PartitionRole.CONSUMER})
_SUMS = frozenset({PartitionRole.MMA_WARP, PartitionRole.CONSUMER})
_STORES = frozenset({PartitionRole.CONSUMER, PartitionRole.STORE_WARP})


@dataclass(frozen=True, slots=True)
class Buffer:
    """Shared or tensor memory: element type, extents, layout and the function that allocates it, as the kernel's text
    says them.
    """

    name: str
    dtype: str
    shape: tuple[str, ...]
    layout: str
    allocate: str = "gl.allocate_shared_memory"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Barriers of one name, of which so many `arrivals` complete a phase; a copy's bytes are one. Of those `of_pair`
    the two blocks of a pair have one together, and the arrivals of both complete a phase.
    """

    name: str
    arrivals: int
    of_pair: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """Buffers that are handed over together, `versions` of each barrier. `roles` are those that see it; of loading
    warps the one numbered `loader`, of transform warpgroups `transform`.

    Each consumer has an instance of its `own`, or all share one.
    """

    versions: str
    roles: frozenset[PartitionRole]
    buffers: tuple[Buffer, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    own: bool = False
    loader: int = 0
    transform: int = 0

    def is_seen(self, role: PartitionRole, index: int) -> bool:
        """Whether a role sees it; of a role whose partitions have channels of their own, the one of this number."""
        mine = {PartitionRole.LOADER: self.loader, PartitionRole.TRANSFORM: self.transform}
        return role in self.roles and mine.get(role, index) == index

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which a role knows it."""
        return (*(one.name for one in self.buffers), *(one.name for one in self.barriers))


def channels(plan: KernelPlan) -> Iterator[Channel]:
    """All channels of a block: what the loading warp fills, turns, sums, and what each consumer has of its own."""
    if plan.stationary:
        yield _stationary(plan)
    for ring in plan.rings:
        yield _ring(plan, ring)
    if plan.ping_pong:  # the order in which consumers go round the ring
        yield Channel("CONSUMERS", _CONSUMER, barriers=(Barrier("turn", 1),))
    if plan.values_apart:
        yield from _values(plan)
    elif plan.sums_apart:
        yield _sums(plan)
    yield from _own(plan)


def _stationary(plan: KernelPlan) -> Channel:
    """The channel of the tiles that a block holds through its loop, which persistent blocks hand back."""
    holders = 1 if plan.values_apart else plan.s.consumers
    sets = "STATIONARY_SETS * CONSUMERS" if plan.s.persistent else "CONSUMERS"
    back = (Barrier("stationary_empty", holders),) if plan.s.persistent else ()
    buffers = [_buffer(f"{box.name}_held", box, sets) for box in plan.stationary]
    barriers = (Barrier("stationary_full", 1), *back)
    return Channel(STATIONARY.depth, _of_loader(plan), tuple(buffers), barriers)


def _ring(plan: KernelPlan, ring: Ring) -> Channel:
    """The channel of a ring's slots."""
    slots = ((box, _times(ring.depth, one.copies)) for one, boxes in ring.members for box in boxes)
    buffers = [_buffer(f"{box.name}_ring", box, count) for box, count in slots]
    buffers += [_numbers(ring)] if plan.s.dynamic else []
    filled = plan.s.at_once if any(one.by_rows and not ring.plan.copied for one, _ in ring.members) else 1
    barriers = (
        Barrier(f"{ring.name}_full", filled, of_pair=plan.s.paired),
        Barrier(f"{ring.name}_empty", _arrivals(plan, ring)),
    )
    mixed = plan.values_apart and not _by_commit(plan, ring)
    roles = _ends(plan, ring) if plan.s.transforms else _LOADED if mixed else _of_loader(plan)
    number = next((number for number, own in enumerate(plan.loaders) if ring in own), 0)
    return Channel(
        ring.depth, roles, tuple(buffers), barriers, loader=number, transform=_transform(plan, ring)
    )


def _sums(plan: KernelPlan) -> Channel:
    """The channel of sets of sums, which one warp's products fill, and of which each consumer reads its rows.
    Persistent blocks fill them again.
    """
    s, shape = plan.s, (_times("SUM_SETS", plan.s.consumers), "CONSUMER_ROWS", "TILE_COLUMNS")
    sums = (
        Buffer(f"{name}_sums", GLUON[DType.F32], shape, "SUM_LAYOUT", "allocate_tensor_memory")
        for name in plan.sums
    )
    back = (Barrier("sums_empty", s.consumers, of_pair=s.paired),) if s.persistent else ()
    return Channel("SUM_SETS", _SUMS, tuple(sums), (Barrier("sums_full", 1), *back))


def _of_loader(plan: KernelPlan) -> frozenset[PartitionRole]:
    """The roles of a channel that the loading warp fills: itself and the readers."""
    return frozenset({PartitionRole.LOADER, *_readers(plan)})


def _numbers(ring: Ring) -> Buffer:
    """The numbers of the tiles that a ring's slots belong to, where tiles are taken at run time."""
    return Buffer(NUMBERS, "gl.int32", (ring.depth, "1"), NUMBERS_LAYOUT)


def _readers(plan: KernelPlan) -> Iterator[PartitionRole]:
    """The roles that read slots of rings, or what the block holds; where values go through tensor memory those that
    the tensor core reads.
    """
    if plan.sums_apart:
        yield PartitionRole.MMA_WARP
    if plan.in_loop and not plan.values_apart:
        yield PartitionRole.CONSUMER


def _arrivals(plan: KernelPlan, ring: Ring) -> int:
    """Arrivals that hand a slot back: of the consumers that read it, and of a commit behind all products."""
    if plan.values_apart:
        return 1 if _by_commit(plan, ring) else plan.s.at_once
    if all(one.instance is None for one in ring.plan.releases):
        return 1
    return plan.sums_apart + plan.s.at_once * plan.in_loop


def _by_commit(plan: KernelPlan, ring: Ring) -> bool:
    """Whether the tensor core hands back a ring's slots."""
    backs = (plan.program.op(one).counts for one in ring.plan.releases)
    return any(isinstance(back, Release) and back.by_commit for back in backs)


def _values(plan: KernelPlan) -> Iterator[Channel]:
    """Channels of values in tensor memory: what each product leaves or takes, and factors of sums on their way."""
    for product in tensor_tiles.products(plan):
        buffers = tuple(_of_value(plan, value) for value in tensor_tiles.tiles(plan, product))
        barriers = tuple(Barrier(name, 1) for name in tensor_tiles.barriers(plan, product))
        roles = _SUMS | _CORRECTION if tensor_tiles.is_corrected(plan, product) else _SUMS
        yield Channel("CONSUMERS", roles, buffers, barriers)
    for op in tensor_tiles.corrections(plan):
        slots = tensor_tiles.handed(plan, op.inputs[0])
        buffer = Buffer(slots.name, GLUON[DType.F32], ("CONSUMERS", "CONSUMER_ROWS"), "FACTOR_LAYOUT")
        both = (Barrier(f"{slots.name}_full", 1), Barrier(f"{slots.name}_empty", 1))
        yield Channel("CONSUMERS", _CONSUMER | _CORRECTION, (buffer,), both)


def _of_value(plan: KernelPlan, value: Value) -> Buffer:
    """All consumers' tiles of a value in tensor memory."""
    name, kind = tensor_tiles.memory(plan, value.id), value.id.kind
    layout = {ValueKind.SUM: "SUM_LAYOUT", ValueKind.RESULT: "RESULT_LAYOUT"}.get(kind, "OPERAND_LAYOUT")
    shape = ("CONSUMERS", *map(str, value.shape))
    return Buffer(name, GLUON[value.dtype], shape, layout, "allocate_tensor_memory")


def _ends(plan: KernelPlan, ring: Ring) -> frozenset[PartitionRole]:
    """The roles that fill a ring's slots and hand them back, where a role computes operands."""
    apart = any(plan.program.op(one).apart for one in ring.plan.releases)
    filler = PartitionRole.LOADER if ring.plan.copied else PartitionRole.TRANSFORM
    return frozenset({filler, PartitionRole.TRANSFORM if apart else PartitionRole.CONSUMER})


def _transform(plan: KernelPlan, ring: Ring) -> int:
    """The number of the transform warpgroup that fills a ring's slots or hands them back; 0 where none does."""
    ops = (plan.program.op(one) for one in (*ring.plan.loads, *ring.plan.releases))
    return next((op.helper for op in ops if op.apart), 0)


def _own(plan: KernelPlan) -> Iterator[Channel]:
    """Channels of one consumer: prefetched vectors, full inputs, staging, its store warp's barriers."""
    s = plan.s
    for one in (one for one in plan.prefetched.values() if one.along_columns):
        dtype = GLUON[one.vector.of.view.dtype]
        buffer = Buffer(one.name, dtype, (vector_columns(s),), "PREFETCHED_LAYOUT")
        yield Channel("", _CONSUMER, (buffer,), own=True)
    for box in plan.inputs.values():
        buffer = _buffer(f"{box.name}_input", box, "INPUT_BUFFERS")
        barriers = [Barrier(f"{box.name}_full", 1)]
        barriers += [Barrier(f"{box.name}_empty", 1)] if box in plan.handed_back else []
        yield Channel("INPUT_BUFFERS", _CONSUMER, (buffer,), tuple(barriers), own=True)
    for pool in plan.staged.pools.values():
        yield Channel("", _STORES, (_buffer(pool.name, pool.box, str(pool.count)),), own=True)
    if plan.stores_apart:
        yield Channel("STORES", _STORES, barriers=(Barrier("staged", 1), Barrier("freed", 1)), own=True)


def _buffer(name: str, box: Box, count: str) -> Buffer:
    return Buffer(name, box.gluon, (count, *map(str, box.whole)), box.layout)


def _times(count: str, boxes: int) -> str:
    return count if boxes == 1 else f"{count} * {boxes}"


def instance(name: str, consumer: int) -> str:
    """The name of what a consumer has of its own, where all consumers' are seen."""
    return f"{name}_{consumer}"


def _instances(plan: KernelPlan) -> Iterator[tuple[Channel, str]]:
    """Every channel with the ending of its names: those that all share first, then consumer by consumer."""
    every = tuple(channels(plan))
    yield from ((channel, "") for channel in every if not channel.own)
    for consumer in range(plan.s.consumers):
        yield from ((channel, instance("", consumer)) for channel in every if channel.own)


def allocations(plan: KernelPlan) -> Iterator[Buffer]:
    """All that a kernel allocates, in order; barriers are buffers of one word each."""
    for channel, ending in _instances(plan):
        for one in channel.buffers:
            yield replace(one, name=one.name + ending)
        for barrier in channel.barriers:
            each, layout = pairs.barrier(plan.s, barrier.of_pair)
            yield Buffer(barrier.name + ending, "gl.int64", (channel.versions, each), layout)


def barrier_groups(plan: KernelPlan) -> list[tuple[str, list[Barrier]]]:
    """Barriers by how many there are of each: equally many are set up in one loop."""
    found: dict[str, list[Barrier]] = {}
    for channel, ending in _instances(plan):
        named = (Barrier(one.name + ending, one.arrivals) for one in channel.barriers)
        found.setdefault(channel.versions, []).extend(named)
    return [(versions, barriers) for versions, barriers in found.items() if barriers]
