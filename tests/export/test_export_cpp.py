"""The C++ launcher, with a driver that only listens: it asks for what the recipe says, and nothing is left over.

Needs g++ or clang++; without one these tests are skipped.
"""

from __future__ import annotations

import functools
import math
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cpp_program import Program, build_program, calls, compile_cpp, compiler, driver, sanitizers, script
from evaluated_recipe import Evaluated
from export_kernels import emitted, inputs
from observed_launch import Launch, Seen, observe

from wsopt.emit.recipe import DealtOrder, Recipe, TensorMap, Workspace
from wsopt.emit.recipe_of import launch_recipe
from wsopt.export.cpp_names import field_names
from wsopt.export.layout import ELEMENT_TYPES
from wsopt.export.write import make_export

KERNELS = ("biased", "gated", "split", "residual_norm", "positions", "lse", "window", "packed")
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
PROCESSORS = 5


@functools.cache
def recipe(name: str) -> Recipe:
    return launch_recipe(emitted(name).verified)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def program(name: str) -> Program:
    compiler()
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="wsopt-test-"))
    return build_program(make_export(emitted(name).verified), Path(_FOLDERS[-1].name))


def dtypes(name: str) -> dict[str, str]:
    return {one.name: one.dtype.value for one in recipe(name).tensors}


def little_endian(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "little")


def described(name: str, tensors: dict[str, Seen]) -> str:
    return script(dtypes(name), {one.name: tensors[one.name] for one in recipe(name).tensors})


def observed(name: str, case: int = 0) -> Launch:
    return observe(emitted(name).source, inputs(name)[case], PROCESSORS)


def bytes_of(one: TensorMap) -> int:
    return one.dtype.bits // 8


def expected_map(one: TensorMap, found: dict[str, Any]) -> dict[str, Any]:
    """The call of the driver that encodes a tensor map, dimensions innermost first."""
    return {
        "call": "map",
        "type": ELEMENT_TYPES[one.dtype][0],
        "address": found["address"],
        "dimensions": list(found["extents"][::-1]),
        "strides": [stride * bytes_of(one) for stride in found["strides"][-2::-1]],
        "box": list(one.box[::-1]),
        "steps": [1] * one.rank,
        "interleave": 0,
        "swizzle": SWIZZLES[one.swizzle],
        "promotion": 2,
        "fill": 0,
    }


@pytest.mark.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_asks_for_what_the_recipe_says(name: str) -> None:
    for case in range(len(inputs(name))):
        launch = observed(name, case)
        said = program(name).run(described(name, launch.seen) + "plan launch free", PROCESSORS=PROCESSORS)
        check_launch(
            recipe(name), Evaluated(recipe(name), launch.seen, PROCESSORS), said, program(name).launch
        )


def check_launch(made: Recipe, found: Evaluated, said: list[dict[str, Any]], launch: dict[str, Any]) -> None:
    assert [one["status"] for one in said if "status" in one] == [0] * 5
    (call,) = calls(said, "launch")
    assert call["grid"] == [*found.grid, *[1] * (3 - len(found.grid))]
    assert call["block"] == launch["kernel"]["block"]
    assert call["shared"] == launch["kernel"]["dynamic_shared_bytes"]
    assert (call["function"], call["stream"], call["context"], call["extra"]) == (0x3000, 0x7000, 0x1000, 0)
    assert call["attributes"] == [[6, 1]]
    assert calls(said, "attribute")[0]["value"] == call["shared"]
    assert said[-1] == {"call": "end", "held": 0}
    arguments = found.arguments()
    maps = calls(said, "map")
    wanted = [
        expected_map(one, value)
        for one, value in zip(made.arguments, arguments, strict=True)
        if isinstance(one, TensorMap)
    ]
    assert [{key: value for key, value in one.items() if key != "number"} for one in maps] == wanted
    check_parameters(made, arguments, call["parameters"], said)


def check_parameters(
    made: Recipe, arguments: list[Any], passed: list[str], said: list[dict[str, Any]]
) -> None:
    at, number = iter(passed), 0
    for argument, value in zip(made.arguments, arguments, strict=True):
        first = next(at)
        if isinstance(argument, TensorMap):
            number += 1
            assert little_endian(first[:16]) == number
            assert tuple(little_endian(next(at)) for _ in value["extents"]) == value["extents"]
            assert tuple(little_endian(next(at)) for _ in value["strides"]) == value["strides"]
        elif isinstance(argument, DealtOrder):
            (table,) = calls(said, "table")
            assert little_endian(first) == table["address"]
            assert table["elements"] == value
        elif isinstance(argument, Workspace):
            held = {one["address"]: one["bytes"] for one in calls(said, "memory")}
            cleared = {one["address"]: (one["value"], one["bytes"]) for one in calls(said, "clear")}
            size = value * argument.dtype.bits // 8
            assert held[little_endian(first)] == size
            assert cleared.get(little_endian(first)) == ((0, size) if argument.zeroed else None)
        else:
            assert little_endian(first) == value
    assert [little_endian(one) for one in at] == [0, 0]


