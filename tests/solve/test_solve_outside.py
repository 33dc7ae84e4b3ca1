"""The certificate says what the space did not hold: limits that apply, and what of the machine is idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import TypeAdapter
from solve_examples import MARGIN, attention, region, structure

from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder
from wsopt.machine import Machine
from wsopt.perf.price import lower
from wsopt.program.limits import Limit
from wsopt.report.outside import outside_section
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.outside import Absent, Padded
from wsopt.solve import search
from wsopt.solve.limits import left_out, touching
from wsopt.solve.outside import outside_of
from wsopt.solve.search import Search


def few_tiles(machine: Machine) -> tuple[str, Certificate]:
    """The section, as one line, and the certificate of a graph with 16 tiles of 128 x 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "structures", lambda *_: iter([structure(64, 64, 64, 2)]))
        verified, certificate = Search(region(256, 512, 4096), machine, MARGIN).run()
    return " ".join(" ".join(outside_section(verified, certificate, 100)).split()), certificate


@pytest.mark.solver
def test_a_graph_of_few_tiles_names_the_sms_that_have_none(h200: Machine) -> None:
    told, certificate = few_tiles(h200)
    outside = certificate.outside
    assert outside is not None
    assert (outside.idle_sms, outside.absent) == (132 - 16, (Absent.CLUSTERS, Absent.BLOCKS))
    assert outside.idle == pytest.approx(116 / 132)
    assert "split" not in told, "other structures of products split their sums"
    assert "116 of 132 SMs have no tile in the only wave; 87.9 % of the SMs' time" in told


@pytest.mark.solver
def test_a_certificate_is_read_as_it_was_written(h200: Machine) -> None:
    certificate, as_json = few_tiles(h200)[1], TypeAdapter(Certificate)
    assert as_json.validate_json(as_json.dump_json(certificate)) == certificate


@pytest.mark.solver
def test_only_limits_that_apply_are_told(h200: Machine) -> None:
    told, certificate = few_tiles(h200)
    assert certificate.outside is not None
    names = dict(certificate.outside.limits)
    assert names.keys() >= {Limit.SLOTS_IN_ORDER.value, Limit.LOADERS.value}
    assert not names.keys() & {Limit.ONE_PROGRAM.value, Limit.ROWS_IN_A_PASS.value, Limit.MOST_SLOTS.value}
    assert "slots filled in order (1)" in told
    assert "rows" not in told.partition("No clusters")[0]


def test_axes_that_tiles_reach_over_are_told_with_their_share(h200: Machine) -> None:
    """1000 x 96 of 64: eight tiles of 128 rows, of 128 columns; exact along the contracted axis."""
    program = lower(region(1000, 96, 64), structure(64, 128, 64, 2), h200)
    found = outside_of(program, h200, {})
    assert found.padded == (Padded("row", 1000, 1024), Padded("column", 96, 128))
    assert found.padding == pytest.approx(1 - 1000 * 96 / (1024 * 128))
    assert Absent.SPLIT not in found.absent
    assert Absent.DYNAMIC not in found.absent, "each block has one tile"


def test_blocks_of_products_that_have_several_tiles_know_them_before(h200: Machine) -> None:
    program = lower(region(2048, 1024, 64), structure(64, 64, 64, 2), h200)
    assert program.tiles == 256
    assert Absent.DYNAMIC in outside_of(program, h200, {}).absent


def test_heads_are_padded_along_the_columns_alone(h200: Machine) -> None:
    program = lower(attention(96), replace(structure(64, 128, 128, 2), group=1), h200)
    found = outside_of(program, h200, {})
    assert found.padded == (Padded("column", 96, 128),)
    assert found.padding == pytest.approx(1 / 7)  # 96 of 96 in the scores, 96 of 128 in the sums


def test_tiles_of_unequal_length_do_not_come_in_waves(h200: Machine) -> None:
    g = GraphBuilder("causal")
    q, k, v = (g.input(name, (1, 3, 2048, 64), "bf16") for name in "qkv")
    rows, columns = g.iota((2048, 1), axis=0), g.iota((1, 2048), axis=1)
    scores = g.where(rows >= columns, g.matmul(q, k, transpose_b=True), float("-inf"))
    g.output(g.cast(g.matmul(g.cast(g.softmax(scores, axis=-1), dtype="bf16"), v), dtype="bf16", name="o"))
    program = lower(find_region(g.build()), replace(structure(64, 64, 64, 2), group=1), h200)
    found = outside_of(program, h200, {})
    assert found.idle_sms == 0
    assert 0.3 < found.idle < 0.9
    assert found.absent[0] is Absent.SPLIT


def test_structures_that_a_limit_leaves_out_are_counted(h200: Machine) -> None:
    found = left_out(attention(), h200, set(search.structures(attention(), h200)))
    assert found.keys() == {Limit.COOPERATIVE_VALUES}
    assert left_out(region(256, 256, 256), h200, set(search.structures(region(256, 256, 256), h200))) == {}


def test_what_a_budget_rules_out_no_limit_does(h200: Machine) -> None:
    program = lower(region(256, 256, 256), structure(64, 64, 64, 1), h200)
    assert touching(program, h200, MARGIN, "registers: too few") == frozenset()
    assert Limit.LOADERS in touching(program, h200, MARGIN, "")
