"""`wsopt.compile` from Python: every form of a graph, the options, and what the result has to offer."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import wsopt
from wsopt import build as build_module
from wsopt import request
from wsopt.errors import InfeasibleError, InputError, RequirementError
from wsopt.folder import read_folder
from wsopt.machine import load_machine
from wsopt.partition.build import CutBuild

ROOT = Path(__file__).parents[2]


def small() -> wsopt.Graph:
    g = wsopt.Graph("small", doc="x w' <b>&amp; more")
    x, w = g.input("x", (128, 128), "bf16"), g.input("w", (128, 128), "bf16", constant=True)
    g.output(g.cast(g.matmul(x, w, transpose_b=True, name="p"), "bf16", name="y"))
    return g


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache that the tests of this file share."""
    patch = pytest.MonkeyPatch()
    patch.setenv("WSOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def built(cached: Any) -> wsopt.Build:
    return wsopt.compile(small())


def test_every_form_of_a_graph(built: wsopt.Build, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(small().to_json()), encoding="utf-8")
    for graph in (small(), small().build(), path, str(path), small().to_json(), wsopt.load_graph(path)):
        assert wsopt.compile(graph).files == built.files
    assert wsopt.compile(small(), machine=load_machine("h200")).files == built.files


@pytest.mark.parametrize(
    ("graph", "error", "told"),
    [
        ([], TypeError, "wsopt.compile takes a wsopt.Graph, .*; this is a list"),
        (None, TypeError, "this is None"),
        ("absent.json", InputError, "^absent.json: cannot be read: No such file or directory$"),
        ('{"format": 1}', InputError, "for JSON text give json.loads"),
        ({"format": "wsopt.graph/1"}, InputError, 'graph: lacks the key "name"'),
        (wsopt.Graph("empty"), InputError, "empty: /outputs: "),
    ],
)
def test_what_is_no_graph(graph: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        wsopt.compile(graph)


def test_a_module_of_torch_is_told_what_to_do() -> None:
    foreign = type("Linear", (), {"__module__": "torch.nn.modules.linear"})()
    with pytest.raises(
        TypeError, match=r"this is a torch.nn.modules.linear.Linear: write what it computes with"
    ):
        wsopt.compile(foreign)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"time_limit": 0}, InputError, "time_limit: 0; give seconds, more than 0, or None"),
        ({"time_limit": float("nan")}, InputError, "time_limit: nan; give seconds"),
        ({"time_limit": 5, "tuned": True}, InputError, "time_limit: does not go with tuned"),
        ({"scheduler": "tcp://a:1", "tuned": True}, InputError, "scheduler: does not go with tuned"),
        ({"card": "H200"}, InputError, "card: goes only with tuned: it says whose"),
        ({"machine": "h20O"}, InputError, "did you mean h20"),
        ({"machine": 3}, TypeError, "machine is a card's name, .* this is an int"),
        ({"under": 5}, TypeError, "under is conditions such as .*; this is an int"),
        ({"time_limit": "5"}, TypeError, "time_limit is seconds, or None; this is a str"),
        ({"scheduler": 5}, TypeError, "scheduler is the address of a Dask scheduler, .* this is an int"),
        ({"directory": 5}, TypeError, "directory is a folder's path, or None; this is an int"),
        ({"directory": "absent/below"}, InputError, "the folder absent does not exist"),
        ({"seeds": 3}, TypeError, "unexpected keyword argument 'seeds'"),
    ],
)
def test_options_are_checked_before_the_search(
    options: dict[str, Any], error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "build_at", lambda *arguments, **options: pytest.fail("searched"))
    with pytest.raises(error, match=told):
        wsopt.compile(small(), **options)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"graph": 5}, TypeError, "takes a wsopt.Graph, .*; this is an int"),
        ({"kernels": "4"}, TypeError, "kernels is a number from 1 to 64; this is a str"),
        ({"kernels": 0}, InputError, "kernels: 0; give a number from 1 to 64"),
        ({"directory": 5}, TypeError, "directory is a folder's path"),
    ],
)
def test_options_of_a_range_are_checked(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        wsopt.compile_range(**{"graph": small(), **options})


def test_tuned_without_measurements(cached: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(tmp_path))
    with pytest.raises(wsopt.WsoptError, match="nothing was measured of it for h200"):
        wsopt.compile(small(), tuned=True)


@pytest.mark.solver
@pytest.mark.compiler
def test_the_stages_are_shown(cached: Any) -> None:
    stages = set[str]()
    found = wsopt.compile(small(), use_cache=False, progress=lambda stage, done, total: stages.add(stage))
    assert stages == {"bound", "solve", "compile", "simulate"}
    assert found.seconds > 0


# --- the result -----------------------------------------------------------------------------------------


def test_a_build_is_saved_and_read_back(built: wsopt.Build, tmp_path: Path) -> None:
    path = built.save(tmp_path / "out")
    assert path == tmp_path / "out"
    found = read_folder(path)
    assert found.verified.schedule == built.schedule
    assert found.kernel == built.kernel
    assert (path / "report.txt").read_text(encoding="utf-8") == built.report
    written = wsopt.compile(small(), directory=tmp_path / "direct")
    assert {p.name: p.read_text() for p in (tmp_path / "direct").iterdir()} == written.files == built.files
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "years.txt").touch()
    with pytest.raises(InputError, match=r"holds years.txt, which is no part of a build"):
        built.save(tmp_path / "thesis")
    assert pickle.loads(pickle.dumps(built)) == built


