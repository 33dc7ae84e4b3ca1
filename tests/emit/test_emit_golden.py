"""Small kernels as they are written, compiled by this Triton and another release, and executed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
from pathlib import Path

import emit_builds as builds
import jinja2
import numpy as np
import pytest
from emit_builds import SEEDS, build, case, graph_of, small_case, structure
from golden_kernels import KERNELS, emitted
from other_compiler import compiled_by

import wsopt
from wsopt.codegen import CompiledKernel, Expectation, compile_kernel, verdict
from wsopt.codegen.aot_child import _triton_compile
from wsopt.codegen.kernel_file import load_kernel_file, torch_or_stand_in
from wsopt.emit.source import expected_instructions
from wsopt.emit.text import environment
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.ops import OPS
from wsopt.lowering.reduced import reduced

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "goldens"


def digest(source: str) -> str:
    """What `tests/digests/texts.json` has of a kernel's text."""
    return hashlib.sha256(source.encode()).hexdigest()[:32]


@functools.cache
def compiled(name: str) -> CompiledKernel:
    return compile_kernel(emitted(name).source)


@pytest.mark.parametrize("name", KERNELS)
def test_golden(name: str) -> None:
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("WSOPT_RENEW_GOLDENS"):
        path.write_text(emitted(name).source, encoding="utf-8")
    assert emitted(name).source == path.read_text(encoding="utf-8"), "WSOPT_RENEW_GOLDENS=1 renews it"


@pytest.mark.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_compiles(name: str) -> None:
    verified = emitted(name).verified
    asked = Expectation(expected_instructions(verified), verified.schedule.shared_memory_bytes)
    assert verdict(compiled(name), asked) == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_computes(name: str) -> None:
    assert small_case(emitted(name)).fault(emitted(name).source, SEEDS) is None


def test_the_next_kernel_is_let_in_with_the_last_copy() -> None:
    copied = [name for name in KERNELS if emitted(name).verified.schedule.rings]
    assert len(copied) == len(KERNELS) - 1, "threads of blocks side by side read pairs"
    for name in copied:
        assert builds.lets_the_next_kernel_in_last(emitted(name).source), name
    once = build(graph_of(builds.plain), structure(persistent=False)).source
    assert builds.lets_the_next_kernel_in_last(once)
    # Let in before the copies, never, twice, or by every copy: none of these is it.
    call, wait = "    gdc_launch_dependents()\n", "    gdc_wait()\n"
    early, never = once.replace(call, "").replace(wait, wait + call), once.replace(call, "")
    twice, inside = once.replace(wait, wait + call), once.replace(call, f"    {call}")
    assert not any(builds.lets_the_next_kernel_in_last(source) for source in (early, never, twice, inside))


@pytest.mark.slow
def test_nan_is_kept() -> None:
    made = emitted("clamped")
    inputs = small_case(made).inputs
    inputs["r"][3, 5] = inputs["x"][7, 0] = math.nan
    found = case(reduced(made.graph, made.verified.program.structure, min(made.depth, 4) + 1), inputs=inputs)
    missing = np.isnan(found.referee.expected["y"].value.astype(np.float32))
    assert missing[3, 5]
    assert missing[7].all()
    assert missing.sum() == 1 + missing.shape[1]
    assert found.fault(made.source, SEEDS) is None
    dropping = made.source.replace("tl.PropagateNan.ALL", "tl.PropagateNan.NONE")
    told = found.fault(dropping, 1)
    assert told is not None
    assert told.startswith("y is wrong: relative error inf, 0.01 is allowed; element [3, 5] is ")


@pytest.mark.compiler
def test_machine_code_keeps_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "kernel.py"
    path.write_text(emitted("clamped").source, encoding="utf-8")
    with torch_or_stand_in():
        text = _triton_compile(load_kernel_file(path), "sm_90").asm["ptx"]
    found = set(re.findall(r"\b(?:max|min)[\w.]*\.f32", text))
    assert found == {"max.NaN.f32", "min.NaN.f32"}


def test_compiles_with_another_triton(other_triton: str) -> None:
    """Every third kernel, and each whose text is not the one that digests of both releases were made from."""
    known = json.loads((ROOT / "tests" / "digests" / "texts.json").read_text(encoding="utf-8"))
    new = {name for name in KERNELS if known.get(f"golden-{name}") != digest(emitted(name).source)}
    names = [name for place, name in enumerate(KERNELS) if place % 3 == 0 or name in new]
    found = compiled_by(other_triton, [emitted(name).source for name in names])
    for name, other in zip(names, found, strict=True):
        mine = dataclasses.asdict(compiled(name))
        assert other["triton_version"] != mine["triton_version"]
        for figure in ("tensor_instructions", "stack_bytes", "spill_loads", "spill_stores", "warps"):
            assert other[figure] == mine[figure], (name, figure)


# --- nothing knows a problem ----------------------------------------------------------------------------


def test_no_room_names_a_problem() -> None:
    words = {path.stem for path in (ROOT / "problems").glob("*.json")} - set(OPS) | {"gemm"}
    pattern = re.compile("|".join(sorted(map(re.escape, words), key=len, reverse=True)), re.IGNORECASE)
    rooms = ("frontend", "program", "schedule", "perf", "lowering", "solve", "emit")
    folders = [ROOT / "templates", *(ROOT / "wsopt" / room for room in rooms)]
    found = [
        [path for path in folder.rglob("*") if path.suffix in (".py", ".jinja", ".json")]
        for folder in folders
    ]
    assert all(found)
    files = [path for folder in found for path in folder]
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert named == []


def test_templates_are_strict() -> None:
    assert environment().undefined is jinja2.StrictUndefined
    with pytest.raises(jinja2.UndefinedError):
        environment().get_template("kernel.py.jinja").render()


def in_no_example(g: GraphBuilder) -> tuple[Symbol, ...]:
    """relu(a @ b.T) * column + 3, and the product itself in f16."""
    a, b = g.input("a", (384, 256), "bf16"), g.input("b", (512, 256), "bf16")
    column = g.input("column", (384, 1), "f32")
    found = g.matmul(a, b, transpose_b=True, name="product")
    result = g.cast(g.relu(found) * column + 3, dtype="bf16", name="result")
    return result, g.cast(found, dtype="f16", name="whole")


@pytest.mark.compiler
@pytest.mark.solver
def test_a_graph_in_no_example() -> None:
    found = wsopt.compile(graph_of(in_no_example, "unseen"), use_cache=False)
    assert (found.summary["status"], found.summary["gap"]) == ("optimal", 0)
    (kernel,) = found.summary["kernels"]
    assert kernel["ptxas"]["tensor_instructions"] > 0
    assert (kernel["ptxas"]["spill_loads"], kernel["ptxas"]["stack_bytes"]) == (0, 0)
    verified = found.summary["verified"]
    assert verified["checker"]
    assert verified["compiled"]
    assert verified["interpreter"]["max_relative_error"] < 1e-2
