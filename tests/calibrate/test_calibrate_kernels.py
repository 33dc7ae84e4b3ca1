"""The kernels compile ahead of time for sm_90, and what is timed stands in their loops, that and no more."""

from __future__ import annotations

import functools
import importlib.metadata
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import machine_code
import pytest
from records import digest_of

import wsopt.calibrate
from wsopt.calibrate.build import build
from wsopt.calibrate.catalog import SCALAR_ASM, all_probes, chosen_probes
from wsopt.calibrate.program import Program
from wsopt.codegen.sass import innermost_loops, parse_sass

PROGRAMS = {probe.name: probe.program for probe in all_probes() if probe.program is not None}
OPCODES = {
    **{"add": "FADD", "mul": "FMUL", "fma": "FFMA", "max": "FMNMX", "imul": "IMAD", "logic": "LOP3"},
    **{"select": "FSEL", "convert": "F2FP", "convert_f16": "F2FP", "convert_f8": "F2FP", "shuffle": "SHFL"},
    **{"convert_to_int": "F2I", "convert_from_int": "I2FP"},
}
"""The instruction of each chain; special functions are MUFU, and `iadd` goes to two pipes."""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@functools.cache
def code() -> str:
    """A digest of the files that programs are made of."""
    folder = Path(wsopt.calibrate.__file__).parent
    files = [folder / "build.py", *(folder / "kernels").glob("*.py")]
    return digest_of(files)


def loops(program: Program, folder: Path) -> list[Counter[str]]:
    """Instructions by mnemonic of every innermost loop: of a program that is known its record, which is made anew now
    and then (`records.py`).
    """
    asked = {"program": repr(program), "code": code()}
    key = machine_code.key_of(importlib.metadata.version("triton"), "calibrate", asked)
    found = machine_code.RECORDS.get(key, lambda: compiled(program, folder))
    assert not found["spills"]
    return [Counter(loop) for loop in found["loops"]]


def compiled(program: Program, folder: Path) -> dict[str, Any]:
    """What the compiler makes of a program: whether it spills, and the loops."""
    import triton

    path = folder / "kernel.cubin"
    path.write_bytes(build(program).asm["cubin"])
    tool = triton.knobs.nvidia.cuobjdump.path
    text = subprocess.run([tool, "-sass", str(path)], capture_output=True, text=True, check=True).stdout
    instructions = parse_sass(text)
    found = [Counter(item.opcode for item in loop) for loop in innermost_loops(instructions)]
    return {"spills": any(item.is_spill for item in instructions), "loops": found}


@pytest.mark.compiler
@pytest.mark.parametrize("kind", sorted(SCALAR_ASM))
def test_a_chain_holds_its_instruction_and_three_of_the_loop(kind: str, tmp_path: Path) -> None:
    program = PROGRAMS[f"scalar.{kind}.1"]
    steps = 64 * int(dict(program.constants)["PAIRS"])
    opcode = OPCODES.get(kind, "MUFU")
    busy = [loop for loop in loops(program, tmp_path) if sum(loop.values()) >= steps]
    assert len(busy) == 3  # one a role
    for loop in busy:
        if kind == "iadd":
            assert loop["IADD3"] + loop["IMAD"] == steps
            continue
        assert loop[opcode] == (2 if kind == "convert_f8" else 1) * steps
        if kind == "convert_f8":  # and at most one move a step joins its two results
            assert sum(loop.values()) <= loop[opcode] + steps + 3
            continue
        extra = steps if kind in ("select", "sin", "cos") else 0
        assert sum(loop.values()) == loop[opcode] + extra + 3


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("reduce.none.128.1", {"FFMA": 64}),
        ("reduce.max.128.1", {"FFMA": 64, "FMNMX": 66, "SHFL": 4}),
        ("reduce.sum.128.1", {"FFMA": 64, "FADD": 68, "SHFL": 4}),
        ("cast.none_16.128.1", {"FFMA": 64, "F2FP": 32}),
        ("softmax.step.128.1", {"MUFU": 66, "FMNMX": 68, "F2FP": 32, "SHFL": 8}),
        ("shared.store_16.128.1", {"STSM": 8, "BAR": 1, "FENCE": 1}),
        ("shared.load_16.128.1", {"LDSM": (32, 8), "BAR": 0}),  # of one matrix; since Triton 3.7 of four
        ("mma.bf16.shared.64.4.1", {"HGMMA": 16, "BAR": 0}),
        ("mma.f8e4m3.registers.64.4.1", {"QGMMA": 16}),
        ("mma_issue.bf16.64.4.1", {"HGMMA": 16, "CS2R": 2}),
        ("sync.arrive.4", {"SYNCS": 8, "BAR": 8}),
        ("latency.special", {"MUFU": 64}),
    ],
)
def test_what_is_timed_is_in_the_loop(
    name: str, counts: dict[str, int | tuple[int, ...]], tmp_path: Path
) -> None:
    found = loops(PROGRAMS[name], tmp_path)
    wanted = {opcode: count if isinstance(count, tuple) else (count,) for opcode, count in counts.items()}
    assert any(all(loop[opcode] in some for opcode, some in wanted.items()) for loop in found), found


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name", ["load.l2.128x64.1.few", "store.128x64.2.few", "block.store", "launch.empty", "sync.hop.4"]
)
def test_kernels_that_copy_compile(name: str) -> None:
    assert build(PROGRAMS[name]).metadata.shared <= 232448


def test_names_are_unique_and_chosen_by_their_beginnings() -> None:
    names = [probe.name for probe in all_probes()]
    assert len(set(names)) == len(names)
    chosen = chosen_probes(["scalar.exp2", "sync.wait.4"])
    assert [p.name for p in chosen] == ["scalar.exp2.1", "scalar.exp2.2", "scalar.exp2.3", "sync.wait.4"]


def test_importing_the_room_needs_neither_torch_nor_triton() -> None:
    code = (
        "import sys, wsopt.calibrate.command; "
        "print({'torch', 'triton', 'ortools', 'numpy', 'pydantic', 'rich'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
