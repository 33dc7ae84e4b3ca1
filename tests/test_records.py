"""Records of what tests found before: what has none is found, what has one now and then, and a difference is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import records
import room_imports
import simulated
import solver_answers
from emit_builds import build, graph_of, small_case, structure
from emit_builds import plain as plain_product
from ortools.sat.python import cp_model
from records import Records, key_of

from wsopt import simulation
from wsopt.errors import CheckError


@pytest.fixture(autouse=True)
def nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WSOPT_RECORD", raising=False)


TEXTS = ["x" * length for length in range(1, 401)]


def test_what_has_no_record_is_found() -> None:
    mine = Records("mine", {key_of("another"): 0})
    assert mine.get(key_of("text"), lambda: 4) == 4


def test_one_of_sixteen_that_have_one_is_found_and_each_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[str]()

    def find(text: str) -> int:
        found.append(text)
        return len(text)

    for turn in range(records.ANYWAY):
        before = len(found)
        monkeypatch.setattr(records, "turn", lambda turn=turn: turn)
        mine = Records("mine", {key_of(text): len(text) for text in TEXTS})
        assert [mine.get(key_of(text), lambda text=text: find(text)) for text in TEXTS] == [*range(1, 401)]
        assert 10 <= len(found) - before <= 45
    assert sorted(found) == sorted(TEXTS)


def test_a_difference_is_told() -> None:
    mine = Records("mine", {key_of(text): len(text) + 1 for text in TEXTS}, fault="another length")
    with pytest.raises(AssertionError, match="another length"):
        [mine.get(key_of(text), lambda text=text: len(text)) for text in TEXTS]


def test_what_is_the_same_alone_is_held_to_the_record() -> None:
    mine = Records("mine", {key_of(text): [len(text), 0] for text in TEXTS}, plain=lambda found: found[0])
    assert mine.get(key_of(TEXTS[0]), lambda: [1, 7])[0] == 1
    for text in TEXTS:
        mine.get(key_of(text), lambda text=text: [len(text), 7])


def test_digits_of_what_a_simulation_finds_are_a_machines_own() -> None:
    same = simulated.RECORDS.plain
    assert same("y is wrong: relative error 7.03e-01") == same("y is wrong: relative error 7.04e-01")
    assert same("y is wrong: relative error 7.03e-01") != same("race: kernel.py:7")
    assert same(None) is None is not same("deadlock")


def test_records_are_what_tests_have_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WSOPT_RECORD", str(tmp_path))
    Records("one", {}).get(key_of("text"), lambda: 4)
    Records("other", {key_of("known"): 5}).get(key_of("known"), lambda: 5)
    records.main(tmp_path, tmp_path)
    assert json.loads((tmp_path / "one.json").read_text()) == {key_of("text"): 4}
    assert json.loads((tmp_path / "other.json").read_text()) == {key_of("known"): 5}


def test_a_result_is_found_once_a_process() -> None:
    mine, found = Records("mine", {}), iter((4,))
    assert [mine.get(key_of("text"), lambda: next(found)) for _ in range(3)] == [4, 4, 4]


def test_a_simulation_is_of_its_text_its_case_and_its_interleaving(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict[str, str | None]()
    monkeypatch.setattr(simulated.RECORDS, "known", {})
    monkeypatch.setattr(simulated.RECORDS, "found", found)
    made = build(graph_of(plain_product), structure())
    case = small_case(made)
    wrong = made.source.replace("mbarrier.arrive(ring_empty", "gl.device_assert(ring_empty", 1)
    assert wrong != made.source
    assert case.check(made.source, 0) is None
    assert case.check(made.source, 1) is None
    assert case.check(wrong, 0) is not None
    assert small_case(made, 7).check(made.source, 0) is None
    assert len(found) == 4
    assert small_case(made).check(made.source, 0) is None
    assert len(found) == 4


def test_all_that_a_simulation_depends_on_is_in_its_key() -> None:
    inside = {*simulated.ROOMS, *(name.removesuffix(".py") for name in simulated.FILES)}
    imports = room_imports.read_imports(simulated.PACKAGE)
    needed = [
        one.imported
        for one in imports
        if room_imports.room(one.importer) in inside and one.imported.startswith("wsopt.")
    ]
    assert len(needed) > 100
    assert [name for name in needed if room_imports.room(name) not in inside] == []


def test_what_a_docstring_says_is_no_part_of_a_key() -> None:
    one, other = (f'"""a: predicted {us} us.\n\nTile 64.\n"""\n\nx = 1\n' for us in (24.2, 24.4))
    assert key_of("case", one) == key_of("case", other)
    assert key_of({"source": one}) == key_of({"source": other}) != key_of({"source": one + "y = 2\n"})
    # Machine code may know its lines.
    assert key_of(one) != key_of(one.replace("Tile 64.", "Tile\n64."))
    assert key_of("x = 1") != key_of("x = 2")


def test_what_is_found_soon_gets_no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WSOPT_RECORD", str(tmp_path))
    mine = Records("mine", {}, worth=lambda found: found > 3)
    assert [mine.get(key_of(text), lambda text=text: len(text)) for text in TEXTS[:5]] == [1, 2, 3, 4, 5]
    records.main(tmp_path, tmp_path)
    kept = {key_of(text): len(text) for text in TEXTS[3:5]}
    assert json.loads((tmp_path / "mine.json").read_text()) == kept


# --- answers of CP-SAT ------------------------------------------------------------------------------------


def answered(most: int, seed: int = 0, workers: int = 1) -> int:
    """The largest even number up to `most`, by the solver."""
    model, solver = cp_model.CpModel(), cp_model.CpSolver()
    half = model.new_int_var(0, most, "half")
    model.add(2 * half <= most)
    model.maximize(half)
    solver.parameters.num_workers, solver.parameters.random_seed = workers, seed
    assert solver_answers.solve(solver, model) == cp_model.OPTIMAL
    assert solver.response_proto.deterministic_time >= 0
    return int(solver.value(2 * half))


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of models that were solved; nothing is known at first."""
    seeds, plain = list[int](), solver_answers.SOLVE

    def solve(solver: cp_model.CpSolver, model: cp_model.CpModel) -> cp_model.CpSolverStatus:
        seeds.append(solver.parameters.random_seed)
        return plain(solver, model)

    monkeypatch.setattr(solver_answers, "SOLVE", solve)
    forget(monkeypatch, solver_answers.RECORDS)
    return seeds


