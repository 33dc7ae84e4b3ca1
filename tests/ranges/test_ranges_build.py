"""A graph with named dimensions from the command line to a folder, and the folder read back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_process import cache_in, status_of

import wsopt
from wsopt.errors import CheckError, InputError, LoweringError
from wsopt.folder import check_target, read_folder
from wsopt.graph.symbolic import load_any
from wsopt.ranges.build import RangeBuild, range_build, read_range
from wsopt.ranges.dispatch import dispatch_text
from wsopt.ranges.points import grid_of

GRAPH: dict[str, Any] = {
    "format": "wsopt.graph/1",
    "name": "projection",
    "deterministic": True,
    "dims": {"tokens": {"min": 60, "max": 70}},
    "inputs": [
        {"name": "x", "shape": ["tokens", 128], "dtype": "bf16"},
        {"name": "w", "shape": [128, 128], "dtype": "bf16", "constant": True},
    ],
    "nodes": [
        {"name": "h", "op": "matmul", "inputs": ["x", "w"]},
        {"name": "y", "op": "cast", "inputs": ["h"], "attrs": {"dtype": "bf16"}},
    ],
    "outputs": ["y"],
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ranges")
    (folder / "graph.json").write_text(json.dumps(GRAPH), encoding="utf-8")
    with cache_in(folder / "cache"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("wsopt.ranges.choose.SAMPLES", 2)
        made = status_of("compile", str(folder / "graph.json"), "--kernels", "2", "-o", str(folder / "built"))
        assert made == 0
        yield folder / "built"


def test_a_folder_holds_a_build_for_each_kernel(built: Path) -> None:
    found = read_range(built)
    assert 1 <= len(found.kernels) <= 2
    for member, kernel in zip(found.record.kernels, found.kernels, strict=True):
        assert kernel.graph.type_of("y").shape == (member.home["tokens"], 128)
        assert kernel.summary["verified"]["compiled"]
        assert read_folder(built / member.folder).kernel == kernel.kernel
    assert {path.name for path in built.iterdir()} == {
        "graph.json", "range.json", "kernel.py", "report.txt", "kernels",
    }  # fmt: skip


def test_kernel_py_dispatches_as_the_record_says(built: Path) -> None:
    found = read_range(built)
    folders = [member.folder for member in found.record.kernels]
    text = dispatch_text(found.graph, grid_of(found.graph.dims), found.record.serves, folders)
    assert (built / "kernel.py").read_text(encoding="utf-8") == text


def test_inspect_and_run_take_the_folder(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("inspect", str(built)) == 0
    shown = capsys.readouterr().out
    assert shown == (built / "report.txt").read_text(encoding="utf-8")
    assert "for tokens 60 to 70" in shown
    assert "that give a row the same bits" in shown
    assert status_of("inspect", str(built), "--json") == 0
    assert json.loads(capsys.readouterr().out)["searched"] == [[60], [70]]
    assert status_of("run", str(built), "--seeds", "1", "--json") == 0
    ran = json.loads(capsys.readouterr().out)
    assert ran["lines"]["run"] == ran["lines"]["of"] > 0


def test_a_second_compile_is_the_same_from_the_cache(built: Path) -> None:
    graph = load_any(built.parent / "graph.json")
    again = wsopt.compile_range(graph, kernels=2)  # type: ignore[arg-type]
    assert isinstance(again, RangeBuild)
    for name, text in again.files.items():
        assert (built / name).read_text(encoding="utf-8") == text
    assert (
        range_build(again.files, 0.0).summary["worst_loss"] == read_range(built).record.certificate.worst_loss
    )


@pytest.mark.parametrize("command", ["export", "trace", "bench"])
def test_commands_for_one_kernel_say_which_to_give(
    built: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--prepare"] if command == "trace" else []
    assert status_of(command, str(built), *options) == 2
    assert "holds several kernels; give one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"predicted_us": 0.5}, CheckError, "is said to take 0.5 us, the formula gives"),
        ({"serves": 7}, CheckError, "does not have the cells"),
        ({"best_us": 0.1}, CheckError, "the worst loss is"),
        ({"format": "wsopt.range/2"}, InputError, "/format: is not 'wsopt.range/1'"),
        ({"kernels": 3}, InputError, "/kernels"),
    ],
)
def test_a_record_that_is_not_right_is_refused(
    built: Path, tmp_path: Path, change: dict[str, Any], error: type[Exception], told: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(built, folder)
    data = json.loads((folder / "range.json").read_text(encoding="utf-8"))
    for key, value in change.items():
        if isinstance(data[key], list) and key != "kernels":
            data[key][0] = value
        else:
            data[key] = value
    (folder / "range.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(error) as caught:
        read_range(folder)
    assert told in str(caught.value)


def test_builds_of_one_kernel_and_of_several_replace_each_other_and_nothing_else(
    built: Path, tmp_path: Path
) -> None:
    several, one, other = tmp_path / "several", tmp_path / "one", tmp_path / "other"
    shutil.copytree(built, several)
    shutil.copytree(built / "kernels" / "0", one)
    check_target(several)
    check_target(one)
    (other / "kernels").mkdir(parents=True)
    (other / "kernel.py").touch()
    with pytest.raises(InputError, match="holds kernels, which is no part of a build"):
        check_target(other)
    with pytest.raises(InputError, match="which is no part of an export"):
        check_target(several, ("kernel.cubin",), "an export")


# --- refused before anything is searched ----------------------------------------------------------------


def _refused(tmp_path: Path, graph: dict[str, Any], *options: str) -> int:
    (tmp_path / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    status = status_of("compile", str(tmp_path / "graph.json"), "-o", str(tmp_path / "out"), *options)
    assert not (tmp_path / "out").exists()
    return status


@pytest.mark.parametrize("option", ["--tuned", "--under=consumers=2"])
def test_options_about_one_kernel_are_refused_for_a_range(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _refused(tmp_path, GRAPH, option) == 2
    assert "is for graphs of numbers" in capsys.readouterr().err


def test_a_number_of_kernels_is_refused_for_a_graph_of_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {key: value for key, value in GRAPH.items() if key != "dims"}
    plain["inputs"] = [{**GRAPH["inputs"][0], "shape": [64, 128]}, GRAPH["inputs"][1]]
    assert _refused(tmp_path, plain, "--kernels", "2") == 2
    assert "is for a graph with named dimensions (dims)" in capsys.readouterr().err
    with pytest.raises(InputError, match="/dims: there are none"):
        wsopt.compile_range(plain)


def test_an_empty_range_has_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _refused(tmp_path, {**GRAPH, "dims": {"tokens": {"min": 9, "max": 8}}}) == 2
    assert "/dims/tokens: min 9 is above max 8: the range is empty" in capsys.readouterr().err


def test_extents_that_cannot_be_lowered_have_status_3(tmp_path: Path) -> None:
    inputs = [{"name": "x", "shape": [128, "tokens"], "dtype": "bf16"}, GRAPH["inputs"][1]]
    nodes = [
        {"name": "h", "op": "matmul", "inputs": ["x", "w"], "attrs": {"transpose_a": True}},
        GRAPH["nodes"][1],
    ]
    graph = {**GRAPH, "dims": {"tokens": {"min": 61, "max": 61}}, "inputs": inputs, "nodes": nodes}
    with pytest.raises(LoweringError, match="with tokens = 61: tensor x: axis 0"):
        wsopt.compile_range(graph, use_cache=False)


def test_extents_that_tma_cannot_move_have_status_3() -> None:
    g = wsopt.Graph("transposed")
    tokens = g.dim("tokens", 64, 80)
    x, w = g.input("x", (128, tokens), "bf16"), g.input("w", (128, 128), "bf16")
    g.output(g.cast(g.matmul(x, w, transpose_a=True), dtype="bf16", name="y"))
    with pytest.raises(LoweringError, match="with tokens = 65: tensor x: axis 0 "):
        wsopt.compile_range(g, use_cache=False)


def test_extents_that_kernels_have_fixed_have_status_3() -> None:
    g = wsopt.Graph("rows")
    columns = g.dim("columns", 64, 96)
    x = g.input("x", (512, columns), "bf16")
    g.output(g.cast(g.softmax(x), dtype="bf16", name="y"))
    with pytest.raises(
        LoweringError,
        match="no kernel takes both columns = 81 and columns = 96: rows that are reduced have 81",
    ):
        wsopt.compile_range(g, use_cache=False)