@pytest.mark.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_gives_outputs_their_extents(name: str) -> None:
    launch = observed(name)
    said = program(name).run(described(name, launch.seen) + "outputs")
    found = {one["tensor"]: one for one in calls(said, "extents")}
    for output in recipe(name).outputs:
        seen = launch.seen[output.name]
        assert found[output.name]["extents"] == [
            list(one) for one in zip(seen.shape, seen.strides, strict=True)
        ]


@pytest.mark.compiler
@pytest.mark.parametrize("name", KERNELS)
def test_refuses_with_the_recipes_sentence(name: str) -> None:
    launch, made = observed(name), recipe(name)
    wrong = []
    for tensor, seen in launch.seen.items():
        wrong.append({**launch.seen, tensor: replace(seen, address=seen.address + 8)})
        for dim in range(len(seen.shape)):
            shape = tuple(n - (i == dim) for i, n in enumerate(seen.shape))
            strides = tuple(n + (i == dim) for i, n in enumerate(seen.strides))
            wrong += [{**launch.seen, tensor: replace(seen, shape=shape)}]
            wrong += [{**launch.seen, tensor: replace(seen, strides=strides)}]
    refusals = [Evaluated(made, tensors, PROCESSORS).refusal for tensors in wrong]
    text = "".join(described(name, tensors) + "plan free\n" for tensors in wrong)
    said = program(name).run(text, PROCESSORS=PROCESSORS)
    assert [one["message"] or None for one in calls(said, "plan")] == refusals
    assert {one["status"] for one in calls(said, "plan")} == {0, 1} or None not in refusals
    assert said[-1] == {"call": "end", "held": 0}
    assert sum(refusal is not None for refusal in refusals) > len(refusals) // 2


@pytest.mark.compiler
def test_refuses_other_types_ranks_and_no_data() -> None:
    launch = observed("biased")
    good = described("biased", launch.seen)
    x = launch.seen["x"]
    as_f16 = script({"x": "f16"}, {"x": x})
    flat = script({"x": "bf16"}, {"x": Seen((1,), (1,), 64)})
    nowhere = script({"x": "bf16"}, {"x": replace(x, address=0)})
    said = program("biased").run(
        "".join(f"{good}{wrong}plan\n" for wrong in (as_f16, flat, nowhere)) + "silent"
    )
    assert [(one["status"], one["message"]) for one in calls(said, "plan")] == [
        (1, "tensor x is float16, expected bfloat16"),
        (1, "tensor x has 1 dimensions, expected 2"),
        (1, "tensor x has no data"),
    ]
    assert [one["status"] for one in calls(said, "silent")] == [1]


def refusal_of(name: str, rank: int, extent: int) -> str:
    """What a plan says where the tensors of so many dimensions have such a first extent."""
    huge = {
        tensor: replace(seen, shape=(extent, *seen.shape[1:])) if len(seen.shape) == rank else seen
        for tensor, seen in observed(name).seen.items()
    }
    (said,) = calls(program(name).run(described(name, huge) + "plan"), "plan")
    assert said["status"] == 1
    return str(said["message"])


@pytest.mark.compiler
def test_numbers_beyond_32_bits_are_refused() -> None:
    told = refusal_of("residual_norm", 2, 2**33)
    assert told == f"an extent is {2**33}: the kernel takes 32 bits"


@pytest.mark.compiler
def test_more_tiles_than_places_are_found_for_are_refused() -> None:
    told = refusal_of("gated", 3, 2**30)
    assert "tiles, too many for this kernel: compile the graph at these extents" in told


# --- plans ----------------------------------------------------------------------------------------------


