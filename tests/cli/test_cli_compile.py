"""`wsopt compile`: what it prints and writes, the same bytes each time, and what the cache is worth."""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import FILES, Compiled, contents, product, write, wsopt

from wsopt.requirements import TRITON

KEYS = {
    "name", "machine", "status", "predicted_us", "bound_us", "roofline_us", "gap", "solve_s", "structures",
    "kernels", "verified", "directory",
}  # fmt: skip
KERNEL_KEYS = {
    "name", "structure", "ii_cycles", "partitions", "rings", "shared_memory_bytes", "ptxas",
}  # fmt: skip


def test_json_is_one_object(compiled: Compiled) -> None:
    assert compiled.done.returncode == 0, compiled.done.stderr
    assert compiled.done.stderr == ""
    assert compiled.done.stdout.count("\n") == 1
    found = compiled.summary
    assert set(found) == KEYS
    assert (found["name"], found["status"], found["gap"]) == ("small", "optimal", 0)
    assert found["predicted_us"] == found["bound_us"] > found["roofline_us"] > 0
    assert found["directory"] == "small.wsopt"
    assert found["structures"]["solved"] >= 1
    counts = found["structures"]
    assert set(counts) == {"considered", "pruned", "infeasible", "solved"}
    assert counts["considered"] == counts["pruned"] + counts["infeasible"] + counts["solved"]


def test_json_of_the_kernel(compiled: Compiled) -> None:
    (kernel,) = compiled.summary["kernels"]
    assert set(kernel) >= KERNEL_KEYS
    assert {part["role"] for part in kernel["partitions"]} == {"consumer", "loader"}
    assert all(set(part) == {"role", "warps", "registers"} for part in kernel["partitions"])
    assert all(depth >= 1 for depth in kernel["rings"].values())
    ptxas = kernel["ptxas"]
    made = {
        "registers",
        "stack_bytes",
        "spill_loads",
        "spill_stores",
        "tensor_instructions",
        "tensor_columns",
    }
    assert set(ptxas) == made
    assert (ptxas["stack_bytes"], ptxas["spill_loads"], ptxas["spill_stores"]) == (0, 0, 0)
    assert ptxas["tensor_instructions"] > 0


def test_all_three_checks(compiled: Compiled) -> None:
    verified = compiled.summary["verified"]
    assert (verified["checker"], verified["compiled"]) == (True, True)
    assert verified["interpreter"]["seeds"] >= 20
    assert 0 <= verified["interpreter"]["max_relative_error"] < 1e-2
    assert verified["interpreter"]["lines"]["run"] == verified["interpreter"]["lines"]["of"] > 20
    assert 0 <= verified["interpreter"]["max_row_error"] < 1e-2
    assert 0 <= verified["interpreter"]["max_bound_share"] <= 1


def test_writes_the_four_files(compiled: Compiled) -> None:
    assert set(contents(compiled.build)) == FILES
    assert json.loads((compiled.build / "graph.json").read_text())["name"] == "small"
    kernel = (compiled.build / "kernel.py").read_text()
    imports = {
        line.split()[1].partition(".")[0]
        for line in kernel.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imports - sys.stdlib_module_names - {"__future__"} == {"torch", "triton"}
    head = ast.get_docstring(ast.parse(kernel)) or ""
    assert f"Needs torch and {TRITON}." in head
    assert head.endswith("SPDX-License-Identifier: Apache-2.0")
    assert {path.name for path in compiled.folder.iterdir()} == {"small.json", "small.wsopt", "cache"}


def test_same_bytes_without_the_cache(compiled: Compiled, tmp_path: Path) -> None:
    write(tmp_path, product(), "small.json")
    done = wsopt(tmp_path, "compile", "small.json", "--no-cache", "-o", "again", PYTHONHASHSEED="7")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "again") == contents(compiled.build)
    assert not (tmp_path / "cache").exists()
    assert done.stderr == ""
    assert done.stdout.startswith("small on h200: optimal, gap 0.0%, predicted ")
    assert done.stdout.endswith("written to again\n")


