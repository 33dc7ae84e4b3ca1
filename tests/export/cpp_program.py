"""Builds an export's launcher with a driver that does nothing, and runs it."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from observed_launch import Seen

from wsopt.export.cpp_names import field_names
from wsopt.export.write import Export

HERE = Path(__file__).parent
DTYPES = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32")
"""In the order of wsopt_dtype."""

STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


def compiler() -> str:
    """The C++ compiler; the test is skipped where there is none."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("no g++ and no clang++ here: the C++ launcher is not compiled")
    return found


def cuda_headers() -> str:
    """The folder with cuda.h that comes with Triton."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "include"
    assert (folder / "cuda.h").is_file()
    return str(folder)


@functools.cache
def sanitizers() -> tuple[str, ...]:
    """Options that find faults of memory and undefined behaviour, where the compiler has them."""
    wanted = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = subprocess.run(
        [compiler(), *wanted, "-x", "c++", "-", "-o", os.devnull],
        input="int main() {}", text=True, capture_output=True, check=False,
    )  # fmt: skip
    return () if done.returncode else wanted


def compile_cpp(arguments: Sequence[str | Path]) -> None:
    done = subprocess.run(
        [compiler(), *STRICT, "-isystem", cuda_headers(), *map(str, arguments)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Program:
    """A program with an export's launcher in it."""

    path: Path
    cubin: Path
    launch: dict[str, Any]
    launcher: Path
    """The launcher's object file."""

    def run(self, script: str, *, cubin: Path | None = None, **environment: object) -> list[dict[str, Any]]:
        """What it says when it is given a script; `environment` is the driver's."""
        sizes = ",".join(str(one["size"]) for one in self.launch["parameters"])
        done = subprocess.run(
            [str(self.path), str(cubin or self.cubin)],
            input=script,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=os.environ
            | {"PARAMETER_BYTES": sizes}
            | {name: str(value) for name, value in environment.items()},
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def driver() -> Path:
    """The driver that does nothing, compiled once for all programs."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="wsopt-test-"))
    compiled = Path(_FOLDERS[-1].name) / "fake_driver.o"
    compile_cpp(["-g", *sanitizers(), "-c", HERE / "fake_driver.cpp", "-o", compiled])
    return compiled


def compiled(source: Path) -> Path:
    """The object file of a source, beside it."""
    made = source.with_suffix(".o")
    compile_cpp(["-g", *sanitizers(), "-c", source, "-o", made])
    return made


def build_program(export: Export, folder: Path) -> Program:
    """The program of an export, compiled in a folder of its own."""
    for file, content in export.files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    name = str(export.summary["name"])
    launch = json.loads((folder / "launch.json").read_text())
    tensors = [one["name"] for one in (*launch["inputs"], *launch["outputs"])]
    fields = field_names(tensors)
    members = ", ".join(f'{{"{one}", &wsopt_{name}_tensors::{fields[one]}}}' for one in tensors)
    text = (HERE / "launched.cpp.txt").read_text().replace("NAME", name).replace("MEMBERS", members)
    (folder / "launched.cpp").write_text(text.replace(f"tensor {name} ADDRESS", "tensor NAME ADDRESS"))
    launcher = compiled(folder / f"{name}.cpp")
    compile_cpp(["-g", *sanitizers(), folder / "launched.cpp", launcher, driver(), "-o", folder / "launched"])
    return Program(folder / "launched", folder / f"{name}.cubin", launch, launcher)


def script(dtypes: Mapping[str, str], tensors: Mapping[str, Seen]) -> str:
    """Lines that describe tensors to the program."""
    lines = []
    for name, tensor in tensors.items():
        numbers = (
            tensor.address,
            DTYPES.index(dtypes[name]),
            len(tensor.shape),
            *tensor.shape,
            *tensor.strides,
        )
        lines.append(f"tensor {name} {' '.join(map(str, numbers))}")
    return "\n".join(lines) + "\n"


def calls(said: list[dict[str, Any]], call: str) -> list[dict[str, Any]]:
    return [one for one in said if one["call"] == call]
