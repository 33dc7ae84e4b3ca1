"""Ahead-of-time compilation: what is measured, what is refused, and that nothing leaks out of it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from other_compiler import compiled_by
from row_builds import emitted
from row_graphs import residual_norm

from wsopt.codegen import CompiledKernel, CompileError, Expectation, compile_kernel, verdict

pytestmark = pytest.mark.compiler

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def compiled(small_kernel: str) -> CompiledKernel:
    return compile_kernel(small_kernel)


def test_measures_the_kernel(compiled: CompiledKernel) -> None:
    # Two consumers of four k16 steps a K-iteration; rings of 3 x (16 + 16) KB, staging of 2 x 16 KB, barriers.
    assert compiled.tensor_instructions == 8
    assert 131072 < compiled.shared_bytes <= 131072 + 1024
    assert (compiled.registers, compiled.warps) == (168, 12)
    assert (compiled.stack_bytes, compiled.spill_loads, compiled.spill_stores) == (0, 0, 0)
    assert dict(compiled.sass)["UTMALDG"] == 3
    assert compiled.barriers >= 1


def test_pointers_are_multiples_of_16_bytes() -> None:
    """A warp loads a row's 768 weights of f32 four a thread, as launches with tensors do, and a scale, which it also
    loads before its first tile.
    """
    found = dict(compile_kernel(emitted(residual_norm, 4, 1024, 2).source).sass)
    assert found["LDG"] == 2 * (768 // (32 * 4) + 2)


def test_verdict(compiled: CompiledKernel) -> None:
    asked = Expectation(tensor_instructions=8, shared_bytes=compiled.shared_bytes)
    assert verdict(compiled, asked) == ()
    (complaint,) = verdict(compiled, replace(asked, tensor_instructions=16))
    assert complaint == "8 tensor-core instructions, expected 16"
    (complaint,) = verdict(compiled, replace(asked, shared_bytes=100))
    assert "expected at most 100" in complaint
    spilled = replace(compiled, stack_bytes=8, spill_loads=2, spill_stores=1, spills_in_loop=2)
    assert len(verdict(spilled, asked)) == 3
    slow = replace(compiled, warnings=("Potential Performance Loss: wgmma.mma_async serialized",))
    assert verdict(slow, asked) == slow.warnings


def test_leaves_the_process_as_it_was(small_kernel: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = dict(os.environ), {name for name in sys.modules if name.startswith("wsopt_kernel")}
    compile_kernel(small_kernel)
    assert before == (dict(os.environ), {name for name in sys.modules if name.startswith("wsopt_kernel")})
    assert ("torch" in sys.modules) <= (importlib.util.find_spec("torch") is not None)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"maxnreg": 168', '"maxnreg": 40', r"ptxas: .*Insufficient registers \(40\)"),
        ('"maxnreg": 168', '"maxnreg": 248', "out of registers: 12 warps of 248 a thread take 95232"),
        ("DEPTH = gl.constexpr(3)", "DEPTH = gl.constexpr(8)", "out of shared memory: .* gives it 232448"),
        ("[DEPTH, 128, 64]", "[DEPTH, 96, 64]", "power-of-2"),
        ("count=1)\n    staging", "count=one)\n    staging", "one is not defined"),
        ("import triton\n", "import tritom\n", "does not load: ModuleNotFoundError: .*tritom"),
        ("def run(", "def go(", "lacks run"),
    ],
)
def test_refusals(
    small_kernel: str, capfd: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    assert old in small_kernel
    with pytest.raises(CompileError, match=message) as caught:
        compile_kernel(small_kernel.replace(old, new))
    # Triton prints all of the PTX when ptxas fails.
    assert capfd.readouterr() == ("", "")
    assert len(str(caught.value)) < 400
    assert str(caught.value).count("\n") <= 1


def test_spills_in_the_loop_are_counted(small_kernel: str) -> None:
    # Four tiles of 64 registers a thread live through the loop, and there are 240.
    start, arrive = "    acc = gl.zeros(", "        mbarrier.arrive(empty"
    tiles = "".join(f"    t{i} = gl.zeros([64, 128], gl.float32, ACC)\n" for i in range(3))
    work = "        t0 = t0 * 2.0 + acc\n        t1 = t1 * t0 + 1.0\n        t2 = t2 * t1 + 2.0\n"
    greedy = small_kernel.replace(start, tiles + start).replace(arrive, work + arrive)
    result = compile_kernel(greedy.replace("acc.to(gl.bfloat16)", "(acc + t0 + t1 + t2).to(gl.bfloat16)"))
    assert result.stack_bytes > 0
    assert min(result.spill_loads, result.spill_stores) > 0
    assert 0 < result.spills_in_loop <= result.spill_loads + result.spill_stores
    assert result.tensor_instructions == 8


def test_serialized_products_are_told(small_kernel: str) -> None:
    # Touching the sums while a product is in flight makes ptxas wait for each instruction.
    waited = "acc = warpgroup_mma_wait(0, deps=(acc,))\n"
    touched = (
        waited
        + "        acc = acc * 1.5\n"
        + "        acc = warpgroup_mma(x_ring.index(slot * 2 + index), weights, acc, is_async=True)\n"
        + "        acc = warpgroup_mma_wait(1, deps=(acc,))\n"
    )
    (warning,) = compile_kernel(small_kernel.replace(waited, touched)).warnings
    assert "wgmma.mma_async instructions are serialized" in warning


def test_cache_survives_damage(
    small_kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: CompiledKernel
) -> None:
    first = compile_kernel(small_kernel, cache_dir=tmp_path)
    (entry,) = tmp_path.iterdir()
    for damage in (entry.read_bytes()[:100], b"", b"\xff\xfe", entry.read_bytes().replace(b"168", b"024")):
        whole = entry.read_bytes()
        entry.write_bytes(damage)
        assert compile_kernel(small_kernel, cache_dir=tmp_path) == first == compiled
        assert entry.read_bytes() != damage
        assert len(entry.read_bytes()) > len(whole) - 100
    monkeypatch.setattr("wsopt.codegen.aot.ask_child", None)
    assert compile_kernel(small_kernel, cache_dir=tmp_path) == first


@pytest.mark.parametrize("module", ["wsopt.codegen", "wsopt.codegen.aot_child", "wsopt.export.binary_child"])
def test_a_python_with_triton_and_numpy_alone_can_compile(module: str) -> None:
    without = "; ".join(
        f"sys.modules['{name}'] = None" for name in ("pydantic", "ortools", "jinja2", "torch")
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {without}; import {module}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr


def test_another_triton_release(small_kernel: str, other_triton: str, compiled: CompiledKernel) -> None:
    (other,) = compiled_by(other_triton, [small_kernel])
    assert other["triton_version"] != compiled.triton_version
    for name in (
        "tensor_instructions",
        "shared_bytes",
        "stack_bytes",
        "spill_loads",
        "spill_stores",
        "warps",
    ):
        assert other[name] == getattr(compiled, name), name
