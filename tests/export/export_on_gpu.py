"""Runs exports on a GPU: the C++ program's output has the bytes of the Python launcher's, from the same files.

    python tests/export/export_on_gpu.py FOLDER...

Each folder has a build in `build/` and its export in `export/`. Needs torch, triton, numpy and g++ (or nvcc); without
a CUDA toolkit the headers are Triton's own. Ends with status 1 where any byte differs.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import triton
from triton.backends.nvidia import driver

from wsopt.codegen.kernel_file import load_kernel_file
from wsopt.runtime.inputs import poison, random_inputs
from wsopt.runtime.raw_graph import load_raw_graph

REPEAT = 2000
FEWER = 24
"""Rows by which the second run's extents are fewer: another grid, and ragged tiles."""


def compile_example(folder: Path, name: str, target: Path) -> None:
    """The export's example as a program."""
    compiler = shutil.which("g++") or shutil.which("nvcc")
    assert compiler is not None, "no g++ and no nvcc here"
    toolkit = Path("/usr/local/cuda/include")
    headers = toolkit if (toolkit / "cuda.h").is_file() else Path(driver.__file__).parent / "include"
    library = (
        Path(next(d for d in driver.libcuda_dirs() if (Path(d) / "libcuda.so.1").exists())) / "libcuda.so.1"
    )
    sources = [folder / "example.cpp", folder / f"{name}.cpp"]
    command = [compiler, "-std=c++17", "-O2", f"-I{headers}", *sources, library, "-o", target]
    subprocess.run([str(part) for part in command], check=True)


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's elements as they lie in memory."""
    return bytes(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())


def extents(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def differing(
    build: Path, export: Path, program: Path, inputs: Mapping[str, torch.Tensor], repeat: int
) -> dict[str, int]:
    """Bytes of each output that differ between the Python launcher and the C++ program."""
    module = load_kernel_file(build / "kernel.py")
    launch, outputs = module.prepare(**inputs)
    for output in outputs.values():
        poison(output)
    launch()
    torch.cuda.synchronize()
    description = json.loads((export / "launch.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for name, tensor in inputs.items():
            (Path(scratch) / f"{name}.bin").write_bytes(raw(tensor))
        given = [f"{name}={extents(tensor)}:{name}.bin" for name, tensor in inputs.items()]
        written = [f"{name}={name}.out" for name in outputs]
        cubin = (export / description["kernel"]["file"]).resolve()
        command = [program.resolve(), cubin, *given, *written, f"repeat={repeat}"]
        subprocess.run([str(part) for part in command], check=True, cwd=scratch, timeout=300)
        found = {name: (Path(scratch) / f"{name}.out").read_bytes() for name in outputs}
    different = {}
    for name, output in outputs.items():
        expected = raw(output)
        assert len(found[name]) == len(expected), (
            f"{name}: {len(found[name])} bytes, expected {len(expected)}"
        )
        ours = torch.frombuffer(bytearray(found[name]), dtype=torch.uint8)
        theirs = torch.frombuffer(bytearray(expected), dtype=torch.uint8)
        different[name] = int((ours != theirs).sum())
        assert math.isfinite(float(output.float().norm())), f"{name}: the Python launcher wrote no numbers"
    return different


def fewer_rows(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs with fewer rows: of a product its first one, of attention all sequences."""
    first = next(iter(inputs))
    cut = [first] if inputs[first].dim() == 2 else list(inputs)
    return {n: t[..., :-FEWER, :].contiguous() if n in cut else t for n, t in inputs.items()}


def check(folder: Path) -> bool:
    """Whether all outputs are the same, at the graph's extents and at others."""
    build, export = folder / "build", folder / "export"
    graph = load_raw_graph(build / "graph.json")
    inputs = random_inputs(graph, 0, "cuda")
    compiled = json.loads((export / "launch.json").read_text())["kernel"]["triton"]
    if compiled != triton.__version__:
        print(
            f"{graph.name}: exported by Triton {compiled}, Python runs {triton.__version__}: rounding may differ"
        )
    same = True
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "example"
        compile_example(export, graph.name, program)
        for title, given in (("the graph's extents", inputs), ("fewer rows", fewer_rows(inputs))):
            found = differing(build, export, program, given, REPEAT if given is inputs else 0)
            same = same and not any(found.values())
            print(f"{graph.name}, {title}: bytes that differ: {found}", flush=True)
    return same


if __name__ == "__main__":
    results = [check(Path(folder)) for folder in sys.argv[1:]]
    sys.exit(0 if results and all(results) else 1)