def moved(tensors: dict[str, Seen], by: int) -> dict[str, Seen]:
    return {name: replace(seen, address=seen.address + by) for name, seen in tensors.items()}


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["biased", "lse", "split"])
def test_a_plan_takes_other_tensors(name: str) -> None:
    launch, made = observed(name), recipe(name)
    later = moved(launch.seen, 4096)
    text = f"{described(name, launch.seen)}plan launch {described(name, later)}update launch free"
    said = program(name).run(text, PROCESSORS=PROCESSORS)
    assert len(calls(said, "table")) == (made.order is not None)
    found = Evaluated(made, later, PROCESSORS)
    wanted = [expected_map(one, value) for one, value in zip(made.arguments, found.arguments(), strict=True)
              if isinstance(one, TensorMap)]  # fmt: skip
    assert [one["address"] for one in calls(said, "map")][len(wanted) :] == [one["address"] for one in wanted]
    before, after = (one["parameters"] for one in calls(said, "launch"))
    for argument, ours, theirs in zip(program(name).launch["parameters"], before, after, strict=True):
        if argument["content"] == "pointer":
            assert little_endian(theirs) == little_endian(ours) + 4096
        elif argument["content"] != "tensor_map":
            assert ours == theirs


@pytest.mark.compiler
def test_a_plan_stays_what_it_is_where_its_update_is_refused() -> None:
    launch, shorter = observed("lse"), observed("lse", 2)
    text = f"{described('lse', launch.seen)}plan launch {described('lse', shorter.seen)}update launch free"
    said = program("lse").run(text, PROCESSORS=PROCESSORS)
    (update,) = calls(said, "update")
    assert update["status"] == 1
    assert update["message"] == "the plan was made for tensors of other extents: create one for these"
    one, other = calls(said, "launch")
    assert one == other


@pytest.mark.compiler
def test_a_plan_with_a_workspace_takes_no_more_tiles_than_it_was_made_for() -> None:
    few, many = observed("split", 1), observed("split")
    one, other = described("split", few.seen), described("split", many.seen)
    said = program("split").run(f"{one}plan {other}update launch free", PROCESSORS=PROCESSORS)
    (update,) = calls(said, "update")
    assert (update["status"], update["message"]) == (
        1,
        "the plan was made for tensors of fewer tiles: create one for these",
    )
    said = program("split").run(f"{other}plan {one}update launch free", PROCESSORS=PROCESSORS)
    assert [one["status"] for one in calls(said, "update")] == [0]
    assert len(calls(said, "memory")) == 2
    assert len(calls(said, "clear")) == 1
    assert said[-1] == {"call": "end", "held": 0}


@pytest.mark.compiler
def test_without_an_order_a_plan_takes_other_extents() -> None:
    launch, shorter = observed("biased"), observed("biased", 1)
    text = f"{described('biased', launch.seen)}plan {described('biased', shorter.seen)}update launch free"
    said = program("biased").run(text, PROCESSORS=PROCESSORS)
    (call,) = calls(said, "launch")
    found = Evaluated(recipe("biased"), shorter.seen, PROCESSORS)
    assert call["grid"] == [*found.grid, *[1] * (3 - len(found.grid))]


@pytest.mark.compiler
@pytest.mark.parametrize(("version", "cleared"), [(13010, True), (13020, False)])
def test_small_maps_are_mended_for_drivers_that_need_it(version: int, cleared: bool) -> None:
    """The tensors of the reduced graph: those of fewer than 128 KiB have a bit cleared, as with Triton."""
    launch, made = observed("biased", 1), recipe("biased")
    said = program("biased").run(
        described("biased", launch.seen) + "plan launch free", DRIVER_VERSION=version
    )
    (call,) = calls(said, "launch")
    at = 0
    sizes = set()
    for one in made.maps:
        seen = launch.seen[one.tensor]
        small = seen.shape[0] * seen.strides[0] * 2 < 128 * 1024
        word = little_endian(call["parameters"][at][16:32])
        assert word == (2**64 - 1) ^ (1 << 21) * (small and cleared)
        at += 1 + 2 * one.rank
        sizes.add(small)
    assert sizes == {True, False}


# --- devices and drivers --------------------------------------------------------------------------------


@pytest.mark.compiler
def test_refuses_another_device_and_another_cubin(tmp_path: Path) -> None:
    biased = program("biased")
    for environment, status, message in (
        ({"CAPABILITY": 100}, 2, "the kernel is for sm_90a; the current device is sm_100"),
        (
            {"NO_CONTEXT": 1},
            2,
            "no CUDA context is current: make one current, by cuCtxSetCurrent or cudaSetDevice",
        ),
    ):
        said = biased.run("", **environment)
        assert [(one["status"], one["message"]) for one in calls(said, "create")] == [(status, message)]
        assert said[-1] == {"call": "end", "held": 0}
    other = tmp_path / "other.cubin"
    for damaged in (biased.cubin.read_bytes()[:-1], biased.cubin.read_bytes()[:-1] + b"x", b""):
        other.write_bytes(damaged)
        (said_of_it,) = calls(biased.run("", cubin=other), "create")
        assert said_of_it["status"] == 1
        assert "is not the small.cubin that was exported with this launcher" in said_of_it["message"]


