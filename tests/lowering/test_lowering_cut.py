"""From steps to operations, by hand: dependences, tiles of one consumer or of all, slots that are handed back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wsopt.graph.types import DType
from wsopt.lowering.cut import Cut, Held, Load, Ring, Step, When, cut
from wsopt.program.facts import Cost, Member
from wsopt.program.ids import OpKind, ValueKind
from wsopt.program.types import Sharing, Structure
from wsopt.tensors.views import Role, View

ONE = Structure(64, 128, 32, 1, 4, Sharing.COOPERATIVE, True, False, 1, 1)
PAIR = replace(ONE, consumers=2)
COST = Cost(1, 1)


def member(name: str, role: Role, rows: int, copies: int) -> Member:
    view = View(name, DType.BF16, (role, Role.STREAM), (512, 512), (512, 1), ((0,), (1,)), 2)
    return Member(view, name, (rows, 32), copies, role is Role.ROW)


def ring(s: Structure) -> Ring:
    """Rows of x for each consumer, and columns of w for all, in one slot."""
    x, w = member("x", Role.ROW, 64, s.at_once), member("w", Role.COLUMN, 128, 1)
    own = [Load(x, consumer, x.shape, x.box(x.shape)) for consumer in range(s.at_once)]
    return Ring("ring", ("",), (*own, Load(w, None, w.shape, w.box(w.shape))))


PRODUCT = Step(
    OpKind.MMA, "p", COST, ((ValueKind.TILE, "x"), (ValueKind.TILE, "w")), (ValueKind.PARTIAL, "p"), (64, 128),
    after=((OpKind.ACCUMULATE, "p", When.AGAIN),), holds=(Held("p", ((OpKind.ACCUMULATE, "p"),), 64),),
)  # fmt: skip
ADD = Step(
    OpKind.ACCUMULATE, "p", COST, ((ValueKind.PARTIAL, "p"), (ValueKind.SUM, "p")), (ValueKind.SUM, "p"),
    (64, 128), after=((OpKind.MMA, "p", When.SAME), (OpKind.ACCUMULATE, "p", When.BEFORE)),
)  # fmt: skip
RELEASE = Step(OpKind.RELEASE, "", COST)


def made(s: Structure, *steps: Step) -> Cut:
    return cut((ring(s),), steps or (PRODUCT, ADD, RELEASE), s)


def edges(found: Cut) -> set[tuple[str, str, int]]:
    return {(str(edge.source), str(edge.target), edge.distance) for edge in found.edges}


def test_consumers_have_tiles_of_their_own_rows_and_share_the_rest() -> None:
    found = made(PAIR)
    assert [str(op.id) for op in found.ops] == [
        "load:x@0", "load:x@1", "load:w",
        "mma:p@0", "add:p@0", "release@0", "mma:p@1", "add:p@1", "release@1",
    ]  # fmt: skip
    inputs = {str(op.id): [str(value) for value in op.inputs] for op in found.ops}
    assert inputs["mma:p@1"] == ["tile:x@1", "tile:w"]
    assert {("load:x@1", "mma:p@1", 0), ("load:w", "mma:p@1", 0)} <= edges(found)
    assert ("load:x@0", "mma:p@1", 0) not in edges(found)


def test_consumers_in_ping_pong_are_one() -> None:
    found = made(replace(PAIR, sharing=Sharing.PING_PONG))
    assert {op.consumer for op in found.ops} == {None, 0}


def test_one_k_block_an_iteration_comes_before_itself() -> None:
    assert {("mma:p@0", "add:p@0", 0), ("add:p@0", "mma:p@0", 1), ("add:p@0", "add:p@0", 1)} <= edges(
        made(ONE)
    )


def test_k_blocks_of_an_iteration_follow_each_other_round_the_loop() -> None:
    found = edges(made(replace(ONE, copies=2)))
    # The sums are one, so that K-block after K-block is added; partial sums are a K-block's own.
    assert {("add:p@0", "add:p@0#1", 0), ("add:p@0#1", "add:p@0", 1)} <= found
    assert {("add:p@0", "mma:p@0", 1), ("add:p@0#1", "mma:p@0#1", 1), ("load:w#1", "mma:p@0#1", 0)} <= found
    assert not {("add:p@0", "mma:p@0#1", 0), ("load:w", "mma:p@0#1", 0)} & found


def test_a_slot_is_handed_back_after_all_that_read_it() -> None:
    reader = Step(OpKind.ELEMENTWISE, "rows", COST, ((ValueKind.TILE, "x"),))
    found = made(PAIR, PRODUCT, reader, ADD, RELEASE)
    waited = {source for source, target, _ in edges(found) if target == "release@1"}
    assert waited == {"mma:p@1", "rows@1"}  # what adds up reads registers
    (back,) = [op for op in found.ops if str(op.id) == "release@1"]
    assert [str(value) for value in back.inputs] == ["partial:p@1"]


@pytest.mark.parametrize("copies", [1, 2])
def test_a_ring_has_the_copies_and_returns_of_every_k_block(copies: int) -> None:
    found = made(replace(PAIR, copies=copies))
    (plan,) = found.rings
    assert len(plan.loads) == 3 * copies
    assert len(plan.releases) == 2 * copies
    assert plan.slot_bytes == (2 * 64 + 128) * 32 * 2
    assert [one.name for one in plan.members] == ["x", "w"]


def test_rings_of_their_own_are_handed_back_apart() -> None:
    x, w = member("x", Role.ROW, 64, 1), member("w", Role.COLUMN, 128, 1)
    rings = tuple(
        Ring(one.name, (one.name,), (Load(one, None, one.shape, one.box(one.shape)),)) for one in (x, w)
    )
    first = Step(OpKind.MMA, "p", COST, ((ValueKind.TILE, "x"),), (ValueKind.VALUE, "p"), (64, 128))
    other = Step(OpKind.MMA, "q", COST, ((ValueKind.TILE, "w"),), (ValueKind.SUM, "q"), (64, 128))
    back = tuple(replace(RELEASE, subject=one) for one in ("x", "w"))
    found = cut(rings, (first, other, *back), ONE)
    assert {("mma:p@0", "release:x@0", 0), ("mma:q@0", "release:w@0", 0)} <= edges(found)
    assert not {("mma:q@0", "release:x@0", 0), ("mma:p@0", "release:w@0", 0)} & edges(found)
    assert [[str(one) for one in plan.releases] for plan in found.rings] == [["release:x@0"], ["release:w@0"]]


def test_sums_are_one_tile_and_partial_sums_one_a_k_block() -> None:
    found = made(replace(ONE, copies=2))
    registers = [str(value.id) for value in found.values if value.id.kind is not ValueKind.TILE]
    assert registers == ["partial:p@0", "sum:p@0", "partial:p@0#1"]


def test_what_a_step_leaves_to_another_lives_in_every_consumer() -> None:
    found = [(str(t.value), str(t.maker), [str(r) for r in t.readers], t.registers) for t in made(PAIR).live]
    assert found == [(f"value:p@{c}", f"mma:p@{c}", [f"add:p@{c}"], 64) for c in range(2)]
