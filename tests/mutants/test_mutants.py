"""A fixed sample of the mutants of `make mutants`, the list of superfluous statements, and what they are run by."""

from __future__ import annotations

import functools
import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "digests"))

import mutants
import mutants_files
import mutants_kernels
import pytest
import replay
import simulated
from mutants_listed import ENDS_NOTHING, complaints, places, read_list
from mutants_prepared import Prepared, load, names, save
from mutants_run import Attempt, Bench, Outcome, outcomes

from wsopt.emit.source import emit
from wsopt.graph.serialize import canonical_bytes
from wsopt.interpret import Place, deletions
from wsopt.simulation import Simulation, simulate

SAMPLE = {
    **dict.fromkeys((f"golden-{name}" for name in mutants_kernels.GOLDENS), 2),
    "golden-split": 4,
    "attention_causal": 3,
    "gemm_residual": 4,
    "router": 2,
    "softmax_rows": 1,
}
"""Kernels of the sample: of each, one mutant in so many is run, listed or not."""


SEARCHED_ELSEWHERE = ("gemm_residual",)
"""Problems of which tests/report has the search and the compiler's answer: tens of seconds."""


def graphs_that_are_known(*asked: Any) -> Simulation:
    """As `simulate`, whose runs are known: all that a bench takes of them is which graphs run a kernel's lines."""
    with simulated.known_runs():
        return simulate(*asked)


@functools.cache
def prepared(name: str) -> Prepared:
    """A kernel of the sample, by its recorded schedule where another test searches for it at length."""
    with pytest.MonkeyPatch.context() as patch:  # builds, which are kept in the cache, are simulated as ever
        patch.setattr(mutants_kernels, "simulate", graphs_that_are_known)
        if name not in SEARCHED_ELSEWHERE:
            return mutants_kernels.prepare(name)
        verified = replay.verified_of(name)
        graph = replay.graph_of(name, replay.recorded(name))
        return mutants_kernels.prepared_from(name, graph, verified, emit(verified))


def sampled(name: str) -> frozenset[Place]:
    """The places of the sample in a kernel: by a digest of what stands there, so that it does not move with lines."""
    found = [place for place, _ in deletions(prepared(name).source)]
    return frozenset(place for place in found if _digest(f"{name}, {place}") % SAMPLE[name] == 0)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


class Known(Bench):
    """A bench that judges a run only where there is no record of what it shows, and of others one in sixteen."""

    def fault(self, source: str, attempt: Attempt, ending: set[int] | None = None) -> str:
        run, draw = self.tried[attempt[0]]
        digest = hashlib.sha256(canonical_bytes(run.graph)).hexdigest()
        case = f"{digest} {draw} {sorted(run.tolerance.items())}"
        if ending is not None:
            executed = functools.partial(self.executed, source, attempt)
            ending |= simulated.ending_waits(case, source, attempt[1], lambda: executed().ending)
        found = simulated.fault(case, source, attempt[1], lambda: Bench.fault(self, source, attempt) or None)
        return found or ""


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_sample(name: str) -> None:
    listed = read_list()
    found = list(outcomes(Known.of(prepared(name)), sampled(name), places(listed, name)))
    assert len(found) >= min(2, len(list(deletions(prepared(name).source))))
    assert complaints(found, listed, ()) == []


def test_every_statement_that_orders_is_deleted_once() -> None:
    source = prepared("golden-plain").source
    found = list(deletions(source))
    assert len({place for place, _ in found}) == len(found)
    kinds = {mutant.kind for _, mutant in found}
    assert kinds == {
        "drop-wait", "drop-arrive", "drop-expect", "drop-fence", "drop-store_wait", "drop-gdc_wait", "drop-mma-wait",
    }  # fmt: skip
    device = source[: source.index("\nOPTIONS = ")]
    calls = ("mbarrier.wait(", "mbarrier.arrive(", "mbarrier.expect(", "fence_async_shared()", "tma.store_wait(",
             "gdc_wait()", "warpgroup_mma_wait(")  # fmt: skip
    lines = [line for line in device.splitlines() if not line.lstrip().startswith("#")]
    assert len(found) == sum(line.count(call) for line in lines for call in calls)


def test_a_place_outlives_lines_that_move() -> None:
    source = prepared("golden-plain").source
    moved = source.replace("@gluon.jit\n", "\n\n# a comment\n@gluon.jit\n")
    assert [place for place, _ in deletions(moved)] == [place for place, _ in deletions(source)]


# --- the list -------------------------------------------------------------------------------------------

PLACE = Place("consumer", "x = warpgroup_mma_wait(1, deps=(x,))", 1)


def outcome(fault: str = "", *, idle: bool = True) -> Outcome:
    return Outcome("kernel", PLACE, fault, idle)


