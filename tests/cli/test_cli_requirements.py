"""Machines that lack something: one sentence before any work, status 2, and a remedy that works there."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest
from cli_runs import ROOT, Compiled, assert_says, product, write, wsopt

from wsopt import requirements
from wsopt.errors import RequirementError

HIDDEN = """
import importlib.metadata, platform, sys

for name in {names!r}:
    sys.modules[name] = None
version = importlib.metadata.version
def visible(name):
    if name in {names!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = visible
platform.system = lambda: {system!r}
"""


def without(*names: str, system: str = "Linux") -> str:
    """A program after which none of these modules is found, and the system is taken for this one."""
    return HIDDEN.format(names=names, system=system)


REMEDIES = {
    "Linux": "pip install 'triton>=",
    "Darwin": "it has wheels for Linux alone, and this is macOS",
    "Windows": "it has wheels for Linux alone, and this is Windows",
}


@pytest.mark.parametrize(
    ("system", "options"),
    [
        *(
            (system, options)
            for system in ("Linux", "Windows")
            for options in ((), ("--no-cache",), ("--tuned",))
        ),
        ("Darwin", ()),  # which lacks no module that the others have: only the sentence is another
    ],
)
def test_compile_without_triton(system: str, options: tuple[str, ...], warm: Path) -> None:
    hidden = without("triton", "fcntl" if system == "Windows" else "triton", system=system)
    done = wsopt(warm, "compile", "small.json", "-o", "out", *options, first=hidden)
    assert_says(done, 2, "Triton is not installed", REMEDIES[system])
    assert done.stderr.count("\n") == 1
    assert not (warm / "out").exists()


def test_a_graph_that_is_refused_is_told_so_without_triton(tmp_path: Path) -> None:
    graph = product()
    graph["nodes"][1]["attrs"]["dtype"] = "i32"
    write(tmp_path, graph)
    assert_says(wsopt(tmp_path, "compile", "graph.json", first=without("triton")), 3, "node y")


@pytest.mark.parametrize("names", [("triton", "torch"), ("triton", "torch", "fcntl", "resource")])
def test_what_works_without_triton(names: tuple[str, ...], compiled: Compiled, warm: Path) -> None:
    """All that the sentence says works."""
    hidden = without(*names, system="Darwin")
    done = wsopt(warm, "inspect", "small.wsopt", first=hidden)
    assert done.stdout == (compiled.build / "report.txt").read_text(encoding="utf-8"), done.stderr
    for command in (("run", "small.wsopt", "--seeds", "2"), ("ops",), ("machines",), ("schema",)):
        done = wsopt(warm, *command, first=hidden)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (("run", "small.wsopt", "--device", "cuda"), "--device cpu executes the kernel"),
        (("bench", "small.wsopt"), "pip install 'torch>="),
        (("tune", "small.json"), "--candidates DIR` writes what can be measured elsewhere"),
        (("calibrate",), "pip install 'torch>="),
        (("validate-model", "small.json"), "--candidates DIR writes"),
    ],
)
def test_commands_without_torch(command: tuple[str, ...], instead: str, warm: Path) -> None:
    done = wsopt(warm, *command, first=without("torch"))
    assert_says(done, 2, "torch is not installed", instead)
    assert done.stderr.count("\n") == 1


def test_reading_a_file_without_torch_asks_for_no_gpu(tmp_path: Path) -> None:
    done = wsopt(tmp_path, "import", "model.pt2", first=without("torch"))
    assert_says(done, 2, "torch is not installed", "an ONNX file can be read without torch")
    assert "GPU" not in done.stderr


def test_a_plot_without_matplotlib_is_told_before_measuring(warm: Path) -> None:
    done = wsopt(warm, "validate-model", "small.json", "--plot", "a.svg", first=without("matplotlib"))
    assert_says(done, 2, "matplotlib is not installed, and --plot needs it")


def test_the_ranges_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    stated = [*project["dependencies"], *(one for extra in extras for one in extra)]
    plain = {one.partition(";")[0].strip() for one in stated}
    assert {requirements.TORCH, requirements.TRITON, requirements.MATPLOTLIB} <= plain


def test_one_that_is_installed_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements.require_triton("a test")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequirementError, match="Triton is not installed, and a test needs it"):
        requirements.require_triton("a test")
