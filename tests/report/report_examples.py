"""A small kernel made by hand, its figures chosen to be followed on paper, and the goldens of its report."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from wsopt.frontend.types import Contraction, Region
from wsopt.graph.types import DType
from wsopt.lowering.lower import grid_of, whole_of
from wsopt.machine.load import load_machine
from wsopt.machine.types import Machine
from wsopt.program.facts import Copy, Product, Release
from wsopt.program.ids import OpId, OpKind, ValueId, ValueKind
from wsopt.program.program import (
    Edge,
    Epilogue,
    EpilogueCost,
    Iteration,
    RingPlan,
    TileOp,
    TileProgram,
    Unit,
    Value,
)
from wsopt.program.types import Sharing, Space, Structure
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.outside import Absent, Outside, Padded
from wsopt.schedule.types import EpilogueBuffers, Partition, PartitionRole, PlacedOp, Prediction, Schedule
from wsopt.schedule.verified import SEAL, VerifiedSchedule
from wsopt.tensors.views import Output, Role, View

PRODUCT = Product(64, 128, 64, DType.BF16, 4, 2)
GOLDENS = Path(__file__).parent / "goldens"
_NAMES = {Role.ROW: 0, Role.COLUMN: 1, Role.STREAM: 2}

STRUCTURE = Structure(
    rows=64,
    columns=128,
    depth=64,
    consumers=2,
    consumer_warps=4,
    sharing=Sharing.COOPERATIVE,
    persistent=True,
    swap=False,
    subtiles=2,
    group=4,
)


def golden(name: str, text: str) -> None:
    """Compare a text with a golden file; `WSOPT_RENEW_GOLDENS=1` writes it anew."""
    path = GOLDENS / name
    if os.environ.get("WSOPT_RENEW_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def _view(name: str, roles: tuple[Role, Role], extents: tuple[int, int]) -> View:
    return View(name, DType.BF16, roles, extents, (extents[1], 1), ((0,), (1,)), 2)


def region(doc: str = "y = a @ b.T, by hand.") -> Region:
    """One product of bf16, 1024 rows, 2048 columns, 512 deep."""
    left = _view("a", (Role.ROW, Role.STREAM), (1024, 512))
    right = _view("b", (Role.COLUMN, Role.STREAM), (2048, 512))
    out = _view("y", (Role.ROW, Role.COLUMN), (1024, 2048))
    return Region(
        name="by_hand",
        doc=doc,
        extents=((Role.ROW, 1024), (Role.COLUMN, 2048), (Role.STREAM, 512)),
        contractions=(Contraction("product", left, right, promote=False),),
        sources=(),
        statements=(),
        outputs=(Output("y", "product", out, (("a", 0), ("b", 0))),),
    )


def machine() -> Machine:
    """The H200 with the figures that the report reads set to round ones."""
    card = load_machine("h200")
    latency = dataclasses.replace(card.latency, mbarrier_wake=40.0)
    return dataclasses.replace(
        card,
        title="By-hand card",
        sm_count=100,
        clock_mhz=1000.0,
        sustained_clock_mhz=1000.0,
        kernel_launch_us=2.0,
        dram_bandwidth=1e12,
        dram_sustained_bandwidth=1e12,
        dense_tflops={"bf16": 200.0},
        latency=latency,
    )


def _load(tile: ValueId, nbytes: int) -> TileOp:
    busy = nbytes // 128
    return TileOp(_load_of(tile), (), tile, Copy(64, 128, 1024), (), Unit.TMA, 20, busy, 600 + busy)


def _load_of(tile: ValueId) -> OpId:
    return OpId(OpKind.TMA_LOAD, tile.subject, tile.instance)


def _tile(name: str, consumer: int | None = None) -> ValueId:
    return ValueId(ValueKind.TILE, name, consumer)


def product(consumer: int, kind: OpKind = OpKind.MMA) -> OpId:
    """The product of a consumer, or another operation on it."""
    return OpId(kind, "product", consumer)


def _consumer(index: int) -> tuple[TileOp, TileOp]:
    tiles = (_tile("a", index), _tile("b"))
    total = ValueId(ValueKind.SUM, "product", index)
    return (
        TileOp(product(index), tiles, total, PRODUCT, (), Unit.TENSOR, 50, 256, 600),
        TileOp(OpId(OpKind.RELEASE, "", index), (total,), None, Release(meets=True), (), None, 30, 0, 60),
    )


def program(doc: str = "y = a @ b.T, by hand.") -> TileProgram:
    """Two consumers share the rows of a tile of 128 x 128 x 64."""
    whole, tiles = region(doc), ((_tile("a", 0), 64), (_tile("a", 1), 64), (_tile("b"), 128))
    values = tuple(Value(t, (rows, 64), DType.BF16, Space.SHARED) for t, rows in tiles)
    loads = tuple(_load(tile, rows * 128) for tile, rows in tiles)
    releases = tuple(OpId(OpKind.RELEASE, "", c) for c in (0, 1))
    edges = [Edge(product(c), releases[c], 0) for c in (0, 1)]
    edges += [Edge(_load_of(t), product(c), 0) for c in (0, 1) for t in (_tile("a", c), _tile("b"))]
    ring = RingPlan(
        name="ring",
        loads=tuple(load.id for load in loads),
        releases=releases,
        slot_bytes=sum(value.nbytes for value in values),
    )
    return TileProgram(
        region=whole,
        whole=whole_of(whole),
        structure=STRUCTURE,
        grid=grid_of(whole, STRUCTURE),
        iteration=Iteration.K_BLOCKS,
        k_iterations=8,
        tiles=128,
        values=values,
        ops=(*loads, *_consumer(0), *_consumer(1)),
        edges=tuple(edges),
        rings=(ring,),
        after=Epilogue((), (), whole.outputs, prefetched=True),
        epilogue=EpilogueCost(400, 500, 8192, 0, 16, 2),
        accumulator_registers=64,
        tile_l2_bytes=8 * ring.slot_bytes,
        dram_bytes=8_000_000,
    )


PREDICTION = Prediction(
    waves=2,
    start=500.0,
    fill=700.0,
    main=8192.0,
    epilogue=1000.0,
    tail=608.0,
    power=1000.0,
    cycles=12000.0,
    sm_us=12.0,
    dram_us=8.0,
    l2_us=6.0,
    roofline_us=10.5,
    microseconds=14.0,
    bound_by="the SMs",
)

_PLACED = (
    ("load:a@0", "loader0", 0, 0),
    ("load:a@1", "loader0", 0, 64),
    ("load:b", "loader0", 0, 128),
    ("mma:product@0", "consumer0", 2, 0),
    ("release@0", "consumer0", 3, 128),
    ("mma:product@1", "consumer1", 2, 490),
    ("release@1", "consumer1", 4, 100),
)


def schedule() -> Schedule:
    """An II of 512 with a ring of five slots; the second product starts late and passes the end of II."""
    partitions = (
        Partition(PartitionRole.CONSUMER, 0, 4, 160),
        Partition(PartitionRole.CONSUMER, 1, 4, 160),
        Partition(PartitionRole.LOADER, 0, 1, 24),
    )
    return Schedule(
        name="by_hand",
        machine="h200",
        structure=STRUCTURE,
        ii=512,
        placed=tuple(PlacedOp(*place) for place in _PLACED),
        partitions=partitions,
        rings=(("ring", 5),),
        buffers=EpilogueBuffers(staging=1, inputs=0),
        base_registers=120,
        shared_memory_bytes=5 * 32768 + 2 * 8192 + 10 * 8 + 1024,
        prediction=PREDICTION,
    )


def verified(doc: str = "y = a @ b.T, by hand.") -> VerifiedSchedule:
    """The schedule as the checker would hand it on, not run through it: it need not be a good one."""
    return VerifiedSchedule(schedule(), program(doc), machine(), SEAL)


CERTIFICATE = Certificate(
    considered=1000,
    pruned=700,
    infeasible=(("registers", 200), ("shared memory", 90)),
    solved=10,
    unfinished=0,
    bound_us=14.0,
    gap=0.0,
    margin=24,
    runners_up=(
        RunnerUp(dataclasses.replace(STRUCTURE, subtiles=1), 16.3, 1154),
        RunnerUp(dataclasses.replace(STRUCTURE, swap=True), 14.0, 512),
        RunnerUp(dataclasses.replace(STRUCTURE, group=8), 17.1, None),
        RunnerUp(dataclasses.replace(STRUCTURE, persistent=False), 14.0, None),
    ),
    outside=Outside(
        limits=(("slots filled in order", 710), ("base registers of a tensor instruction", 45)),
        absent=tuple(Absent),
        idle_sms=100,
        idle=0.25,
        padded=(Padded("row", 1000, 1024),),
        padding=0.0234375,
    ),
)
