"""Products whose sums are in tensor memory: what the model chooses, what the checker finds, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from targets_kernels import normed
from tile_graphs import Body, gated, plain, region_of

from wsopt.checker import faults
from wsopt.errors import LoweringError
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.contention import issue_cycles
from wsopt.perf.epilogue import epilogues
from wsopt.perf.price import lower
from wsopt.perf.timing import predict
from wsopt.program.ids import OpKind
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Space, Structure
from wsopt.schedule import budget, memory
from wsopt.schedule.types import EpilogueBuffers, PartitionRole, Schedule
from wsopt.solve.bound import ii_lower_bound, infeasible, lower_bound_us, max_depth
from wsopt.solve.optimum import solve
from wsopt.solve.search import Search

MARGIN = 24


def widened(g: GraphBuilder) -> Symbol:
    """A product whose weights are whole numbers, which the loop converts."""
    x, q = g.input("x", (64, 256), "bf16"), g.input("q", (128, 256), "i8")
    return g.cast(g.matmul(x, g.cast(q, dtype="bf16"), transpose_b=True), dtype="bf16")


def structure_of(columns: int, consumers: int = 1) -> Structure:
    return Structure(
        128, columns, 64, consumers, 4, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=2, group=4
    )


def cut(region: Region, machine: Machine, columns: int = 256, consumers: int = 1) -> TileProgram:
    return lower(region, structure_of(columns, consumers), machine)


@pytest.fixture(scope="module")
def program(b200: Machine) -> TileProgram:
    return cut(plain(8192, 8192, 512), b200)


@pytest.fixture(scope="module")
def schedule(program: TileProgram, b200: Machine) -> Schedule:
    found = solve(program, b200, MARGIN).schedule
    assert found is not None
    return found


def test_structures_are_what_the_target_has(b200: Machine) -> None:
    found = list(structures(plain(8192, 8192, 520), b200))
    assert {(s.rows, s.consumers, s.consumer_warps) for s in found} == {(128, 1, 4), (128, 2, 4)}
    assert all(not s.swap and not s.shares and s.sharing is Sharing.COOPERATIVE for s in found)
    assert {s.persistent for s in found} == {True, False}
    assert {s.tail for s in found if not (s.parted or s.paired)} == {16}


def test_few_rows_are_the_columns_of_a_product_by_sixteens(b200: Machine) -> None:
    swapped = [s for s in structures(plain(8, 4096, 4096), b200) if s.swap]
    assert {s.columns for s in swapped} == {16}
    assert max(s.splits for s in swapped) > 4


def test_a_block_of_one_tile_keeps_one_set_and_hands_none_back(b200: Machine) -> None:
    tile = structure_of(128)
    once, again = (lower(plain(512, 512, 128), replace(tile, persistent=p), b200) for p in (False, True))
    assert (once.sum_sets, again.sum_sets) == ((1,), (1, 2))
    kept = (memory.barrier_bytes(one, [4], EpilogueBuffers(1, 0)) for one in (once, again))
    assert [*kept] == [(8 + 1) * memory.BARRIER_BYTES, (8 + 2) * memory.BARRIER_BYTES]


def test_f8_sums_are_not_promoted_for_the_tensor_core_keeps_f32(b200: Machine, h200: Machine) -> None:
    region = plain(512, 512, 512, "f8e4m3")
    assert lower(region, structure_of(128), b200).adds_partials is False
    assert lower(region, replace(structure_of(128), rows=64), h200).adds_partials is True


def test_what_is_computed_beside_products_is_the_consumers_own(b200: Machine) -> None:
    program = lower(region_of(normed), structure_of(128, consumers=2), b200)
    by = {str(op.id): budget.issuers(program, op) for op in program.ops if op.consumer is not None}
    assert by == {
        "mma:p@0": ("mma_warp0",), "mma:p@1": ("mma_warp0",),
        "release@0": ("mma_warp0",), "release@1": ("mma_warp0",),
        "beside@0": ("consumer0",), "beside@1": ("consumer1",),
        "release:beside@0": ("consumer0",), "release:beside@1": ("consumer1",),
    }  # fmt: skip
    after = {
        str(edge.target): str(edge.source) for edge in program.edges if edge.target.kind is OpKind.RELEASE
    }
    assert (after["release@0"], after["release:beside@0"]) == ("mma:p@0", "beside@0")
    threads = issue_cycles(program)
    assert threads["consumer0"] == threads["consumer1"] > threads["mma_warp0"]
    ends = epilogues(program, b200, EpilogueBuffers(1, 0, sums=2))
    assert not ends.under  # a consumer in its epilogue computes nothing beside the next tile's products


def test_sums_are_in_tensor_memory_and_a_subtile_of_them_in_registers(program: TileProgram) -> None:
    assert [value.shape for value in program.values if value.space is Space.TENSOR] == [(128, 256)]
    assert not any(value.space is Space.REGISTERS for value in program.values)
    assert (program.tensor_columns, program.sum_sets, program.accumulator_registers) == (256, (1, 2), 128)


def test_two_products_or_consumers_keep_two_sets_of_fewer_columns(b200: Machine) -> None:
    for two in (
        lambda n: cut(gated(512, 512, 128), b200, n),
        lambda n: cut(plain(512, 512, 128), b200, n, 2),
    ):
        assert (two(256).tensor_columns, two(256).sum_sets) == (512, (1,))
        assert (two(128).tensor_columns, two(128).sum_sets) == (256, (1, 2))


def test_columns_are_a_budget(b200: Machine) -> None:
    small = replace(b200, tensor_memory_columns=128)
    told = infeasible(cut(plain(512, 512, 128), small), small, MARGIN)
    assert told == "tensor memory: 256 columns, a block has 128"


def test_a_warp_of_its_own_issues_products_and_commits(schedule: Schedule, program: TileProgram) -> None:
    where = {program.named(placed.op).kind: placed.partition for placed in schedule.placed}
    assert where == {OpKind.TMA_LOAD: "loader0", OpKind.MMA: "mma_warp0", OpKind.RELEASE: "mma_warp0"}
    release = next(op for op in program.loop if op.kind is OpKind.RELEASE)
    assert release.issue == 0  # the tensor core arrives by itself
    roles = [(p.role, p.warps) for p in schedule.partitions if p.role is not PartitionRole.STORE_WARP]
    assert roles == [(PartitionRole.CONSUMER, 4), (PartitionRole.LOADER, 1), (PartitionRole.MMA_WARP, 1)]


def test_two_sets_of_sums_hide_the_epilogue(schedule: Schedule, program: TileProgram, b200: Machine) -> None:
    def microseconds(sums: int) -> float:
        buffers = replace(schedule.buffers, sums=sums)
        return predict(
            program, b200, schedule.ii, buffers, [depth for _, depth in schedule.rings]
        ).microseconds

    assert schedule.buffers.sums == 2
    assert microseconds(2) < microseconds(1)


@pytest.mark.parametrize("extents", [(8192, 8192, 512), (2048, 4096, 256), (256, 512, 512)])
def test_no_choice_of_buffers_is_faster_than_the_bound(extents: tuple[int, int, int], b200: Machine) -> None:
    for consumers in (1, 2):
        program = cut(plain(*extents), b200, 128, consumers)
        low = ii_lower_bound(program, b200)
        bound = lower_bound_us(program, b200)
        for option in budget.buffer_options(program):
            for slots in range(1, max_depth(program, b200) + 1):
                assert predict(program, b200, low, option, [slots]).microseconds >= bound - 1e-9


def test_one_set_is_enough_for_one_tile_a_block(b200: Machine) -> None:
    one_tile = solve(cut(plain(256, 512, 512), b200), b200, MARGIN).schedule
    assert one_tile is not None
    assert one_tile.buffers.sums == 1


def buffers(sums: int) -> Callable[[Schedule], Schedule]:
    return lambda s: replace(s, buffers=replace(s.buffers, sums=sums))


def without(role: PartitionRole) -> Callable[[Schedule], Schedule]:
    return lambda s: replace(s, partitions=tuple(p for p in s.partitions if p.role is not role))


def products_on(partition: str) -> Callable[[Schedule], Schedule]:
    def moved(s: Schedule) -> Schedule:
        placed = (replace(p, partition=partition) if "mma" in p.op else p for p in s.placed)
        return replace(s, placed=tuple(placed))

    return moved


BROKEN = {
    "too many columns": (buffers(3), "tensor memory: 768 columns, a block has 512"),
    "no set": (buffers(0), "0 sets of sums"),
    "products of the consumer": (products_on("consumer0"), "is issued by consumer0, not by mma_warp0"),
    "products of the loader": (products_on("loader0"), "is issued by loader0, not by mma_warp0"),
    "nobody issues": (
        without(PartitionRole.MMA_WARP),
        "ask for consumer0 of 4 warps, loader0 of 1 warps, mma_warp0",
    ),
    "other time": (buffers(1), "the formula gives"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_checker_finds(name: str, schedule: Schedule, program: TileProgram, b200: Machine) -> None:
    change, message = BROKEN[name]
    assert faults(schedule, program, b200, MARGIN) == []
    assert message in "; ".join(faults(change(schedule), program, b200, MARGIN))


def test_two_sets_need_tensor_memory(h200: Machine) -> None:
    s = Structure(64, 128, 64, 2, 4, Sharing.COOPERATIVE, persistent=True, swap=False, subtiles=2, group=4)
    program = lower(plain(1024, 1024, 512), s, h200)
    found = solve(program, h200, MARGIN).schedule
    assert found is not None
    assert program.sum_sets == (1,)
    assert "2 sets of sums, with 0 columns" in "; ".join(faults(buffers(2)(found), program, h200, MARGIN))


def test_a_machine_of_fewer_columns_keeps_one_set(b200: Machine) -> None:
    small = replace(b200, tensor_memory_columns=256)
    verified, _ = Search(plain(8192, 8192, 512), small).run()
    program = verified.program
    assert verified.schedule.buffers.sums * program.tensor_columns <= 256
    assert cut(plain(8192, 8192, 512), small).sum_sets == (1,)


def test_barriers_are_two_a_set(program: TileProgram) -> None:
    one, two = (memory.barrier_bytes(program, [4], EpilogueBuffers(1, 0, sums=n)) for n in (1, 2))
    assert two - one == 2 * memory.BARRIER_BYTES


def promoted(g: GraphBuilder) -> Symbol:
    x, w = g.input("x", (256, 256), "bf16"), g.input("w", (256, 256), "bf16")
    return g.cast(g.matmul(x, w, transpose_b=True, accumulate="promoted"), dtype="bf16", name="y")


@pytest.mark.parametrize(
    ("body", "what"),
    [(widened, "products of operands that the loop computes"), (promoted, "sums that are promoted")],
)
def test_what_the_target_has_not_is_refused_with_a_remedy(
    body: Body, what: str, b200: Machine, h200: Machine
) -> None:
    region = region_of(body)
    with pytest.raises(LoweringError, match=rf"Blackwell \(sm_100\) .* {what}.*--machine h200"):
        next(structures(region, b200))
    assert next(structures(region, h200))
