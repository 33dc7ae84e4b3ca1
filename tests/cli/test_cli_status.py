"""Exit statuses and messages: one or two lines each, nothing written, a traceback only where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Compiled, Done, assert_says, product, write, wsopt

from wsopt.cli import main
from wsopt.errors import CheckError, InputError
from wsopt.folder import read_folder
from wsopt.graph.reference import random_inputs
from wsopt.graph.types import Graph
from wsopt.interpret import execute
from wsopt.lowering.reduced_graph import parse_derived

TINY = """
base = "h200"
name = "tiny"
title = "An H200 with little shared memory"
shared_memory_per_block_bytes = { value = 4096, source = "derived: too little for a ring" }
"""


def compile_refused(folder: Path, graph: object, *options: str) -> Done:
    """A compile that fails and leaves nothing behind."""
    write(folder, graph)
    before = {path.name for path in folder.iterdir()}
    done = wsopt(folder, "compile", "graph.json", *options)
    assert {path.name for path in folder.iterdir()} - {"cache"} == before
    return done


def test_all_faults_of_a_graph_at_once(tmp_path: Path) -> None:
    graph = product()
    graph["inputs"][0]["dtype"] = "bf61"
    graph["nodes"][0]["op"] = "matmull"
    graph["outputs"] = ["z"]
    done = compile_refused(tmp_path, graph)
    assert_says(done, 2, "/inputs/0/dtype", "/nodes/0/op", "/outputs/0", '"matmul"')
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "nest"),
        (b"[]", "an object"),
    ],
)
def test_files_that_are_no_graph(text: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_bytes(text)
    assert_says(wsopt(tmp_path, "compile", "graph.json"), 2, "graph.json", why)
    assert [path.name for path in tmp_path.iterdir()] == ["graph.json"]


def test_no_file(tmp_path: Path) -> None:
    told = "wsopt: absent.json: cannot be read: No such file or directory\n"
    assert wsopt(tmp_path, "compile", "absent.json").stderr == told
    assert_says(wsopt(tmp_path, "compile", "absent.json"), 2)
    assert_says(wsopt(tmp_path, "compile", "."), 2, "directory")


def test_unknown_machine(tmp_path: Path) -> None:
    assert_says(compile_refused(tmp_path, product(), "--machine", "h20O"), 2, "did you mean h20", "rtx_5090")


def test_bad_machine_files(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        'base = "h200"\nsm_count = { value = -1, source = "x" }\nsm_cuont = 3\n'
    )
    done = compile_refused(tmp_path, product(), "--machine", "bad.toml")
    assert_says(done, 2, "/sm_count", "/sm_cuont")
    (tmp_path / "bad.toml").write_text("sm_count = [")
    assert_says(compile_refused(tmp_path, product(), "--machine", "bad.toml"), 2, "bad.toml", "not TOML")
    assert_says(compile_refused(tmp_path, product(), "--machine", "absent.toml"), 2, "absent.toml")


def test_what_cannot_be_lowered_is_named(tmp_path: Path) -> None:
    graph = product()
    graph["nodes"].insert(1, {"name": "spread", "op": "pow", "inputs": ["p", "p"]})
    graph["nodes"][2]["inputs"] = ["spread"]
    assert_says(compile_refused(tmp_path, graph), 3, "spread")


@pytest.mark.solver
@pytest.mark.compiler
def test_a_graph_may_hold_what_no_output_needs(tmp_path: Path) -> None:
    graph = product()
    graph["inputs"] += [{"name": "z", "shape": [128, 1], "dtype": "f32"}]
    graph["nodes"] += [
        {"name": "aside", "op": "add", "inputs": ["p", "z"]},
        {"name": "alone", "op": "mul", "inputs": ["z", "z"]},
    ]
    write(tmp_path, graph)
    done = wsopt(tmp_path, "compile", "graph.json", "-o", "made")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "made" / "graph.json").read_text())["inputs"] == graph["inputs"]
    assert wsopt(tmp_path, "run", "made", "--seeds", "1").returncode == 0
    found = read_folder(tmp_path / "made")
    inputs = random_inputs(found.graph, 0)  # with one that the kernel does not read
    assert set(execute(found.kernel, inputs, seed=0, constants=found.graph.constants).outputs) == {"y"}
    graph["nodes"][-1]["inputs"] = ["z", "nowhere"]  # no output needs it, and it is a fault all the same
    (tmp_path / "other").mkdir()
    assert_says(compile_refused(tmp_path / "other", graph), 2, "/nodes/3/inputs/1")


def test_a_fault_of_wsopt_is_not_the_inputs(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The left operand's contracted axis gets another extent than the right one's.
    def wrong(data: dict[str, Any], graph: Graph) -> Graph:
        data["inputs"][0]["shape"][-1] += 8
        return parse_derived(data, graph)

    monkeypatch.setattr("wsopt.lowering.reduced_graph.parse_derived", wrong)
    monkeypatch.setattr("sys.argv", ["wsopt", "run", str(compiled.build)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    assert told.err.startswith("wsopt: internal error: small at reduced extents is no graph (/nodes/0")
    assert "a fault of wsopt, not of your input" in told.err
    assert "--debug" in told.err


def test_a_card_that_is_not_compiled_for(tmp_path: Path) -> None:
    assert_says(compile_refused(tmp_path, product(), "--machine", "rtx_5090"), 3, "RTX 5090", "sm_120")


def test_what_a_target_does_not_have_yet(tmp_path: Path) -> None:
    graph = product()
    graph["nodes"][0]["attrs"]["accumulate"] = "promoted"
    done = compile_refused(tmp_path, graph, "--machine", "b200")
    assert_says(done, 3, "Blackwell (sm_100)", "sums that are promoted", "--machine h200")


@pytest.mark.slow
def test_no_structure_fits(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    done = compile_refused(tmp_path, product(), "--machine", "./tiny.toml")
    assert_says(done, 3, "graph small", "shared memory")
    assert len(done.stderr.splitlines()) == 1


def test_a_traceback_only_where_asked_for(tmp_path: Path) -> None:
    write(tmp_path, product())
    for arguments in (("--debug", "compile", "graph.json"), ("compile", "graph.json", "--debug")):
        done = wsopt(tmp_path, *arguments, "--machine", "rtx_5090")
        assert done.returncode == 3  # as without it
        assert "Traceback" in done.stderr
        assert "LoweringError" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("bogus",),
        ("compile",),
        ("compile", "graph.json", "--time-limit", "-1"),
        ("compile", "graph.json", "--time-limit", "nan"),
        ("compile", "graph.json", "--card", "H200"),
        ("run", "x", "--device", "tpu"),
        ("run", "x", "--seeds", "0"),
        ("inspect", "x", "--bogus"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert_says(wsopt(tmp_path, *arguments), 2, "Usage")


# --- builds that are read back --------------------------------------------------------------------------


def tamper(folder: Path, *keys: str | int, value: object) -> None:
    """Change one value of schedule.json."""
    path = folder / "small.wsopt" / "schedule.json"
    data = json.loads(path.read_text())
    at: Any = data
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value(at[keys[-1]]) if callable(value) else value
    path.write_text(json.dumps(data))


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_a_schedule_that_is_not_right(command: str, warm: Path) -> None:
    tamper(warm, "schedule", "ii", value=lambda ii: ii - 1)
    done = wsopt(warm, command, "small.wsopt")
    assert_says(done, 4, "schedule of small rejected", "has an effective II of")
    assert len(done.stderr.splitlines()) <= 2


FIELDS = ("rows", "columns", "depth", "consumers", "consumer_warps", "subtiles", "group", "copies", "tail")


@pytest.mark.parametrize("number", [0, -64, 3, 10**30])
def test_a_structure_that_cannot_be(number: int, warm: Path) -> None:
    path = warm / "small.wsopt" / "schedule.json"
    whole = path.read_bytes()
    for field in FIELDS:
        if (field, number) == ("tail", 0):
            continue  # a last K-block that is taken whole
        path.write_bytes(whole)
        tamper(warm, "schedule", "structure", field, value=number)
        with pytest.raises((InputError, CheckError)):
            read_folder(path.parent)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "/format"),
        (b'{"format": "wsopt.schedule/1"}', "has no machine"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_damaged_schedule_file(text: bytes, why: str, warm: Path) -> None:
    (warm / "small.wsopt" / "schedule.json").write_bytes(text)
    assert_says(wsopt(warm, "inspect", "small.wsopt"), 2, "schedule.json", why)


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        (("schedule",), "/schedule"),
        (("certificate",), "/certificate"),
        (("schedule", "placed"), "/schedule/placed"),
        (("schedule", "structure", "sharing"), "/schedule/structure/sharing"),
        (("machine", "sm_count"), "/machine/sm_count"),
    ],
)
def test_a_damaged_field(keys: tuple[str, ...], place: str, warm: Path) -> None:
    tamper(warm, *keys, value="?")
    assert_says(wsopt(warm, "inspect", "small.wsopt"), 2, place)


def test_a_figure_that_an_earlier_release_had_not(warm: Path) -> None:
    path = warm / "small.wsopt" / "schedule.json"
    data = json.loads(path.read_text())
    del data["machine"]["dram_read_bandwidth"]
    path.write_text(json.dumps(data))
    assert_says(
        wsopt(warm, "inspect", "small.wsopt"), 2, "/machine/dram_read_bandwidth", "compile its graph.json"
    )


@pytest.mark.parametrize("name", ["graph.json", "schedule.json", "kernel.py"])
def test_a_file_that_is_missing(name: str, warm: Path) -> None:
    (warm / "small.wsopt" / name).unlink()
    assert_says(wsopt(warm, "run", "small.wsopt"), 2, name, "No such file")
    (warm / "small.wsopt" / name).mkdir()
    assert_says(wsopt(warm, "run", "small.wsopt"), 2, name, "directory")


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [(b"\xff", 2, "not UTF-8"), (b"def (", 4, "kernel.py:1"), (b"x = 1", 4, "no function prepare")],
)
def test_a_damaged_kernel(text: bytes, status: int, why: str, warm: Path) -> None:
    (warm / "small.wsopt" / "kernel.py").write_bytes(text)
    assert_says(wsopt(warm, "run", "small.wsopt", "--seeds", "1"), status, why)


def test_a_kernel_that_is_wrong(warm: Path) -> None:
    path = warm / "small.wsopt" / "kernel.py"
    source = path.read_text()
    assert "    fence_async_shared()\n    tma_store(" in source
    path.write_text(source.replace("    fence_async_shared()\n    tma_store(", "    tma_store("))
    assert_says(wsopt(warm, "run", "small.wsopt", "--seeds", "2"), 4, "kernel.py:")


def test_no_build(tmp_path: Path) -> None:
    for command in ("run", "inspect"):
        assert_says(wsopt(tmp_path, command, "absent"), 2, "absent", "is no folder")
