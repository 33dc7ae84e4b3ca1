"""A schedule as plain data: placed operations, roles, depths of rings, buffers, predicted time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from wsopt.program.ids import OpId
from wsopt.program.types import Structure


class PartitionRole(StrEnum):
    """Role of a group of warps."""

    CONSUMER = "consumer"
    LOADER = "loader"
    MMA_WARP = "mma_warp"
    STORE_WARP = "store_warp"
    TRANSFORM = "transform"
    CORRECTION = "correction"

    @property
    def of_one_consumer(self) -> bool:
        """Whether each partition of the role belongs to one consumer, whose index it has."""
        return self in (PartitionRole.CONSUMER, PartitionRole.STORE_WARP)


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of warps with one role; `index` counts within the role. `registers` are a thread's."""

    role: PartitionRole
    index: int
    warps: int
    registers: int

    @property
    def name(self) -> str:
        """`consumer0`, `loader0`."""
        return f"{self.role}{self.index}"


@dataclass(frozen=True, slots=True)
class PlacedOp:
    """An operation in the modulo schedule: iteration i of it starts at cycle (i + stage) * II + cycle.

    `op` is the text of the operation's id, as `schedule.json` has it; `TileProgram.named` looks it up.
    """

    op: str
    partition: str
    stage: int
    cycle: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of the kernel, in SM cycles unless the name says else, and by its parts.

    `main`, `epilogue` and `power` are of all waves together; `epilogue` is what is not hidden. `bound_by`
    names the largest limit; `roofline_us` is what arithmetic and compulsory bytes alone would take.
    """

    waves: int
    start: float
    fill: float
    main: float
    epilogue: float
    tail: float
    power: float
    cycles: float
    sm_us: float
    dram_us: float
    l2_us: float
    roofline_us: float
    microseconds: float
    bound_by: str


@dataclass(frozen=True, slots=True, order=True)
class EpilogueBuffers:
    """Buffers of one consumer's epilogue, and whether a `store_warp` starts the stores from them.

    Each has room for a subtile: there are `staging` of each kind of output, and `inputs` of each full tile that the
    epilogue reads. With fewer than there are subtiles a buffer is filled again while the epilogue runs; with as
    many, outputs of the same kind are staged in those that were read (`perf.stores`), and there may be no staging
    buffers of that kind. Those are in shared memory; `sums` are sets of sums, of which tensor memory may hold two:
    one is read under the products of the next. With `inputs_by_loader` the loading warp starts the copies of inputs,
    else the consumer that reads them.
    """

    staging: int
    inputs: int
    store_warp: bool = False
    sums: int = 1
    inputs_by_loader: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """A solution of the model for one tile program on one machine.

    `rings` gives each ring's depth in slots, `buffers` the epilogue's of one consumer.
    """

    name: str
    machine: str
    structure: Structure
    ii: int
    placed: tuple[PlacedOp, ...]
    partitions: tuple[Partition, ...]
    rings: tuple[tuple[str, int], ...]
    buffers: EpilogueBuffers
    base_registers: int
    shared_memory_bytes: int
    prediction: Prediction

    def depth(self, ring: str) -> int:
        """Slots of a ring; KeyError if there is none of that name."""
        return dict(self.rings)[ring]

    def place(self, op: OpId) -> PlacedOp:
        """The placed operation of an id; KeyError if the schedule does not have it."""
        return {placed.op: placed for placed in self.placed}[str(op)]

    def start(self, op: OpId) -> int:
        """Cycle at which the operation of iteration 0 starts; KeyError if the schedule does not have it."""
        placed = self.place(op)
        return placed.stage * self.ii + placed.cycle

    def of(self, partition: str, begin: int = 0) -> tuple[PlacedOp, ...]:
        """The operations of a partition on its own clock, in the order in which its thread meets them.

        A partition's loop can begin anywhere in the interval: here it begins with its earliest operation,
        at stage 0 and cycle 0, which keeps the stages that it spans fewest, or `begin` cycles from there.
        """
        own = [p for p in self.placed if p.partition == partition]
        starts = {p.op: p.stage * self.ii + p.cycle for p in own}
        first = min(starts.values(), default=0) + begin
        anchored = (
            replace(p, stage=(starts[p.op] - first) // self.ii, cycle=(starts[p.op] - first) % self.ii)
            for p in own
        )
        return tuple(sorted(anchored, key=lambda placed: (placed.cycle, placed.op)))