def test_one_line_says_what_it_is(built: wsopt.Build) -> None:
    predicted = built.schedule.prediction.microseconds
    assert repr(built).startswith(
        f"<wsopt.Build small on h200: optimal, predicted {predicted:.1f} us, roofline "
    )
    assert "\n" not in repr(built)


class _Page(html.parser.HTMLParser):
    """The tags that are open, those that were seen, and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        assert {name for name, _ in attrs} <= {"style"}  # nothing is loaded or linked from elsewhere

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_figures_report_and_kernel(built: wsopt.Build) -> None:
    page = _Page()
    page.feed(built._repr_html_())
    page.close()
    assert page.open == []
    assert page.seen == {"div", "b", "table", "tr", "th", "td", "details", "summary", "pre"}
    assert built.report in page.text
    assert built.kernel in page.text  # with what the graph's doc says of <b>, escaped
    assert "<b>&amp; more" in page.text
    assert f"{built.schedule.shared_memory_bytes:,} bytes" in page.text


# --- the kernel -----------------------------------------------------------------------------------------


def test_without_torch_a_kernel_is_not_called(built: wsopt.Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build_module._launcher.cache_clear()
    build_module._loaded.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequirementError, match=r"^torch is not installed, .* pip install 'torch>=") as caught:
        built.run(x=1, w=2)
    assert caught.value.exit_status == 2
    assert "`wsopt run DIR` execute" in str(caught.value)


def kernel_module(*, gpu: bool) -> ModuleType:
    """What a kernel's module offers, on a machine with torch, with a GPU or without one."""
    module = ModuleType("kernel")
    module.torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: gpu))  # type: ignore[attr-defined]
    module.run = lambda *, out=None, **tensors: (tensors, out)  # type: ignore[attr-defined]
    return module


def test_run_is_the_kernels_launcher(built: wsopt.Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[dict[str, str]] = []

    def load(files: Iterable[tuple[str, str]], _load: object) -> ModuleType:
        loaded.append(dict(files))
        return kernel_module(gpu=True)

    build_module._launcher.cache_clear()
    monkeypatch.setattr(build_module, "_loaded", load)
    assert built.run(x=1, w=2, self=3) == ({"x": 1, "w": 2, "self": 3}, None)
    assert built.run(x=1, out=4) == ({"x": 1}, 4)
    assert loaded == [{"kernel.py": built.kernel}]
    build_module._launcher.cache_clear()


def test_without_a_gpu_a_kernel_is_not_called(built: wsopt.Build, monkeypatch: pytest.MonkeyPatch) -> None:
    build_module._launcher.cache_clear()
    monkeypatch.setattr(build_module, "_loaded", lambda files, load: kernel_module(gpu=False))
    with pytest.raises(RequirementError, match="torch sees no GPU here"):
        built.run(x=1, w=2)


def test_without_a_gpu_several_kernels_are_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    several = ModuleType("several")
    several.KERNELS = (kernel_module(gpu=False),)  # type: ignore[attr-defined]
    build_module._launcher.cache_clear()
    monkeypatch.setattr(build_module, "_loaded", lambda files, load: several)
    with pytest.raises(RequirementError, match="torch sees no GPU here"):
        CutBuild({"kernel.py": ""}, {}, 0.0).run(x=1, w=2)


# --- the package ----------------------------------------------------------------------------------------


def python(code: str) -> str:
    """What a process of its own prints."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_the_import_is_cheap_and_the_names_are_there() -> None:
    heavy = "{'numpy', 'pydantic', 'ortools', 'triton', 'torch', 'wsopt.api'} & set(sys.modules)"
    assert python(f"import sys, wsopt; dir(wsopt); print({heavy})") == "set()\n"
    assert set(wsopt.__all__) <= set(dir(wsopt))
    assert all(getattr(wsopt, name) for name in wsopt.__all__)
    with pytest.raises(AttributeError, match="module 'wsopt' has no attribute 'Grahp'"):
        _ = wsopt.Grahp


def test_help_lists_what_there_is() -> None:
    told = python("import pydoc, wsopt; print(pydoc.plain(pydoc.render_doc(wsopt)))")
    assert "compile(graph:" in told
    assert "time_limit: seconds for all of it" in told
    for name in (
        "class Build",
        "class GraphBuilder",
        "class WsoptError",
        "load_graph(path:",
        "transpose_b: true or false",
    ):
        assert name in told
    for name in wsopt.__all__:
        assert name in told


def test_the_package_is_typed() -> None:
    assert (ROOT / "wsopt" / "py.typed").is_file()


def test_several_kernels_are_made_where_no_structure_of_one_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise InfeasibleError("no structure fits")

    several = SimpleNamespace(files={})
    monkeypatch.setattr(request, "build_at", refuses)
    monkeypatch.setattr(request, "build_cut", lambda *_, **__: several)
    assert wsopt.compile(small()) is several
    with pytest.raises(InfeasibleError, match="no structure fits"):
        wsopt.compile(small(), under="consumers=2")