@pytest.mark.compiler
@pytest.mark.parametrize(
    "call",
    [
        "cuCtxGetCurrent", "cuCtxGetDevice", "cuDeviceGetAttribute", "cuModuleLoadData", "cuModuleGetFunction",
        "cuFuncSetAttribute", "cuTensorMapEncodeTiled", "cuMemAlloc", "cuStreamCreate", "cuMemcpyHtoDAsync",
        "cuStreamSynchronize", "cuLaunchKernelEx", "cuCtxPushCurrent",
    ],
)  # fmt: skip
def test_a_call_that_fails_is_told_and_leaves_nothing(call: str) -> None:
    """Whichever call of the driver fails, some call of the launcher says so; none crashes, and all is given back."""
    launch = observed("lse")
    said = program("lse").run(described("lse", launch.seen) + "plan launch update free", FAIL=call)
    failed = [one for one in said if one.get("status") == 3]
    assert failed
    assert {one["driver"] for one in failed} == {1}
    assert all("CUDA_ERROR_INVALID_VALUE, invalid argument" in one["message"] for one in failed)
    if call != "cuCtxPushCurrent":  # without it, memory and modules of another context cannot be given back
        assert said[-1] == {"call": "end", "held": 0}


@pytest.mark.compiler
@pytest.mark.parametrize("call", ["cuMemAlloc", "cuStreamCreate", "cuMemsetD8Async", "cuStreamSynchronize"])
def test_a_workspace_that_fails_is_told_and_given_back(call: str) -> None:
    said = program("split").run(described("split", observed("split").seen) + "plan launch free", FAIL=call)
    (plan,) = calls(said, "plan")
    assert (plan["status"], plan["driver"]) == (3, 1)
    assert plan["message"].startswith("memory for the workspace: CUDA_ERROR_INVALID_VALUE")
    assert said[-1] == {"call": "end", "held": 0}


# --- texts ----------------------------------------------------------------------------------------------


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["gated", "lse", "split"])
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    folder, made = program(name).path.parent, recipe(name)
    compile_cpp(
        [*sanitizers(), folder / "example.cpp", program(name).launcher, driver(), "-o", tmp_path / "example"]
    )  # fmt: skip
    launch, given = observed(name), []
    for one in made.inputs:
        shape = launch.seen[one.name].shape
        (tmp_path / f"{one.name}.bin").write_bytes(bytes(math.prod(shape) * one.dtype.bits // 8))
        given.append(f"{one.name}={'x'.join(map(str, shape))}:{one.name}.bin")
    given += [f"{one.name}={one.name}.out" for one in made.outputs]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tmp_path / "example"), str(program(name).cubin), *arguments],
            capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60,
        )  # fmt: skip

    done = run(*given, "repeat=3")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall('"call": "launch"', done.stdout)) == 4
    assert "us a launch on the host, of 3" in done.stdout
    assert '{"call": "end", "held": 0}' in done.stdout
    for one in made.outputs:
        wanted = math.prod(launch.seen[one.name].shape) * one.dtype.bits // 8
        assert (tmp_path / f"{one.name}.out").stat().st_size == wanted
    done = run(*given[1:])
    assert (done.returncode, done.stderr) == (1, f"give {made.inputs[0].name}=EXTENTS:FILE of that size\n")


def test_names_of_tensors_that_mean_something_else_in_cpp() -> None:
    wanted = {"x": "x", "int": "int_", "W": "W", "WQ": "WQ", "NULL": "NULL_", "a__b": "a_b", "_1": "tensor_1"}
    assert field_names(wanted) == wanted
    assert field_names(["x", "_x", "__", "tensor"]) == {
        "x": "x",
        "_x": "x2",
        "__": "tensor",
        "tensor": "tensor2",
    }
    names = [f"{'_' * i}x{'_' * j}" for i in range(4) for j in range(4)]
    fields = field_names(names)
    assert len(set(fields.values())) == len(names)
    assert not any("__" in field for field in fields.values())
