"""Pictures as data: one interval is the schedule's numbers, the time line is the block as it runs."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from page_builds import NAMES, Pages, write_build

from wsopt.pages import figures
from wsopt.pages.drawn import Bar, Picture
from wsopt.pages.interval import channels, interval_picture
from wsopt.pages.timeline import loop_iterations, loop_of, timeline_picture
from wsopt.perf.steady_state import steady_state
from wsopt.perf.threads import Block, Run
from wsopt.program.units import UNITS
from wsopt.schedule.verified import VerifiedSchedule

RECORDED = (
    *NAMES,
    "golden-split",
    "golden-shared",
    "golden-residual_ping_pong",
    "golden-scaled",
    "golden-joined",
)


def rows(picture: Picture) -> dict[str, list[Bar]]:
    found: dict[str, list[Bar]] = defaultdict(list)
    for bar in picture.bars:
        found[picture.rows[bar.row].name].append(bar)
    return found


@pytest.fixture(scope="module", params=RECORDED)
def verified(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VerifiedSchedule:
    return write_build(tmp_path_factory.mktemp("builds") / "one", request.param)


def test_the_interval_has_every_operation_on_what_it_holds(verified: VerifiedSchedule) -> None:
    schedule, found = verified.schedule, rows(interval_picture(verified))
    for op in verified.program.loop:
        placed = schedule.place(op.id)
        for name, cycles in (*op.held, (placed.partition, op.issue)):
            if not cycles:
                continue
            row = found[UNITS[name].words if name in UNITS else name]
            own = [bar for bar in row if bar.op == str(op.id)]
            assert sum(bar.end - bar.begin for bar in own) == cycles
            assert own[0].begin == placed.cycle
    for bars in found.values():
        ordered = sorted(bars, key=lambda bar: bar.begin)
        assert all(one.end <= after.begin for one, after in itertools.pairwise(ordered))


def test_no_channel_has_less_than_no_slack(verified: VerifiedSchedule) -> None:
    picture = interval_picture(verified)
    assert len(picture.arrows) == len(list(channels(verified))) > 0
    assert all(arrow.slack >= 0 for arrow in picture.arrows)
    rings = {one["name"]: one["slack"] for one in figures.rings(verified)}
    returned = [arrow.slack for arrow in picture.arrows if arrow.source.startswith("release")]
    assert min(returned) == min(rings.values())


def test_the_time_line_is_the_run_and_covers_the_block(verified: VerifiedSchedule) -> None:
    picture, begin = timeline_picture(verified), verified.schedule.prediction.start
    run = Run(Block(verified), loop_iterations(verified))
    run.go()
    found = rows(picture)
    for op, starts in run.started.items():
        role = verified.schedule.place(verified.program.named(op).id).partition
        drawn = {
            bar.iteration: bar.begin
            for bar in sorted(found[role], key=lambda bar: bar.begin, reverse=True)
            if bar.op == op and not bar.waits
        }
        for iteration in [one for one in drawn if one < 30]:
            assert drawn[iteration] == pytest.approx(begin + starts[iteration], abs=0.1)
    for name, bars in found.items():
        held = sorted((bar for bar in bars if not bar.waits), key=lambda bar: bar.begin)
        assert all(one.end <= after.begin + 0.2 for one, after in itertools.pairwise(held)), name
    assert picture.bands[0].begin == 0
    assert all(one.end == after.begin for one, after in itertools.pairwise(picture.bands))
    p = verified.schedule.prediction
    assert picture.total == pytest.approx(picture.bands[-1].end)
    assert picture.total >= p.cycles - p.power - 1e-6
    for arrow in picture.arrows:
        assert arrow.end >= arrow.begin - 0.2


def test_what_is_left_out_of_a_long_loop_keeps_its_place(pages: Pages) -> None:
    verified = pages.builds["gemm_bf16"].verified
    loop = loop_of(verified)
    assert loop.iterations == verified.program.k_iterations == 128
    whole = Run(Block(verified), 128)
    whole.go()
    for op, starts in whole.started.items():
        drawn = loop.run.started[op]
        assert loop.at(drawn[-1], len(drawn) - 1) == pytest.approx(starts[-1], rel=0.002)
    assert loop.interval == steady_state(verified).interval


def test_live_registers_are_what_the_checker_counts(pages: Pages) -> None:
    found = pages.builds["attention_causal"]
    roles = figures.registers(found.verified, found.certificate.margin)["roles"]
    for role in roles:
        assert all(count <= role["has"] for _, count in role["steps"])
    consumer = roles[0]
    least = found.verified.program.accumulator_registers + found.certificate.margin
    counts = [count for _, count in consumer["steps"]]
    assert min(counts) >= least
    assert max(counts) > least
    assert not roles[-1]["steps"]


def test_parts_add_up(pages: Pages) -> None:
    for found in pages.builds.values():
        time, memory = figures.time(found.verified), figures.shared_memory(found.verified)
        assert sum(part["cycles"] for part in time["parts"]) == pytest.approx(time["cycles"])
        assert sum(part["bytes"] for part in memory["parts"]) == memory["taken"]
        assert memory["taken"] + memory["free"] == memory["limit"]
