"""Sentences about a schedule follow from its times: what is moved by hand is told otherwise."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import CERTIFICATE, STRUCTURE, product, program, schedule, verified

from wsopt.perf.epilogue import epilogue_cycles
from wsopt.program.epilogue import EpilogueCost
from wsopt.program.facts import Promotion
from wsopt.program.program import Edge, OpKind, TileOp, Unit
from wsopt.program.types import Sharing, Structure
from wsopt.report.sentences import differences, sentences, tensor_shares, unders, words_section
from wsopt.schedule.certificate import Certificate, RunnerUp
from wsopt.schedule.types import PlacedOp
from wsopt.schedule.verified import SEAL, VerifiedSchedule


def moved(**places: tuple[int, int]) -> VerifiedSchedule:
    """The schedule by hand, where each consumer adds up for 200 cycles after its product's result; operations
    are moved to the stage and cycle that are given by name, in both consumers alike.
    """
    base, p = schedule(), program()
    adds = tuple(
        TileOp(product(c, OpKind.ACCUMULATE), (), None, Promotion(64 * 128, 4), (), Unit.ALU, 200, 200, 200)
        for c in (0, 1)
    )
    edges = (*p.edges, *(Edge(product(c), product(c, OpKind.ACCUMULATE), 0) for c in (0, 1)))
    p = dataclasses.replace(p, ops=(*p.ops, *adds), edges=edges)
    at = {"product": (2, 0), "add": (3, 100), "release": (4, 0)} | places
    placed = [one for one in base.placed if one.op.startswith("load")]
    for c, later in ((0, 0), (1, 256)):
        for name, (stage, cycle) in (("mma", at["product"]), ("add", at["add"]), ("release", at["release"])):
            start = stage * 512 + cycle + later
            op = f"release@{c}" if name == "release" else f"{name}:product@{c}"
            placed.append(PlacedOp(op, f"consumer{c}", start // 512, start % 512))
    return VerifiedSchedule(dataclasses.replace(base, placed=tuple(placed)), p, verified().machine, SEAL)


def told(made: VerifiedSchedule) -> str:
    return " ".join(sentences(made))


def test_a_product_under_arithmetic_is_told_with_its_k_block() -> None:
    # Sums of K-block j are added at 1636 to 1836; products start at 1024, 1536, 2048 and take 600 cycles each.
    found = {(u.k_blocks, u.cycles) for u in unders(moved(), 0)}
    assert found == {(1, 200)}
    assert (
        "product of K-block j+1 runs under the adding up of product of K-block j in the same warpgroup "
        "(200 of 600 cycles)." in told(moved())
    )


def test_a_later_addition_is_under_a_later_product() -> None:
    later = moved(add=(4, 100))
    assert {(u.k_blocks, u.cycles) for u in unders(later, 0)} == {(2, 200)}
    assert "product of K-block j+2 runs under the adding up" in told(later)
    begins = "the adding up of product of K-block j begins"
    before = f"product of K-block j+{{}} is issued before {begins}: {{}} are in flight."
    assert before.format(1, 2) in told(moved(add=(3, 500), release=(5, 0)))
    assert before.format(2, 3) in told(moved(add=(4, 100), release=(5, 0)))


def test_an_addition_across_two_products_is_told_twice() -> None:
    across = moved(add=(3, 20))  # 1556 to 1756: the product of 1024 ends at 1624
    assert {(u.k_blocks, u.cycles) for u in unders(across, 0)} == {(0, 68), (1, 200)}


def test_a_product_with_nothing_under_it_is_told() -> None:
    short = dataclasses.replace(moved().program.op(product(0)), latency=80, busy=80)
    other = dataclasses.replace(moved().program.op(product(1)), latency=80, busy=80)
    made = moved()
    ops = tuple({short.id: short, other.id: other}.get(op.id, op) for op in made.program.ops)
    made = VerifiedSchedule(made.schedule, dataclasses.replace(made.program, ops=ops), made.machine, SEAL)
    assert "Nothing of the same warpgroup runs under product: it waits for the result." in told(made)


def test_consumers_are_told_apart_where_they_differ() -> None:
    assert "In consumer" not in told(moved())
    made = moved()
    placed = tuple(
        dataclasses.replace(one, stage=one.stage + 1) if one.op == "add:product@1" else one
        for one in made.schedule.placed
    )
    other = VerifiedSchedule(
        dataclasses.replace(made.schedule, placed=placed), made.program, made.machine, SEAL
    )
    assert "In consumer0: product of K-block j+1 runs" in told(other)
    assert "In consumer1: product of K-block j+2 runs" in told(other)


def test_how_far_consumers_are_apart() -> None:
    assert "2 warpgroups, each with rows of its own, 256 cycles after one another." in told(moved())
    assert "490 cycles after one another" in told(verified())


def test_who_computes_while_the_tensor_core_is_filled() -> None:
    # Products hold it from 0 to 256 and from 256 to 512; additions run from 100 to 300 and from 356 to 44.
    alone, beside = tensor_shares(moved())
    assert beside == pytest.approx((44 + 44) / 512)
    assert alone == pytest.approx(1 - beside)
    assert "While one of them fills the tensor core, the other is in arithmetic 17 % of the time." in told(
        moved()
    )


def test_products_alone_say_what_is_in_flight() -> None:
    made = verified()
    text = told(made)
    assert (
        "product of K-block j+1 is issued before the slot of K-block j is handed back: 2 are in flight."
        in text
    )
    cycles = epilogue_cycles(made.program, made.machine, made.schedule.buffers)
    assert cycles > made.program.epilogue.together  # which has no waits
    assert f"is held for 512 of 512 cycles, and idle in the epilogue ({cycles:,} cycles a tile)." in text
    assert "arithmetic" not in text


def test_ping_pong_says_what_hides_the_epilogue() -> None:
    made = verified()
    ping_pong = dataclasses.replace(STRUCTURE, sharing=Sharing.PING_PONG)
    ops = tuple(op for op in made.program.ops if op.consumer != 1)
    p = dataclasses.replace(made.program, ops=ops, structure=ping_pong)
    text = told(VerifiedSchedule(made.schedule, p, made.machine, SEAL))
    cycles = epilogue_cycles(p, made.machine, made.schedule.buffers)
    whole = (
        f"2 warpgroups take whole tiles in ping-pong: the epilogue of one ({cycles:,} cycles) runs under the "
        "other's"
    )
    assert whole in text
    p = dataclasses.replace(p, epilogue=EpilogueCost(9000, 9000, 8192, 0, 16, 2))
    assert "(9,000 cycles) is longer than the other's loop (4,096 cycles each)" in told(
        VerifiedSchedule(made.schedule, p, made.machine, SEAL)
    )


def with_runner(structure: Structure, time_us: float, ii: int | None) -> Certificate:
    return dataclasses.replace(CERTIFICATE, runners_up=(RunnerUp(structure, time_us, ii),))


def test_the_runner_up() -> None:
    three = dataclasses.replace(STRUCTURE, consumers=3, persistent=False)
    assert differences(STRUCTURE, three) == ["consumers 3 instead of 2", "persistent no instead of yes"]
    solved = " ".join(words_section(verified(), with_runner(three, 15.4, 600), 100))
    assert "The runner-up would have taken 15.40 us, 10.00 % more, with an II of 600 cycles." in solved
    assert "It has consumers 3 instead of 2 and persistent no instead of yes." in solved
    bound = " ".join(words_section(verified(), with_runner(three, 14.7, None), 100))
    assert "The runner-up was not solved: by its bound it takes 14.70 us, 5.00 % more, at least." in bound
    same = " ".join(words_section(verified(), with_runner(STRUCTURE, 14.0, 512), 100))
    assert "It differs in its order alone." in same
    none = dataclasses.replace(CERTIFICATE, runners_up=())
    assert "runner-up" not in " ".join(words_section(verified(), none, 100))


def test_two_blocks_an_sm_are_told() -> None:
    made = moved()
    two = dataclasses.replace(
        made.program, structure=dataclasses.replace(made.program.structure, occupancy=2, persistent=True)
    )
    with_two = VerifiedSchedule(made.schedule, two, made.machine, SEAL)
    assert "An SM has 2 blocks at a time, each with a ring and a loading warp of its own" in told(with_two)
    assert "blocks at a time" not in told(made)
