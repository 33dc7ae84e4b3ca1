"""`wsopt export`: what it writes, what it refuses, and that a kernel that wants another launch is noticed."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked_command
import pytest
from emit_builds import build
from export_kernels import PACKED, emitted

from wsopt.codegen.kernel_file import load_kernel_file
from wsopt.emit.recipe_of import launch_recipe
from wsopt.errors import CheckError, LoweringError
from wsopt.export.binary import Binary, CubinParameter, compile_binary
from wsopt.export.cpp import digest
from wsopt.export.layout import Content, parameters
from wsopt.export.write import make_export

ROOT = Path(__file__).parents[2]
FILES = ("README.md", "example.cpp", "launch.json", "small.cpp", "small.cubin", "small.h", "wsopt_launch.h")


ANSWER = """
import json, sys
from wsopt.export.binary_child import answer
print(json.dumps(answer(json.load(sys.stdin))))
"""


@pytest.fixture(scope="module")
def binary() -> Binary:
    return compile_binary(emitted("biased").source, "sm_90")


def wsopt(*arguments: object) -> subprocess.CompletedProcess[str]:
    return forked_command.run(Path.cwd(), tuple(map(str, arguments)), os.environ)


# --- the kernel's parameters ----------------------------------------------------------------------------


@pytest.mark.compiler
def test_parameters_are_the_compiled_kernels(binary: Binary) -> None:
    found = parameters(launch_recipe(emitted("biased").verified), binary)
    content = [one.content for one in found]
    tensor_map = [Content.TENSOR_MAP, *[Content.EXTENT] * 2, *[Content.STRIDE] * 2]
    assert content == [*tensor_map * 3, Content.POINTER, *[Content.SCALAR] * 5, *[Content.SCRATCH] * 2]
    ends = [one.offset + one.size for one in found]
    assert all(end <= later.offset for end, later in zip(ends, found[1:], strict=False))


def test_another_release_passes_the_same_parameters(binary: Binary, other_triton: str) -> None:
    request = json.dumps({"source": emitted("biased").source, "architecture": "sm_90"})
    done = subprocess.run(
        [other_triton, "-c", ANSWER],
        input=request, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    other = json.loads(done.stdout)
    assert other["compiled"]["triton_version"] != binary.compiled.triton_version
    assert [(one["offset"], one["size"]) for one in other["parameters"]] == [
        (one.offset, one.size) for one in binary.parameters
    ]
    assert [tuple(one["box"]) for one in other["maps"]] == [one.box for one in binary.maps]
    assert (other["threads"], other["scratch_bytes"]) == (binary.threads, 0)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda b: {"parameters": b.parameters[:-1]},
            "passes parameters of 128, 4, 4, 8, 8, .*; expected 128",
        ),
        (lambda b: {"parameters": (*b.parameters[:-1], CubinParameter(0, 4))}, "passes parameters of"),
        (lambda b: {"scratch_bytes": 64}, "asks for 64 bytes of device memory as scratch"),
        (lambda b: {"blocks_together": 2}, "asks for a cluster"),
        (lambda b: {"cooperative": True}, "asks for a cluster or a cooperative launch"),
        (lambda b: {"maps": b.maps[1:]}, "takes 2 tensor maps; expected 3"),
        (lambda b: {"maps": (replace(b.maps[0], swizzle=64), *b.maps[1:])}, "takes x_desc as .*swizzle=64"),
        (
            lambda b: {"maps": (replace(b.maps[0], box=(64, 32)), *b.maps[1:])},
            "takes x_desc as .*box=.64, 32",
        ),
        (lambda b: {"maps": (replace(b.maps[0], element_type=6), *b.maps[1:])}, "expected .*element_type=9"),
        (
            lambda b: {"signature": b.signature[::-1]},
            "kernel has the arguments column_extent, .*; expected",
        ),
        (lambda b: {"symbol": "other"}, "the kernel other has the arguments"),
    ],
)
def test_a_kernel_that_wants_another_launch_is_refused(binary: Binary, change: Any, message: str) -> None:
    with pytest.raises(CheckError, match=message):
        parameters(launch_recipe(emitted("biased").verified), replace(binary, **change(binary)))


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.compiler
def test_the_description_says_what_the_recipe_says() -> None:
    made = make_export(emitted("lse").verified)
    recipe = launch_recipe(emitted("lse").verified)
    document = json.loads(made.files["launch.json"])
    assert document["format"] == "wsopt.launch/1"
    assert [one["name"] for one in document["outputs"]] == [one.name for one in recipe.outputs]
    assert [one["name"] for one in document["names"]] == [name for name, _ in recipe.names]
    assert len(document["tensor_checks"]) == len(recipe.compiled_checks)
    assert len(document["checks"]) == len(recipe.checks)
    assert document["kernel"]["grid"] == ["blocks", 1, 1]
    assert document["kernel"]["block"] == [384, 1, 1]
    values = {one["name"]: one["value"] for one in document["names"]}
    assert values["blocks"] == ["minimum", "processors", "tiles"]
    assert document["order"]["end"][0] == "minimum"
    first = document["tensor_maps"][0]
    assert first["data_type"] == {"name": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16", "value": 9}
    assert first["dimensions"] == [["multiply", ["extent", "q", 0], ["extent", "q", 1]], ["extent", "q", 2],
                                   ["extent", "q", 3]]  # fmt: skip
    assert first["swizzle"] == {"name": "CU_TENSOR_MAP_SWIZZLE_64B", "value": 2}
    pointers = [one for one in document["parameters"] if one["content"] == "pointer"]
    assert [one["tensor"] for one in pointers] == ["lse"]
    cubin = made.files[document["kernel"]["file"]]
    assert isinstance(cubin, bytes)
    assert f"kCubinDigest = {digest(cubin)}ull" in str(made.files[f"{recipe.name}.cpp"])


@pytest.mark.compiler
def test_the_same_schedule_gives_the_same_texts() -> None:
    one, other = (make_export(emitted("biased").verified).files for _ in range(2))
    assert one == other


def test_tensors_of_too_many_dimensions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wsopt.export.write.MAX_RANK", 1)
    with pytest.raises(
        LoweringError, match="tensor x: it has 2 dimensions, an exported launcher takes up to 1"
    ):
        make_export(emitted("biased").verified)


def test_what_only_python_packs_is_refused_and_room_behind_rows_is_not() -> None:
    with pytest.raises(LoweringError, match=r"tensor q: the kernel reads it packed \(fragments\)"):
        make_export(build(PACKED.graph, PACKED.structure, PACKED.kib).verified)
    assert "w" in {one.tensor for one in launch_recipe(emitted("biased").verified).packed}
    assert make_export(emitted("biased").verified).files


def test_digest_is_fnv() -> None:
    """Values of the authors of FNV."""
    assert [digest(one) for one in (b"", b"a", b"foobar")] == [
        0xCBF29CE484222325, 0xAF63DC4C8601EC8C, 0x85944171F73967E8,
    ]  # fmt: skip


# --- the command ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    graph = {
        "format": "wsopt.graph/1",
        "name": "small",
        "inputs": [
            {"name": "x", "shape": [256, 128], "dtype": "bf16"},
            {"name": "int", "shape": [256, 128], "dtype": "bf16", "constant": True},
        ],
        "nodes": [
            {"name": "p", "op": "matmul", "inputs": ["x", "int"], "attrs": {"transpose_b": True}},
            {"name": "y", "op": "cast", "inputs": ["p"], "attrs": {"dtype": "bf16"}},
        ],
        "outputs": ["y"],
    }
    (folder / "small.json").write_text(json.dumps(graph))
    done = wsopt("compile", folder / "small.json", "-o", folder / "small.wsopt")
    assert done.returncode == 0, done.stderr
    return folder


def test_exports_a_build(built: Path) -> None:
    target = built / "small.export"
    for _ in range(2):  # an export replaces another
        done = wsopt("export", built / "small.wsopt", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        assert told["directory"] == str(target)
        assert sorted(item.name for item in target.iterdir()) == told["files"] == list(FILES)
    assert "wsopt_tensor int_;" in (target / "small.h").read_text()
    assert (target / "small.cubin").read_bytes()[:4] == b"\x7fELF"
    said = wsopt("export", built / "small.wsopt", "-o", target)
    assert said.stdout.startswith("small for sm_90a, compiled by Triton ")


def test_refuses_what_is_no_build_and_what_it_would_destroy(built: Path, tmp_path: Path) -> None:
    done = wsopt("export", tmp_path, "-o", tmp_path / "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is this a folder that compile wrote?" in done.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    done = wsopt("export", built / "small.wsopt", "-o", tmp_path / "mine")
    assert done.returncode == 2
    assert "holds thesis.tex, which is no part of an export; it is not replaced" in done.stderr
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_refuses_a_kernel_that_is_not_the_schedules(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "edited.wsopt"
    folder.mkdir()
    for file in (built / "small.wsopt").iterdir():
        text = file.read_text()
        (folder / file.name).write_text(
            text.replace("RING_DEPTH", "DEPTH") if file.name == "kernel.py" else text
        )
    assert load_kernel_file(folder / "kernel.py").OPTIONS
    done = wsopt("export", folder, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "kernel.py: is not what this version of wsopt writes for schedule.json" in done.stderr
    assert not (tmp_path / "out").exists()
    assert f"`wsopt compile {folder / 'graph.json'} -o {folder}` writes it anew" in done.stderr
    assert wsopt("compile", folder / "graph.json", "-o", folder).returncode == 0
    assert wsopt("export", folder, "-o", tmp_path / "out").returncode == 0
