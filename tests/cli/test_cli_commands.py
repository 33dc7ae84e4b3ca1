"""The commands beside compile: run, inspect, the lists, help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Compiled, product, residual, write, wsopt

import wsopt as package
from wsopt.graph.ops import OPS

CARDS = {
    "b200", "b300", "gb200", "h100_pcie", "h100_sxm", "h20", "h200", "rtx_5090", "rtx_pro_6000_blackwell",
}  # fmt: skip


def test_run(compiled: Compiled) -> None:
    done = wsopt(compiled.folder, "run", "small.wsopt", "--seeds", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("small.wsopt: 3 seeds on cpu, relative error ")
    assert ", of the worst row " in done.stdout
    found = json.loads(wsopt(compiled.folder, "run", "small.wsopt", "--seeds", "2", "--json").stdout)
    assert (found["device"], found["seeds"]) == ("cpu", 2)
    assert 0 <= found["max_relative_error"] < 1e-2
    assert found["lines"]["run"] == found["lines"]["of"] > 20
    assert done.stdout.rstrip().endswith(", {run} of {of} lines ran".format(**found["lines"]))
    assert 0 <= found["max_row_error"] < 1e-2
    assert 0 <= found["max_bound_share"] <= 1


def test_inspect(compiled: Compiled) -> None:
    done = wsopt(compiled.folder, "inspect", "small.wsopt")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (compiled.build / "report.txt").read_text(encoding="utf-8")
    lines = compiled.summary["verified"]["interpreter"]["lines"]["of"]
    assert f"all {lines} lines of the kernel's device functions ran, under 20 interleavings" in " ".join(
        done.stdout.split()
    )


def test_inspect_json(compiled: Compiled) -> None:
    done = wsopt(compiled.folder, "inspect", "small.wsopt", "--json")
    summary = compiled.summary
    assert json.loads(done.stdout) == {k: summary[k] for k in summary if k not in ("solve_s", "directory")}


def test_inspect_runner_up(compiled: Compiled) -> None:
    done = wsopt(compiled.folder, "inspect", "small.wsopt", "--runner-up", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["winner"]["predicted_us"] == compiled.summary["predicted_us"]
    assert found["runner_up"]["predicted_us"] >= found["winner"]["predicted_us"]
    assert found["differences"]
    told = wsopt(compiled.folder, "inspect", "small.wsopt", "--runner-up").stdout
    report = (compiled.build / "report.txt").read_text(encoding="utf-8")
    for line in found["winner"]["does"]:
        assert line in " ".join(told.split())
        assert line in " ".join(report.split())
    both = wsopt(compiled.folder, "inspect", "small.wsopt", "--runner-up", "--what-if")
    assert both.returncode == 2
    assert "give one of --what-if, --runner-up and --against" in both.stderr


def test_inspect_what_if(tmp_path: Path) -> None:
    write(tmp_path, product(), "small.json")
    under = ("--under", "columns=128,consumers=2")  # every what-if is a search, among these structures alone
    compiled = wsopt(tmp_path, "compile", "small.json", *under, "--json")
    done = wsopt(tmp_path, "inspect", "small.wsopt", "--what-if", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["predicted_us"] == json.loads(compiled.stdout)["predicted_us"]
    assert len(found["what_if"]) == 7
    assert all(row["predicted_us"] <= found["predicted_us"] + 1e-9 for row in found["what_if"])


def test_machines(tmp_path: Path) -> None:
    done = wsopt(tmp_path, "machines")
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == CARDS
    assert {row["name"] for row in json.loads(wsopt(tmp_path, "machines", "--json").stdout)} == CARDS


def test_ops(tmp_path: Path) -> None:
    done = wsopt(tmp_path, "ops")
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(OPS)
    found = json.loads(wsopt(tmp_path, "ops", "--json").stdout)
    assert [row["op"] for row in found] == list(OPS)
    assert all(row["doc"] and row["operands"] for row in found if row["op"] != "iota")
    marked = {
        line.split()[0] for line in done.stdout.splitlines() if line.endswith("(No kernel takes it yet.)")
    }
    assert marked == {row["op"] for row in found if not row["lowered"]} == {"scatter_add"}


def test_schema(tmp_path: Path) -> None:
    assert "wsopt.graph/1" in json.dumps(json.loads(wsopt(tmp_path, "schema").stdout))


def test_version_and_help(tmp_path: Path) -> None:
    assert wsopt(tmp_path, "--version").stdout == f"wsopt {package.__version__}\n"
    text = wsopt(tmp_path, "--help").stdout
    for command in ("compile", "inspect", "run", "bench", "tune", "machines", "ops", "schema"):
        assert f"  {command} " in text
        done, short = (wsopt(tmp_path, command, option) for option in ("--help", "-h"))
        assert done.returncode == 0
        assert "Usage: wsopt" in done.stdout
        assert short.stdout == done.stdout
    assert "..." not in text.partition("COMMAND [ARGS]...")[2], "a command's first sentence is cut off"
    assert "Exit status: 0 done" in text
    assert wsopt(tmp_path, "-h").stdout == text


WORDS = ("for", "gl", "ring", "tile", "x", "x_desc", "outputs", "lambda", "kernel")
NAMES = dict(zip("xwbrphsyz", WORDS, strict=True))


@pytest.mark.solver
@pytest.mark.compiler
def test_names_that_mean_something_in_a_kernel(tmp_path: Path) -> None:
    write(tmp_path, residual(NAMES))
    done = wsopt(tmp_path, "compile", "graph.json", "-o", "out")
    assert done.returncode == 0, done.stderr
    done = wsopt(tmp_path, "run", "out", "--seeds", "4")
    assert done.returncode == 0, done.stderr
