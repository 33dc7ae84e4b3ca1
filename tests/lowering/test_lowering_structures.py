"""Structures and their tile programs: only legal ones, in one order, with costs that add up."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import replace

import pytest
from tile_graphs import extents, gated, plain, product, region_of

from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import DType
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.contention import held_cycles
from wsopt.perf.price import lower
from wsopt.program.facts import Product
from wsopt.program.ids import ValueKind
from wsopt.program.program import OpKind, TileProgram, Unit
from wsopt.program.types import Sharing, Space, Structure, column_role, row_role
from wsopt.tensors.parts import summed
from wsopt.tensors.views import Role


def residual(m: int, n: int, k: int) -> Region:
    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        s = product(g, m, n, k) + g.input("r", (m, n), "bf16") + g.input("b", (n,), "f32")
        return g.cast(s, dtype="bf16", name="y"), g.cast(s, dtype="f16", name="z")

    return region_of(body)


def batched(m: int, n: int, k: int) -> Region:
    def body(g: GraphBuilder) -> Symbol:
        return g.matmul(g.input("a", (3, m, k), "bf16"), g.input("b", (3, k, n), "bf16"), name="p")

    return region_of(body)


REGIONS = {
    "plain": plain(520, 1032, 264),
    "few rows": plain(40, 512, 1024),
    "f8": plain(256, 512, 512, "f8e4m3"),
    "gated": gated(300, 512, 128),
    "residual": residual(200, 264, 72),
    "batched": batched(128, 192, 64),
}


@pytest.fixture(params=REGIONS)
def region(request: pytest.FixtureRequest) -> Region:
    return REGIONS[request.param]


def check_legal(s: Structure, region: Region, machine: Machine) -> None:
    """What the hardware and TMA ask of every structure."""
    width = region.operand_dtype.bits // 8
    assert max(s.rows, s.columns, s.depth) <= machine.tma_box_extent_max
    assert s.rows % (machine.mma_rows * s.consumer_warps // machine.warps_per_warpgroup) == 0
    assert s.columns % machine.mma_columns_step == 0
    assert s.columns <= machine.mma_columns_max
    assert s.depth * width % machine.mma_k_bytes == 0
    assert all(n.bit_count() == 1 for n in (s.rows, s.depth, s.subtile_columns))
    assert s.columns.bit_count() == 1 or s.columns in (
        *(96, 160, 192),
        *(summed(region.extent(column_role(s.swap)), last) for last in (16, 32)),
    )
    assert s.columns % s.subtiles == 0
    assert s.subtiles == 1 or s.subtile_columns >= (32 if s.columns % 32 == 0 else 16)
    assert s.consumer_warps % machine.warps_per_warpgroup == 0
    assert s.sharing is Sharing.COOPERATIVE or (s.persistent and s.consumers > 1)
    assert s.copies == 1 or region.promote
    assert not region.promote or s.depth <= 128


def test_all_structures_are_legal(region: Region, h200: Machine) -> None:
    found = list(structures(region, h200))
    assert found
    for s in found:
        check_legal(s, region, h200)


def test_structures_of_random_extents_are_legal(h200: Machine) -> None:
    rng = random.Random(7)
    for _ in range(12):
        m, n, k = (8 * rng.randint(1, limit) for limit in (64, 128, 256))
        region = plain(m, n, k)
        found = list(structures(region, h200))
        assert found, (m, n, k)
        for s in found:
            check_legal(s, region, h200)
            # No tile is twice the extent or more, unless it is the least that there is.
            assert s.columns < 2 * region.extent(column_role(s.swap)) or s.columns <= 64
            assert s.rows < 2 * region.extent(row_role(s.swap)) or s.rows == 64


def test_tiles_of_192_columns_are_there_where_128_are_too_few(h200: Machine) -> None:
    def cuts(n: int) -> set[tuple[int, int]]:
        return {(s.columns, s.subtiles) for s in structures(plain(512, n, 512), h200)}

    assert {columns for columns, _ in cuts(128)} == {64, 96, 128}
    assert cuts(136) - cuts(128) == {(256, 1), (256, 2), (256, 4), (192, 3), (192, 6), (160, 5), (144, 9)}


def test_tiles_of_96_and_160_columns_are_there_where_tiles_are_few(h200: Machine) -> None:
    """Outputs of fewer elements than two waves of tiles of 128 x 128 have."""

    def columns(rows: int) -> set[int]:
        return {s.columns for s in structures(plain(rows, 512, 512), h200)}

    two_waves = 2 * 132 * 128**2 // 512
    assert columns(two_waves - 128) - columns(two_waves) == {96, 160}
    assert columns(two_waves) == {64, 128, 192, 256}


def test_a_sum_of_powers_of_two_is_taken_where_it_holds_all_columns(h200: Machine) -> None:
    def columns(n: int) -> set[int]:
        return {s.columns for s in structures(plain(512, n, 512), h200)}

    assert columns(96) == {64, 96, 128}
    assert columns(72) == {64, 80, 96, 128}
    assert columns(104) == {64, 96, 112, 128}
    assert columns(200) == columns(232) - {256} | {208, 224, 256}
    assert columns(216) == columns(224) == {64, 96, 128, 160, 192, 224, 256}
    assert columns(232) == columns(576) == {64, 96, 128, 160, 192, 256}


def test_rows_that_are_reduced_lie_in_one_accumulator(h200: Machine) -> None:
    def body(g: GraphBuilder) -> Symbol:
        return g.softmax(product(g, 512, 192, 256), name="y")

    assert {s.columns for s in structures(region_of(body), h200)} == {256}


def test_boxes_are_no_larger_than_the_card_takes(h200: Machine) -> None:
    small = replace(h200, tma_box_extent_max=64)
    assert {(s.rows, s.columns, s.depth) for s in structures(plain(256, 256, 256), small)} == {
        (64, 64, 32),
        (64, 64, 64),
    }


def test_structures_come_once_and_in_one_order(region: Region, h200: Machine) -> None:
    found = list(structures(region, h200))
    assert len(set(found)) == len(found)
    assert list(structures(region, h200)) == found


@pytest.mark.parametrize(
    ("rows", "columns", "groups"),
    [(512, 512, {1, 2, 4}), (520, 512, {1, 2, 4, 8}), (512, 128, {1}), (128, 512, {1})],
)
def test_groups_that_take_tiles_in_the_same_order_come_once(
    rows: int, columns: int, groups: set[int], h200: Machine
) -> None:
    """Of groups that hold all tile rows the least, and one alone where there is one column of tiles."""
    cut, found = plain(rows, columns, 256), list[Structure]()
    for s in structures(cut, h200):
        if (s.rows, s.columns, s.at_once, s.swap) == (128, 128, 1, False):
            found.append(s)
    assert {s.group for s in found} == groups
    widest = next(s for s in found if s.group == max(groups))
    wider = replace(widest, group=2 * widest.group)
    one, other = lower(cut, widest, h200), lower(cut, wider, h200)
    assert (one.demand, one.last_demand, one.dram_bytes) == (
        other.demand,
        other.last_demand,
        other.dram_bytes,
    )


def test_operands_change_sides_where_rows_are_few(h200: Machine) -> None:
    assert {s.swap for s in structures(plain(40, 512, 128), h200)} == {False, True}
    assert {s.swap for s in structures(plain(128, 512, 128), h200)} == {False}


def test_roles_follow_the_swap() -> None:
    assert (row_role(False), column_role(False)) == (Role.ROW, Role.COLUMN)
    assert (row_role(True), column_role(True)) == (Role.COLUMN, Role.ROW)


@functools.cache
def programs(region: Region, machine: Machine) -> tuple[TileProgram, ...]:
    """Of every structure; of those that differ in the order of tiles alone, one."""
    return tuple(lower(region, s, machine) for s in structures(region, machine) if s.group == 4)


def test_programs_cover_the_region(region: Region, h200: Machine) -> None:
    for p in programs(region, h200):
        s, size = p.structure, extents(region)
        batch, rows, columns = (size.get(r, 1) for r in (Role.BATCH, row_role(s.swap), column_role(s.swap)))
        high, wide = math.ceil(rows / s.tile_rows), math.ceil(columns / s.columns)
        assert p.grid.tiles == batch * high * wide
        assert p.tiles == p.grid.tiles * s.splits
        assert high * s.tile_rows >= rows > (high - 1) * s.tile_rows
        k_block = s.depth * s.copies
        most = p.k_iterations * s.splits  # parts may differ by one iteration
        assert most * k_block >= region.extent(Role.STREAM) > (most - s.splits) * k_block


def test_edges_and_rings_name_operations(region: Region, h200: Machine) -> None:
    for p in programs(region, h200):
        names = [op.id for op in p.ops]
        assert len(set(names)) == len(names)
        assert {e.source for e in p.edges} | {e.target for e in p.edges} <= set(names)
        (ring,) = p.rings
        assert set(ring.loads) == {op.id for op in p.ops if op.kind is OpKind.TMA_LOAD}
        assert set(ring.releases) == {op.id for op in p.ops if op.kind is OpKind.RELEASE}
        values = {value.id for value in p.values}
        assert all({*op.inputs, op.output} - {None} <= values for op in p.ops)
        assert values == {op.output for op in p.ops if op.output is not None}


def test_every_product_waits_and_is_waited_for(region: Region, h200: Machine) -> None:
    for p in programs(region, h200):
        makers = {op.output: op.id for op in p.ops if op.kind is OpKind.TMA_LOAD}
        edges = {(e.source, e.target) for e in p.edges if e.distance == 0}
        products = [op for op in p.ops if op.kind is OpKind.MMA]
        sharing = p.structure.consumers if p.structure.sharing is Sharing.COOPERATIVE else 1
        assert len(products) == sharing * p.structure.copies * len(region.contractions)
        for op in products:
            assert {(makers[tile], op.id) for tile in op.inputs} <= edges
            released = [p.op(target) for source, target in edges if source == op.id]
            (release,) = [x for x in released if x.kind is OpKind.RELEASE]
            assert (release.consumer, release.copy) == (op.consumer, op.copy)


def test_bytes_add_up(region: Region, h200: Machine) -> None:
    width = region.operand_dtype.bits // 8
    for p in programs(region, h200):
        s = p.structure
        row = row_role(s.swap)
        wide = sum(s.tile_rows if row in view.roles else s.columns for view in region.operands)
        assert p.rings[0].slot_bytes == wide * s.depth * width
        shared = sum(v.nbytes for v in p.values if v.space is Space.SHARED)
        assert shared == p.rings[0].slot_bytes * s.copies
        k_blocks = region.extent(Role.STREAM) / s.depth / s.splits
        assert p.tile_l2_bytes >= k_blocks * p.rings[0].slot_bytes  # all that is there
        assert p.tile_l2_bytes <= p.k_iterations * shared  # and never more than all slots
        assert not s.tail or p.tile_l2_bytes < (k_blocks + s.tail / s.depth) * p.rings[0].slot_bytes
        assert p.dram_bytes >= region.compulsory_bytes
        full = [x.view for x in region.sources if len(x.spans) == 2]
        assert p.epilogue.input_bytes == sum(v.dtype.bits // 8 for v in full) * s.rows * s.subtile_columns
        kinds = {o.view.dtype for o in region.outputs}
        assert p.epilogue.staged_bytes == sum(d.bits // 8 for d in kinds) * s.rows * s.subtile_columns
        assert p.epilogue.stores == s.subtiles * len(region.outputs)


def test_accumulators_are_counted_a_thread(region: Region, h200: Machine) -> None:
    for p in programs(region, h200):
        threads = p.structure.consumer_warps * h200.threads_per_warp
        own = [v for v in p.values if v.space is Space.REGISTERS and v.consumer == 0]
        assert p.accumulator_registers * threads == sum(math.prod(v.shape) for v in own)
        assert all(v.dtype is DType.F32 for v in own)


def test_the_tensor_core_is_held_for_every_multiplication(region: Region, h200: Machine) -> None:
    rate = h200.tensor[region.operand_dtype.value]
    for p in programs(region, h200):
        s = p.structure
        work = s.tile_rows * s.columns * s.depth * s.copies * len(region.contractions)
        if s.sharing is Sharing.PING_PONG:
            assert s.tile_rows == s.rows
        held = sum(op.busy for op in p.loop if op.unit is Unit.TENSOR)
        joint = s.consumer_warps > h200.warps_per_warpgroup
        assert work / rate <= held <= (1 + 2 * h200.joint_warpgroups_loss * joint) * work / rate + len(p.loop)


def test_programs_are_values(h200: Machine) -> None:
    region = REGIONS["residual"]
    s = next(structures(region, h200))
    assert lower(region, s, h200) == lower(region, s, h200)
    with pytest.raises(KeyError, match="nothing"):
        lower(region, s, h200).named("nothing")


def test_descriptions_tell_structures_apart(h200: Machine) -> None:
    found = [*structures(REGIONS["f8"], h200), *structures(REGIONS["few rows"], h200)]
    assert len({s.describe() for s in found}) == len(set(found))


@pytest.mark.parametrize(("fast", "copies"), [(0, {1, 2}), (1, {1}), (2, {1})])
def test_two_k_blocks_an_iteration_only_where_all_products_are_promoted(
    fast: int, copies: set[int], h200: Machine
) -> None:
    """The sums of another one would be begun by the first K-block and added to by the second, in no fixed order."""

    def body(g: GraphBuilder) -> Symbol:
        x = g.input("x", (256, 512), "f8e4m3")
        p, q = (
            g.matmul(
                x,
                g.input(name, (256, 512), "f8e4m3"),
                transpose_b=True,
                accumulate="fast" if i < fast else "f32",
            )
            for i, name in enumerate("ab")
        )
        return g.cast(p * q, dtype="bf16", name="y")

    assert {s.copies for s in structures(region_of(body), h200)} == copies


# --- scales of partial sums -----------------------------------------------------------------------------


def weights_in_groups(rows: int, group: int) -> Region:
    """A product of so many rows by weights of four bits, in groups along the contracted axis."""
    g = GraphBuilder("weights")
    x, q = g.input("x", (rows, 2048), "bf16"), g.input("q", (512, 2048), "i4", constant=True)
    w = g.cast(g.dequantize(q, g.input("s", (512, 2048 // group), "bf16", constant=True), group), "bf16")
    g.output(g.cast(g.matmul(x, w, transpose_b=True, name="p"), "bf16", name="y"))
    return find_region(g.build())


def test_every_structure_of_weights_in_groups_may_scale_partial_sums(h200: Machine) -> None:
    found = list(structures(weights_in_groups(16, 128), h200))
    plain = [s for s in found if not s.scaled_sums]
    scaled = [s for s in found if s.scaled_sums]
    assert {s.depth for s in scaled} == {128, 256}
    # emitter.v1: a role of its own leaves no partial sums.
    assert {s.transforms for s in plain} == {0, 1}
    assert {replace(s, scaled_sums=False) for s in scaled} == {s for s in plain if not s.transforms}
    assert len(scaled) == len({*scaled})


def test_a_k_block_has_a_few_sets_of_partial_sums(h200: Machine) -> None:
    depths = {
        group: {s.depth for s in structures(weights_in_groups(16, group), h200) if s.scaled_sums}
        for group in (32, 64)
    }
    assert depths == {32: {128}, 64: {128, 256}}
    s = Structure(64, 16, 256, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1, scaled_sums=True)
    program = lower(weights_in_groups(16, 64), s, h200)
    (partial,) = (value for value in program.values if value.id.kind is ValueKind.PARTIAL)
    assert (partial.shape, partial.sets) == ((4, 64, 16), 4)
    (product,) = program.of(OpKind.MMA)
    assert isinstance(product.counts, Product)
    assert (product.counts.sets, product.counts.factors, product.counts.registers) == (4, 1, True)
    # One slot holds the rows, the numbers and their scales.
    (ring,) = program.rings
    assert [member.name for member in ring.members] == ["x", "q", "s"]


def test_a_row_of_weights_in_registers_has_eight_columns(h200: Machine) -> None:
    columns = [{s.columns for s in structures(weights_in_groups(rows, 2048), h200)} for rows in (1, 8, 9)]
    assert columns == [{8}, {8}, {16}]


@pytest.mark.parametrize("length", [1024, 70000], ids=["held", "in parts"])
def test_rows_that_batches_share_come_from_memory_once_for_all(length: int, h200: Machine) -> None:
    """Each batch reduces them with a factor of its own, and no tensor has rows of each."""
    g = GraphBuilder("shared")
    x, factor = g.input("x", (1, 300, length), "bf16"), g.input("factor", (4, 1, 1), "f32")
    g.output(g.reduce_sum(g.exp(x * factor), axis=2))
    region = find_region(g.build())
    every = [lower(region, s, h200) for s in structures(region, h200)]
    assert every
    assert all(held_cycles(program)[Unit.MEMORY] > 0 for program in every)


def taps(count: int, *, of_one: bool) -> Region:
    """So many rows added up: of one sequence, each a row further, or of as many tensors."""
    g = GraphBuilder("taps")
    names = ["x"] * count if of_one else [f"x{at}" for at in range(count)]
    read = {name: g.input(name, (65536 + count, 512), "bf16") for name in dict.fromkeys(names)}
    first, *others = (g.slice(read[name], axis=0, start=at, stop=at + 65536) for at, name in enumerate(names))
    for other in others:
        first = g.add(first, other)
    g.output(g.cast(first, "bf16", name="y"))
    return find_region(g.build())


def test_slices_that_overlap_come_from_memory_once(h200: Machine) -> None:
    alone, one, apart = taps(1, of_one=True), taps(4, of_one=True), taps(4, of_one=False)
    for s in structures(one, h200):
        least, once, each = (
            held_cycles(lower(region, s, h200))[Unit.MEMORY] for region in (alone, one, apart)
        )
        # A few rows more than one tap has, and whole grains of the model's time.
        assert once == pytest.approx(least, rel=0.03, abs=16)
        assert each > 2 * once - 16


@pytest.mark.parametrize("rows", [1, 3], ids=["one row for all", "rows of each"])
def test_rows_that_no_sm_holds_of_vectors_alone_are_refused_and_the_remedy_works(
    rows: int, h200: Machine
) -> None:
    g = GraphBuilder("vectors")
    x, factor = g.input("x", (rows, 70000), "bf16"), g.input("factor", (3, 1), "f32")
    g.output(g.logsumexp(x * factor, axis=1))
    region = find_region(g.build())
    if rows > 1:
        assert any(structures(region, h200))
        return
    with pytest.raises(
        LoweringError, match="vectors alone, and nothing but their reductions is stored; give an"
    ):
        next(structures(region, h200))


def counted(rows: int, values: int) -> Region:
    """How many of some rows' numbers are each value: sums over rows of what no tile is read for."""

    def body(g: GraphBuilder) -> Symbol:
        index = g.input("index", (rows, 1), "i32")
        hot = g.cast(g.equal(g.iota(shape=(1, values), axis=1), index), dtype="f32")
        return g.reduce_sum(hot, axis=0, name="count")

    return region_of(body)


def test_no_structure_comes_twice(h200: Machine) -> None:
    """Rows that a block holds, and that have parts too: a part that is the whole row is the row's own structure."""
    every = list(structures(counted(16384, 64), h200))
    assert any(s.occupancy and s.columns == 16384 for s in every)
    assert len(every) == len(set(every))