def seconds_of_children() -> float:
    """Seconds that processes which have ended kept a core busy: the same however busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_warm_run(compiled: Compiled, warm: Path) -> None:
    began = seconds_of_children()
    done = wsopt(warm, "compile", "small.json", "-o", "again", "--json")
    assert seconds_of_children() - began < 2
    assert contents(warm / "again") == contents(compiled.build)
    found = json.loads(done.stdout)
    changing = {"solve_s": 0, "directory": ""}
    assert found | changing == compiled.summary | changing


def _truncate(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _scramble(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(len(data) // 8 + 1):
        data[rng.randrange(len(data)) if data else 0 :][:1] = b"x"
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))


def _delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def _make_folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    (path / "inside").mkdir(parents=True)


@pytest.mark.parametrize("damage", [_truncate, _scramble, _delete, _make_folder])
def test_a_damaged_cache_heals(
    damage: Callable[[Path, random.Random], None], compiled: Compiled, warm: Path
) -> None:
    rng = random.Random(1)
    kept = [path for path in sorted((warm / "cache").rglob("*")) if path.is_file()]
    assert kept
    for path in kept:
        damage(path, rng)
    for target, seconds in (("first", 60.0), ("second", 2.0)):
        began = seconds_of_children()
        done = wsopt(warm, "compile", "small.json", "-o", target)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert seconds_of_children() - began < seconds
        assert contents(warm / target) == contents(compiled.build)


def test_what_else_lies_in_the_cache_folder_stays(compiled: Compiled, warm: Path) -> None:
    cache = warm / "cache"
    (cache / "letter.txt").write_text("not the cache's")
    for path in sorted(cache.rglob("*.db*")):
        path.write_bytes(b"no database")
    assert wsopt(warm, "compile", "small.json", "-o", "again").returncode == 0
    assert (cache / "letter.txt").read_text() == "not the cache's"
    assert contents(warm / "again") == contents(compiled.build)


def test_a_file_in_the_place_of_the_cache(warm: Path) -> None:
    shutil.rmtree(warm / "cache")
    (warm / "cache").write_text("a file")
    done = wsopt(warm, "compile", "small.json", "-o", "again")
    assert (done.returncode, done.stderr) == (0, "")
    assert (warm / "cache").read_text() == "a file"


DOC = (
    'end """ then \u2028 and */ and # and \\ and \\N{x} {{ kernel }} {% raw %}'
    '\n"""\nimport os\r\x0c\x85def x(): \x00'
)
FILE = 'we ird\n"na\'me" $x \\ *.json'


@pytest.mark.solver
@pytest.mark.compiler
def test_texts_stay_texts(tmp_path: Path) -> None:
    """A doc that tries to end a comment or a string, in a file whose name does, too."""
    write(tmp_path, product(doc=DOC, m=192, n=64, k=128), FILE)
    done = wsopt(tmp_path, "compile", FILE, "--json")
    assert done.returncode == 0, done.stderr
    build = tmp_path / json.loads(done.stdout)["directory"]
    assert build.name == FILE.removesuffix(".json") + ".wsopt"
    source = (build / "kernel.py").read_text(encoding="utf-8")
    compile(source, "kernel.py", "exec")
    comments = [line for line in source.splitlines() if line.startswith(("# end", "# import", "# def"))]
    assert len(comments) == 3
    assert not any(line.startswith(("import os", "def x")) for line in source.splitlines())
    assert json.loads((build / "graph.json").read_text(encoding="utf-8"))["doc"] == DOC
    again = wsopt(tmp_path, "run", str(build), "--seeds", "2")
    assert (again.returncode, again.stderr) == (0, "")


def test_a_file_name_that_is_no_text(warm: Path) -> None:
    name = os.fsdecode(b"b\xff.json")
    shutil.copy(warm / "small.json", warm / name)
    for encoding in ("utf-8:strict", "ascii:strict"):
        done = wsopt(warm, "compile", name, "--json", PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["directory"] == os.fsdecode(b"b\xff.wsopt")
    assert "b\\udcff.wsopt" in wsopt(warm, "compile", name, PYTHONIOENCODING="ascii:strict").stdout


@pytest.mark.solver
@pytest.mark.compiler
def test_an_input_that_lies_column_by_column(tmp_path: Path) -> None:
    graph = product()
    graph["inputs"][0]["strides"] = [1, 512]
    write(tmp_path, graph)
    done = wsopt(tmp_path, "compile", "graph.json", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert wsopt(tmp_path, "run", "out", "--seeds", "2").returncode == 0


def test_a_cut_is_not_asked_of_a_graph_with_dims(tmp_path: Path) -> None:
    data = product()
    data["dims"] = {"tokens": {"min": 1, "max": 8}}
    data["inputs"][0]["shape"][0] = "tokens"
    (tmp_path / "ranged.json").write_text(json.dumps(data))
    done = wsopt(tmp_path, "compile", "ranged.json", "--cut")
    assert done.returncode == 2
    assert "Invalid value for --cut: is for graphs of numbers" in done.stderr
    assert not (tmp_path / "ranged.wsopt").exists()
