"""Traced kernels: the plain ones with stamps between their lines, that compile alike and compute the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from emit_builds import MARGIN, Emitted, build, graph_of, plain, small_case, structure
from golden_kernels import emitted
from other_compiler import compiled_by
from trace_builds import NAMES, TRACE, launched, read_back, traced

from wsopt.checker import verify
from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import emit, expectation
from wsopt.emit.stamps import Trace
from wsopt.errors import CheckError, LoweringError
from wsopt.frontend.region import find_region
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.solve.optimum import solve
from wsopt.trace import make
from wsopt.trace.files import load_stamped

OWN = re.compile(
    r"^ *(stamp\(|(records|record|passes|until|traced|taken|step) \+?= |gdc_wait\(\)$|now = gl|gl\.store\(place, now)"
)
"""Lines of a role that tracing adds. In a traced kernel every role waits for the one before, and numbers K-blocks."""


def device_code(source: str) -> list[str]:
    """The device functions less what tracing adds to them."""
    found = source[source.index("def tile_coordinates") : source.index("OPTIONS = ")]
    found = found.replace("stamps_ptr, ", "").replace(", stamps_ptr)", ")")
    return [line for line in found.splitlines() if not OWN.match(line)]


def nothing_constant(made: Emitted) -> str:
    """The kernel of a graph without constants: a traced one copies all of a slot behind the kernel before."""
    graph = replace(made.graph, inputs=tuple(replace(one, constant=False) for one in made.graph.inputs))
    schedule, machine = made.verified.schedule, made.verified.machine
    program = lower(find_region(graph), schedule.structure, machine)
    return emit(verify(schedule, program, machine, MARGIN))


@pytest.mark.parametrize("name", NAMES)
def test_without_its_stamps_it_is_the_plain_kernel(name: str) -> None:
    one = traced(name)
    assert one.source.count("stamp(") > 10
    assert device_code(one.source) == device_code(nothing_constant(one.made))
    assert "stamp" not in one.made.source


def test_arithmetic_that_ptxas_mixes_is_not_kept_apart() -> None:
    one = traced("causal")
    consumer = one.stamped.partitions[0]
    starts = [moment for moment in consumer.passes if moment.point == "start"]
    arithmetic = {
        masked: [moment.op for moment in starts if moment.masked is masked and "mma" not in moment.op]
        for masked in (False, True)
    }
    # In the overlapped loop each waits for a product or stands behind one; in the other they follow each other.
    assert arithmetic[False] == ["rescale:pv@0", "release:k@0", "phase1@0", "phase2@0", "release:v@0"]
    assert arithmetic[True] == ["release:k@0", "phase1@0", "release:v@0"]
    masked = one.source[one.source.index("for _ in range(whole_end, end)") :]
    rescaled = masked.index(" pv = pv * ")
    assert "stamp(" not in masked[masked.index("gl.exp2") : rescaled]


def test_loops_without_products_have_all_stamps() -> None:
    for partition in traced("streamed_rows").stamped.partitions:
        assert all(op.started is not None for op in partition.ops)


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_the_same(name: str) -> None:
    one = traced(name)
    case = small_case(one.made)
    for seed in range(3):
        outputs, words = launched(one, case.inputs, seed)
        assert any(words)
        for output, value in outputs.items():
            assert case.referee.agreement(output, value).accepted, (name, seed, output)


@pytest.mark.compiler
@pytest.mark.parametrize("name", NAMES)
def test_it_compiles_to_the_same_products(name: str) -> None:
    one = traced(name)
    assert verdict(compile_kernel(one.source), expectation(one.made.verified)) == ()


def test_another_triton_compiles_it(other_triton: str) -> None:
    names = ("plain", "causal")
    found = compiled_by(other_triton, [traced(name).source for name in names])
    for name, one in zip(names, found, strict=True):
        wanted = expectation(traced(name).made.verified).tensor_instructions
        assert (one["tensor_instructions"], one["spill_loads"], one["warnings"]) == (wanted, 0, []), name


@pytest.mark.compiler
def test_a_stamp_is_two_instructions_of_machine_code() -> None:
    counts = {}
    for name, source in (("traced", traced("plain").source), ("plain", traced("plain").made.source)):
        sass = dict(compile_kernel(source).sass)
        counts[name] = sum(sass.get(opcode, 0) for opcode in ("CS2R", "STG"))
    stamps = counts["traced"] - counts["plain"]
    written = traced("plain").source.count("  stamp(")
    assert stamps <= 2 * 2 * written, "a stamp of a consumer stands in both of them"


def test_a_name_of_the_graph_that_a_trace_needs_makes_way() -> None:
    g = graph_of(lambda g: plain(g), "renamed")
    renamed = replace_names(g, {"x": "stamps", "w": "records"})
    made = build(renamed, structure())
    source = emit(made.verified, TRACE)
    assert "stamps_ptr" not in source or "stamps__ptr" in source
    case = small_case(made)
    one = replace(
        traced("plain"), made=made, source=source, stamped=make.stamped_of(made.verified, TRACE, source)
    )
    outputs, words = launched(one, case.inputs)
    assert any(words)
    assert all(case.referee.agreement(key, value).accepted for key, value in outputs.items())


def replace_names(graph, names):  # type: ignore[no-untyped-def]
    from wsopt.graph.parse import parse_graph
    from wsopt.graph.serialize import graph_to_json

    document = graph_to_json(graph)
    for item in document["inputs"]:
        item["name"] = names.get(item["name"], item["name"])
    for node in document["nodes"]:
        node["inputs"] = [names.get(one, one) for one in node["inputs"]]
    return parse_graph(document, "renamed")


# --- beside a build -------------------------------------------------------------------------------------


@pytest.mark.compiler
def test_it_is_made_beside_a_build(tmp_path: Path) -> None:
    folder = read_back(emitted("plain"), tmp_path / "plain.wsopt")
    made = make.make_traced(folder, TRACE)
    assert sorted(path.name for path in made.iterdir()) == ["kernel.py", "stamps.json"]
    found = load_stamped(folder.path)
    assert (found.registers, found.spills) == (168, 0)
    assert replace(found, registers=0) == traced("plain").stamped


@pytest.mark.compiler
def test_one_that_computes_something_else_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(verified: object, trace: Trace) -> str:
        return emit(verified, trace).replace("x_ring.index(slot * 2 + index)", "x_ring.index(0)")  # type: ignore[arg-type]

    monkeypatch.setattr(make, "emit", broken)
    folder = read_back(emitted("plain"), tmp_path / "plain.wsopt")
    with pytest.raises(CheckError):
        make.make_traced(folder, TRACE)
    assert not list(folder.path.iterdir())


def test_sums_in_tensor_memory_are_refused(tmp_path: Path) -> None:
    machine, graph = load_machine("b200"), graph_of(plain, "apart")
    program = lower(find_region(graph), structure(rows=128, subtiles=2), machine)
    solved = solve(program, machine, MARGIN)
    assert solved.schedule is not None, solved.reason
    made = replace(emitted("plain"), graph=graph, verified=verify(solved.schedule, program, machine, MARGIN))
    with pytest.raises(LoweringError, match="graph apart: kernels for b200 cannot be traced yet"):
        make.make_traced(read_back(made, tmp_path / "apart.wsopt"), TRACE)
