"""What more of a budget buys: each variant changes what it says, never costs time, and is solved in full."""

from __future__ import annotations

import functools
from dataclasses import fields, replace

import pytest
from fewer_structures import search_only
from solve_examples import MARGIN, region, structure

from wsopt.deadline import Deadline
from wsopt.errors import TimeOverError
from wsopt.machine import Machine
from wsopt.report.whatif import changes, whatif_data, whatif_text
from wsopt.schedule.certificate import Certificate
from wsopt.schedule.verified import VerifiedSchedule, for_trial
from wsopt.solve import search
from wsopt.solve import sensitivity as sensitivity_module
from wsopt.solve.search import Search
from wsopt.solve.sensitivity import Sensitivity, sensitivity, variants

pytestmark = pytest.mark.solver

REGION = region(1024, 1024, 512, residual=True)
CHANGED = {
    "shared memory +10 %": {"shared_memory_per_block_bytes", "shared_memory_per_sm_bytes"},
    "one more slot of the ring": {"shared_memory_per_block_bytes", "shared_memory_per_sm_bytes"},
    "registers +10 %": {"registers_per_sm", "setmaxnreg_max_registers", "max_registers_per_thread"},
    "tensor rate +10 %": {
        *("tensor", "dense_tflops", "mma_least_cycles", "mma_least_cycles_per_column"),
        "mma_least_cycles_registers",
    },
    "exp2 and its pipe +10 %": {"scalar"},
    "L2 bandwidth +10 %": {"l2_bandwidth", "l2_distinct_bandwidth"},
    "memory bandwidth +10 %": {"dram_sustained_bandwidth", "dram_read_bandwidth", "dram_bandwidth"},
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search sees these structures alone; the largest wants more registers than a thread can have."""
    chosen = (structure(64, 128, 64, 2), structure(64, 64, 64, 1), structure(64, 256, 64, 2))
    search_only(monkeypatch, chosen)


@pytest.fixture
def one_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tensor rate is varied."""
    every = sensitivity_module.variants
    monkeypatch.setattr(sensitivity_module, "variants", lambda verified: every(verified)[3:4])


def solved(machine: Machine) -> tuple[VerifiedSchedule, Certificate]:
    return Search(REGION, machine, MARGIN).run()


@functools.cache
def on_a_small_card(h200: Machine) -> tuple[VerifiedSchedule, Sensitivity, tuple[str, ...]]:
    """The best on a card with little shared memory, where every budget counts, its gains, and the stages told; of the
    `few` structures.
    """
    assert len([*search.structures(REGION, h200)]) == 3
    best, certificate = solved(replace(h200, shared_memory_per_block_bytes=80 * 1024))
    stages: list[str] = []
    found = sensitivity(
        best, certificate, lambda stage, done, total: stages.append(f"{done}/{total} {stage}")
    )
    return best, found, tuple(stages)


@pytest.mark.usefixtures("few")
def test_each_variant_is_more_of_what_it_names(h200: Machine) -> None:
    best, _ = solved(h200)
    found = {variant.name: variant for variant in variants(best)}
    assert set(found) == set(CHANGED)
    for name, variant in found.items():
        pairs = {f.name: (getattr(h200, f.name), getattr(variant.machine, f.name)) for f in fields(h200)}
        assert {key for key, (now, then) in pairs.items() if now != then} == CHANGED[name]
        for key in CHANGED[name]:
            now, then = pairs[key] if "cycles" not in key else reversed(pairs[key])
            assert now < then if not hasattr(now, "values") else sum(now.values()) < sum(then.values())
    slot = found["one more slot of the ring"].machine.shared_memory_per_block_bytes
    s = best.schedule.structure
    assert slot - h200.shared_memory_per_block_bytes == (s.tile_rows + s.columns) * s.depth * 2 + 16
    more = found["exp2 and its pipe +10 %"].machine.scalar
    assert (more["exp2"], more["tanh"], more["fma"]) == (
        pytest.approx(17.6),
        pytest.approx(17.6),
        h200.scalar["fma"],
    )


@pytest.mark.usefixtures("few")
def test_no_pipe_no_row(h200: Machine) -> None:
    best, _ = solved(h200)
    without = replace(h200, scalar_unit={**h200.scalar_unit, "exp2": "fma"})
    names = {variant.name for variant in variants(for_trial(best, machine=without))}
    assert "exp2 and its pipe +10 %" not in names


@pytest.mark.usefixtures("few")
def test_more_never_costs_and_is_the_best_there(h200: Machine) -> None:
    best, found, stages = on_a_small_card(h200)
    assert found.base.schedule == best.schedule
    assert [line.partition(" ")[2] for line in stages] == ["as it is", *CHANGED]
    for effect in found.effects:
        own = effect.verified.schedule
        assert own.prediction.microseconds <= best.schedule.prediction.microseconds + 1e-9
    for effect in found.effects[1::3]:
        again, _ = solved(effect.variant.machine)
        assert effect.verified.schedule == again.schedule
    tensor = next(e for e in found.effects if e.variant.name == "tensor rate +10 %")
    assert tensor.verified.schedule.prediction.microseconds < best.schedule.prediction.microseconds


@pytest.mark.usefixtures("few", "one_variant")
def test_what_the_compiler_rejected_stays_out(h200: Machine) -> None:
    first, _ = solved(h200)
    rejected = frozenset({first.schedule.structure})
    best, certificate = Search(REGION, h200, MARGIN, rejected=rejected).run()
    found = sensitivity(best, certificate)
    assert found.base.schedule == best.schedule
    assert len(found.effects) == 1
    assert first.schedule.structure not in {e.verified.schedule.structure for e in found.effects}


@pytest.mark.usefixtures("few")
def test_the_table(h200: Machine) -> None:
    best, found, _ = on_a_small_card(h200)
    text = whatif_text(best, found)
    data = whatif_data(best, found)
    assert text == whatif_text(best, found)
    assert max(map(len, text.splitlines())) <= 100
    for effect, row in zip(found.effects, data["what_if"], strict=True):
        assert effect.variant.name in text
        assert row["gain"] >= -1e-9
        assert row["changes"] == list(changes(best.schedule, effect.verified.schedule))
    assert any(row["changes"] and row["gain"] > 0 for row in data["what_if"])
    assert changes(best.schedule, best.schedule) == ()
    deeper = replace(best.schedule, ii=700, rings=(("ring", 9),))
    assert changes(best.schedule, deeper) == (
        f"II {best.schedule.ii} -> 700",
        f"ring {best.schedule.depth('ring')} slots -> 9 slots",
    )


@pytest.mark.usefixtures("few", "one_variant")
def test_a_build_that_is_not_the_first_choice_is_told(h200: Machine) -> None:
    ranked = Search(REGION, h200, MARGIN, keep=2).run_all()
    second, certificate = ranked[1]
    found = sensitivity(second, certificate)
    assert found.base.schedule == ranked[0][0].schedule
    assert "Gains are against the model's first choice; this build is predicted" in whatif_text(second, found)


@pytest.mark.usefixtures("few")
def test_variants_for_which_there_is_no_time_are_named(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    best, certificate = solved(h200)
    limit, seen = Deadline(3600.0), list[str]()

    def show(stage: str, done: int, total: int) -> None:
        seen.append(stage)
        if done == 1:  # the first variant is at work when the time is over
            monkeypatch.setattr(Deadline, "over", True)

    found = sensitivity(best, certificate, show, limit)
    names = [variant.name for variant in variants(best)]
    assert found.effects == ()
    assert found.skipped == tuple(names)
    assert seen == ["as it is", names[0]]
    assert whatif_data(best, found)["skipped"] == names
    assert "Skipped for lack of time: shared memory +10 %, one more" in whatif_text(best, found)
    with pytest.raises(TimeOverError):
        sensitivity(best, certificate, deadline=limit)