def forget(monkeypatch: pytest.MonkeyPatch, mine: Records) -> None:
    """Let records be all that was found, and found again none but those of another turn."""
    known = dict(mine.found) if mine.known is not None else {}
    monkeypatch.setattr(mine, "known", known)
    monkeypatch.setattr(mine, "found", {})
    free = next(turn for turn in range(records.ANYWAY) if turn not in {int(key, 16) % 16 for key in known})
    monkeypatch.setattr(records, "turn", lambda: free)


def test_an_answer_is_that_of_its_model_and_its_parameters(
    solved: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (answered(9), answered(9, seed=1), answered(7)) == (8, 8, 6)
    assert solved == [0, 1, 0]
    forget(monkeypatch, solver_answers.RECORDS)
    assert (answered(9), answered(9, seed=1), answered(7)) == (8, 8, 6)
    assert solved == [0, 1, 0]
    assert (answered(7, seed=1), answered(11)) == (6, 10)
    assert solved == [0, 1, 0, 1, 0]


def test_an_answer_that_depends_on_the_machine_has_no_record(solved: list[int]) -> None:
    assert answered(9, workers=2) == 8
    assert solver_answers.RECORDS.found == {}


def test_another_answer_is_told(solved: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    answered(9)
    forget(monkeypatch, solver_answers.RECORDS)
    ((key, answer),) = solver_answers.RECORDS.known.items()
    monkeypatch.setattr(records, "turn", lambda: int(key, 16) % records.ANYWAY)
    monkeypatch.setitem(solver_answers.RECORDS.known, key, answer | {"solution": [3]})
    with pytest.raises(AssertionError, match="CP-SAT answers a model in another way"):
        answered(9)


def test_what_is_gathered_comes_back() -> None:
    for values in ([], [1], [0, 0, 0], [5, 7, 7, -1, 7, 7, 7, 0]):
        assert [*solver_answers.spread(solver_answers.gathered(values))] == values
    assert solver_answers.gathered([5, 7, 7, 0]) == [5, [7, 2], 0]


# --- runs of simulations ----------------------------------------------------------------------------------


def test_a_run_that_is_known_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    executions, plain = list[str](), simulated.EXECUTED

    def executed(run: simulation.Run, source: str, *rest: Any) -> Any:
        executions.append(source)
        return plain(run, source, *rest)

    monkeypatch.setattr(simulated, "EXECUTED", executed)
    forget(monkeypatch, simulated.RUNS)
    made = build(graph_of(plain_product), structure())
    alone = simulation.simulate(made.graph, made.verified, made.source, 2)
    with simulated.known_runs():
        assert simulation.simulate(made.graph, made.verified, made.source, 2) == alone
        assert executions
        forget(monkeypatch, simulated.RUNS)
        executions.clear()
        assert simulation.simulate(made.graph, made.verified, made.source, 2) == alone
        assert not executions
        wrong = made.source.replace("mbarrier.arrive(ring_empty", "gl.device_assert(ring_empty", 1)
        with pytest.raises(CheckError):
            simulation.simulate(made.graph, made.verified, wrong, 2)
    assert executions == [wrong]
