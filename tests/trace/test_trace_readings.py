"""Records of traced kernels read back: from runs in the simulation, and with stamps that changed places."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from emit_builds import case, small_case
from trace_builds import NAMES, Traced, launched, traced
from trace_records import records

from wsopt.errors import CheckError
from wsopt.trace.files import Partition
from wsopt.trace.readings import TileReadings, readings


def tiles_of(one: Traced, words: list[int], role: str) -> list[tuple[Partition, TileReadings]]:
    return [
        (partition, tile)
        for partition in one.stamped.partitions
        if partition.role == role
        for tile in readings(words, one.stamped, partition)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_stamps_of_a_run_are_in_the_order_of_the_program(name: str) -> None:
    one = traced(name)
    # The simulation's clock counts its readings, so that a stamp in a wrong place would come before another.
    example = small_case(one.made)
    for seed in range(3):
        _, words = launched(one, example.inputs, seed)
        for partition in one.stamped.partitions:
            found = list(readings(words, one.stamped, partition))
            assert found, partition.name
            for tile in found:
                times = [*tile.events.values()]
                assert times == sorted(times)
                assert all(after > tile.passes[place] for place, after in tile.after.items())


def test_every_operation_of_every_iteration_is_stamped() -> None:
    one = traced("plain")
    example = small_case(one.made, k_iterations=7)
    _, words = launched(one, example.inputs)
    for partition, tile in tiles_of(one, words, "consumer"):
        assert list(tile.events) == list(partition.tile)
        for op in partition.ops:
            rows = [row for row, number in tile.passes if number == op.started]
            assert rows == list(range(op.stage, 7 + op.stage)), op.op


def test_masked_and_whole_k_blocks_have_stamps_of_their_own() -> None:
    one = traced("causal")
    _, words = launched(one, case(one.made.graph).inputs)
    found = tiles_of(one, words, "consumer")
    kinds = {partition.passes[number].masked for partition, tile in found for _, number in tile.passes}
    assert kinds == {False, True}
    for partition, tile in found:
        masked = {row for row, number in tile.passes if partition.passes[number].masked}
        whole = {
            row
            for row, number in tile.passes
            if not partition.passes[number].masked and partition.passes[number].op.startswith("mma:s")
        }
        assert not masked & whole, "a K-block's first product is issued once"


@pytest.mark.parametrize("seed", range(3))
def test_a_product_starts_after_the_copies_that_it_reads(seed: int) -> None:
    one = traced("plain")
    _, words = launched(one, small_case(one.made).inputs, seed)
    starts = {}
    for partition in one.stamped.partitions:
        loads = sorted(op.started for op in partition.ops if "release" not in op.op)
        for block, k_block in itertools.product(range(one.stamped.blocks), range(4)):
            first = block * one.stamped.block_words + partition.first + len(partition.tile)
            place = first + k_block * len(partition.passes)
            starts[partition.name, block, k_block] = [words[place + number] for number in loads]
    for block, k_block in itertools.product(range(one.stamped.blocks), range(4)):
        copies = starts["loader0", block, k_block]
        for consumer in ("consumer0", "consumer1"):
            (product,) = starts[consumer, block, k_block]
            assert 0 < min(copies) < product


def test_a_stamp_out_of_order_is_an_error() -> None:
    one = traced("plain")
    words = records(one.stamped, 6)
    consumer = one.stamped.partitions[0]
    place = consumer.first + len(consumer.tile) + 2 * len(consumer.passes)
    product, release = (op.started for op in consumer.ops)
    words[place + product], words[place + release] = words[place + release], words[place + product]
    told = r"consumer0, tile 0: release@0 \(start\) of K-block 2 is stamped before release@0 \(reached\) of K-block 2"
    with pytest.raises(CheckError, match=f"block 0, {told}"):
        list(readings(words, one.stamped, consumer))


@pytest.mark.parametrize(("one", "other"), [(1, 2), (0, 3)])
def test_an_emitter_that_mixes_up_two_stamps_is_seen_in_a_run(one: int, other: int) -> None:
    made = traced("plain")
    stamp = "stamp(passes + step * CONSUMER_PASS_STAMPS + {}, ".format
    assert stamp(one) in made.source
    source = made.source.replace(stamp(one), "first(").replace(stamp(other), stamp(one))
    mixed = replace(made, source=source.replace("first(", stamp(other)))
    _, words = launched(mixed, small_case(made.made).inputs)
    with pytest.raises(CheckError, match="which comes first in the program"):
        tiles_of(mixed, words, "consumer")


def test_the_clock_may_go_round() -> None:
    one = traced("plain")
    (first, *_) = readings(records(one.stamped, 6), one.stamped, one.stamped.partitions[0])
    times = sorted(first.passes.values())
    assert max(times) > 5000 > min(times) > 0
    assert times[-1] < 20 * one.stamped.ii