def listing(
    tmp_path: Path, *, rule: str = ENDS_NOTHING, why: str = "no product is left", count: int = 1
) -> Path:
    path = tmp_path / "list.toml"
    entry = (
        f'[[superfluous]]\nkernels = ["kernel"]\nfunction = "{PLACE.function}"\nstatement = "{PLACE.statement}"\n'
        f'occurrence = {PLACE.occurrence}\nrule = "{rule}"\nwhy = "{why}"\n'
    )
    path.write_text(entry * count, encoding="utf-8")
    return path


def test_a_survivor_needs_an_entry(tmp_path: Path) -> None:
    listed = read_list(listing(tmp_path))
    assert complaints([outcome()], listed, ["kernel"]) == []
    assert complaints([outcome("RaceError: one")], {}, ["kernel"]) == []
    (told,) = complaints([outcome()], {}, ["kernel"])
    assert told.endswith("no run shows that it is missing, and no entry says why none needs it")


def test_an_entry_has_to_be_needed_true_and_there(tmp_path: Path) -> None:
    listed = read_list(listing(tmp_path))
    (told,) = complaints([outcome("RaceError: one")], listed, ["kernel"])
    assert told.endswith("listed, but needed: RaceError: one")
    (told,) = complaints([outcome(idle=False)], listed, ["kernel"])
    assert told.endswith("listed as a wait that ends nothing, but it ends something")
    (told,) = complaints([], listed, ["kernel"])
    assert told.endswith("listed, but there is no such statement")
    assert complaints([], listed, ["another"]) == []


def test_an_entry_has_a_reason_and_stands_once(tmp_path: Path) -> None:
    for changed in ({"why": ""}, {"rule": "because"}, {"count": 2}):
        with pytest.raises(ValueError, match=r"no reason, or an unknown rule|listed twice"):
            read_list(listing(tmp_path, **changed))  # type: ignore[arg-type]


def test_an_entry_may_be_for_a_release_of_triton(tmp_path: Path) -> None:
    path = listing(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + 'releases = ["3.6"]\n', encoding="utf-8")
    assert set(read_list(path, "3.6")) == {("kernel", PLACE)}
    assert read_list(path, "3.9") == {}


def test_the_list_names_kernels_that_there_are() -> None:
    assert {kernel for kernel, _ in read_list()} <= set(mutants_kernels.kernels())


# --- files, and the command -----------------------------------------------------------------------------


def test_a_prepared_kernel_is_read_back(tmp_path: Path) -> None:
    kept = prepared("golden-plain")
    save(kept, tmp_path)
    assert names(tmp_path) == ["golden-plain"]
    again = load(tmp_path, "golden-plain")
    assert (again.source, len(again.runs)) == (kept.source, len(kept.runs))
    for mine, other in zip(again.runs, kept.runs, strict=True):
        assert (mine.seeds, mine.tolerance, mine.graph.inputs) == (
            other.seeds,
            other.tolerance,
            other.graph.inputs,
        )


def test_outcomes_are_read_back_without_what_was_cut_off(tmp_path: Path) -> None:
    one, other = outcome("RaceError: one"), replace(outcome(), place=replace(PLACE, occurrence=2))
    path = tmp_path / "results.jsonl"
    path.write_text(f"{mutants_files.line(one)}\n{mutants_files.line(other)}", encoding="utf-8")
    assert list(mutants_files.read([path]).values()) == [one]


def test_the_command_runs_what_is_left_and_tells_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, results = tmp_path / "kernels", tmp_path / "results.jsonl"
    save(prepared("golden-streamed_rows"), folder)
    made = [place for place, _ in deletions(prepared("golden-streamed_rows").source)]
    listed = places(read_list(), "golden-streamed_rows")
    survived = Outcome(
        "golden-streamed_rows", next(place for place in made if place not in listed), "", False
    )
    results.write_text(mutants_files.line(survived) + "\n", encoding="utf-8")
    assert mutants.main(["merge", str(folder), str(results)]) == 1
    assert f"{len(made) - 1} mutants were not run" in capsys.readouterr().out
    monkeypatch.setenv("PYTHONPATH", str(Path(mutants.__file__).parents[2]))
    assert mutants.main(["run", str(folder), "-o", str(results), "--jobs", "1"]) == 0
    assert len(results.read_text(encoding="utf-8").splitlines()) == len(made)
    assert mutants.main(["merge", str(folder), str(results)]) == 1
    told = capsys.readouterr().out
    assert "no entry says why none needs it" in told
    assert [line.split() for line in told.splitlines() if line.startswith("all ")] == [
        ["all", str(len(made)), str(len(made) - len(listed) - 1), str(len(listed)), "1"]
    ]
