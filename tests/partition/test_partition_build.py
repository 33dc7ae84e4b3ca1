"""A graph of several kernels from the command line to a folder; the folder read back, damaged, called, inspected."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_cluster import running
from own_process import cache_in, status_of
from partition_graphs import gated_product

import wsopt
from wsopt.driver import known_builds
from wsopt.errors import CheckError, InputError
from wsopt.folder import read_folder
from wsopt.graph.reference import evaluate
from wsopt.graph.serialize import graph_to_json
from wsopt.machine import Machine
from wsopt.partition.build import CutBuild, cut_build, read_cut
from wsopt.partition.check import faults
from wsopt.partition.document import Place
from wsopt.partition.make import build_cut
from wsopt.pool.cluster import workers_at


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cuts")
    (folder / "graph.json").write_text(json.dumps(graph_to_json(gated_product())), encoding="utf-8")
    with cache_in(folder / "cache"):
        assert status_of("compile", str(folder / "graph.json"), "-o", str(folder / "built")) == 0
        yield folder / "built"


def test_a_folder_holds_a_build_for_each_kernel(built: Path) -> None:
    found = read_cut(built)
    assert [step.outputs for step in found.record.steps] == [("h",), ("y",)]
    assert [place.tensor for place in found.record.places] == ["h"]
    assert found.record.workspace_bytes == 64 * 128 * 2
    assert found.record.certificate.proved
    for folder, kernel in zip(found.record.folders, found.kernels, strict=True):
        assert read_folder(built / folder).kernel == kernel.kernel
    assert {path.name for path in built.iterdir()} == {
        "graph.json", "cut.json", "kernel.py", "report.txt", "kernels",
    }  # fmt: skip


def _texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_cache_has_the_same_bytes(built: Path) -> None:
    again = wsopt.compile(gated_product())
    assert isinstance(again, CutBuild)
    assert again.files == _texts(built)
    assert "2 launches" in repr(again)


def test_all_kernels_run_in_the_simulation(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("run", str(built), "--seeds", "2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["kernels"] == 2
    assert result["lines"]["run"] == result["lines"]["of"]


def test_inspect_shows_launches_times_and_memory(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("inspect", str(built)) == 0
    shown = capsys.readouterr().out
    assert shown == (built / "report.txt").read_text(encoding="utf-8")
    assert "gated_product on h200: 2 launches of 2 kernels" in shown
    assert "No cover by these pieces is predicted to be faster" in shown
    assert "h            0  16,384  0 to 1" in shown


def _damaged(built: Path, where: Path, change: Any) -> Path:
    """A copy of the build whose cut.json was changed."""
    shutil.copytree(built, where)
    record = json.loads((where / "cut.json").read_text(encoding="utf-8"))
    change(record)
    (where / "cut.json").write_text(json.dumps(record), encoding="utf-8")
    return where


def _swap_steps(record: dict[str, Any]) -> None:
    record["steps"].reverse()


def _other_operand(record: dict[str, Any]) -> None:
    step = record["steps"][1]
    names = step["tensors"]
    names["s"], names["r"] = names["r"], names["s"]


def _other_output(record: dict[str, Any]) -> None:
    record["steps"][1]["outputs"] = ["h"]


def _less_time(record: dict[str, Any]) -> None:
    record["steps"][0]["predicted_us"] /= 2


def _less_in_all(record: dict[str, Any]) -> None:
    record["predicted_us"] /= 2


def _no_place(record: dict[str, Any]) -> None:
    record["places"] = []


def _outside(record: dict[str, Any]) -> None:
    record["places"][0]["offset"] = 256


def _smaller(record: dict[str, Any]) -> None:
    record["places"][0]["nbytes"] //= 2


def _shorter(record: dict[str, Any]) -> None:
    record["places"][0]["last"] = 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_swap_steps, "reads h before it is made"),
        (_other_operand, "says other inputs than its kernel has"),
        (_other_output, "says other outputs than its kernel has"),
        (_less_time, "its kernel takes"),
        (_less_in_all, "the steps take"),
        (_no_place, "the tensors that have a place are not those between kernels"),
        (_outside, "tensor h has a place outside of the workspace"),
        (_smaller, "tensor h has a place of another size"),
        (_shorter, "tensor h is said to be kept at other steps"),
    ],
)
def test_a_record_that_is_not_right_is_rejected(built: Path, tmp_path: Path, change: Any, told: str) -> None:
    with pytest.raises(CheckError, match=told):
        read_cut(_damaged(built, tmp_path / "damaged", change))


def test_another_graph_under_the_same_kernels_is_rejected(built: Path, tmp_path: Path) -> None:
    where = _damaged(built, tmp_path / "damaged", lambda record: None)
    graph = json.loads((where / "graph.json").read_text(encoding="utf-8"))
    next(node for node in graph["nodes"] if node["name"] == "act")["op"] = "relu"
    (where / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    with pytest.raises(CheckError, match="node act is not what the graph computes as act"):
        read_cut(where)


def test_other_operands_of_a_node_are_rejected(built: Path, tmp_path: Path) -> None:
    where = _damaged(built, tmp_path / "damaged", lambda record: None)
    graph = json.loads((where / "graph.json").read_text(encoding="utf-8"))
    next(node for node in graph["nodes"] if node["name"] == "gated")["inputs"] = ["s", "act"]
    (where / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
    with pytest.raises(CheckError, match="node gated has other operands than gated"):
        read_cut(where)


def test_tensors_in_one_place_are_rejected(built: Path) -> None:
    found = read_cut(built)
    first, second = found.record.steps
    between = replace(second, inputs=("h",), outputs=("act",), tensors={"h": "h", "act": "act"})
    last = replace(second, inputs=("act",), tensors={"act": "act", "y": "y"})
    kept = (Place("h", 0, 64 * 128 * 2, 0, 1), Place("act", 64 * 128 * 2, 64 * 128 * 4, 1, 2))
    record = replace(found.record, steps=(first, between, last), workspace_bytes=1 << 20, places=kept)
    kernels = [found.kernels[0], found.kernels[1], found.kernels[1]]
    assert not any("one place" in told for told in faults(found.graph, record, kernels))
    over = replace(record, places=(kept[0], replace(kept[1], offset=64 * 128 * 2 - 256)))
    assert "tensors act and h lie in one place at the same time" in [*faults(found.graph, over, kernels)]
    none = replace(record, steps=(first, between), places=(kept[0], replace(kept[1], last=1)))
    assert "no step makes output y" in [*faults(found.graph, none, kernels[:2])]


def test_a_record_that_lacks_something_is_named(built: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"cut\.json: /steps: is missing, as in what an earlier release wrote"
    ):
        read_cut(_damaged(built, tmp_path / "a", lambda record: record.pop("steps")))
    with pytest.raises(InputError, match=r"cut\.json: /format: is not 'wsopt.cut/1'"):
        read_cut(_damaged(built, tmp_path / "b", lambda record: record.update(format="x")))


def test_commands_for_one_kernel_say_which_folders_they_take(
    built: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (("export", str(built)), ("inspect", str(built), "--runner-up")):
        assert status_of(*arguments) == 2
        assert "give one of them, a folder in it such as kernels/0" in capsys.readouterr().err
    assert status_of("compile", str(built / "graph.json"), "--cut", "--under", "ring=3") == 2
    assert "does not go with --cut: it is about one kernel" in capsys.readouterr().err
    with pytest.raises(InputError, match="under: does not go with cut"):
        wsopt.compile(gated_product(), cut=True, under="ring=3")


def test_a_build_is_replaced_by_another_kind_of_build(built: Path, tmp_path: Path) -> None:
    found = cut_build(
        {str(p.relative_to(built)): p.read_text() for p in built.rglob("*") if p.is_file()}, 0.0
    )
    path = found.save(tmp_path / "x.wsopt")
    kernel = wsopt.compile(read_cut(built).kernels[0].graph)
    kernel.save(path)
    assert read_folder(path).graph == read_cut(built).kernels[0].graph
    found.save(path)
    assert read_cut(path).record == found.record


# --- kernel.py, with kernels that compute by the reference ------------------------------------------------


class _Stand:
    """A kernel's module that computes its graph by the reference, on the CPU."""

    def __init__(self, graph: wsopt.graph.types.Graph) -> None:
        self.graph, self._LAUNCHER = graph, self

    def run(self, tensors: dict[str, Any], out: tuple[Any, ...]) -> None:
        import torch

        assert set(tensors) == {one.name for one in self.graph.inputs}
        results = evaluate(self.graph, {name: _array(one) for name, one in tensors.items()})
        for name, one in zip(self.graph.outputs, out, strict=True):
            one.copy_(torch.from_numpy(results[name].astype(np.float32)))

    def prepare(self, outputs: dict[str, Any], /, **tensors: Any) -> tuple[Any, dict[str, Any]]:
        given = tuple(outputs[name] for name in self.graph.outputs)
        return (lambda: self.run(tensors, given)), outputs


def _array(tensor: Any) -> Any:
    import ml_dtypes

    return tensor.float().numpy().astype(ml_dtypes.bfloat16)


@pytest.mark.torch
def test_run_and_prepare_hand_tensors_from_kernel_to_kernel(built: Path) -> None:
    torch = pytest.importorskip("torch")
    found = read_cut(built)
    module = cut_build(
        {str(p.relative_to(built)): p.read_text() for p in built.rglob("*") if p.is_file()}, 0.0
    ).module
    module.KERNELS = tuple(_Stand(kernel.graph) for kernel in found.kernels)
    draw = torch.Generator().manual_seed(1)
    tensors = {
        one.name: torch.randn(one.type.shape, generator=draw).bfloat16() / 8 for one in found.graph.inputs
    }
    expected = evaluate(found.graph, {name: _array(one) for name, one in tensors.items()})["y"]

    def right(result: Any) -> None:
        assert np.allclose(result.float().numpy(), expected.astype(np.float32), rtol=1e-2, atol=1e-2)

    right(module.run(**tensors))
    mine = torch.full((64, 128), float("nan"), dtype=torch.bfloat16)
    assert module.run(**tensors, out=mine) is mine
    right(mine)
    launch, outputs = module.prepare(**tensors)
    launch()
    right(outputs["y"])
    with pytest.raises(ValueError, match=r"tensor x is \[32, 128\], expected \[64, 128\]"):
        module.run(**{**tensors, "x": tensors["x"][:32]})
    with pytest.raises(ValueError, match=r"tensor x is torch\.float32, expected torch\.bfloat16"):
        module.run(**{**tensors, "x": tensors["x"].float()})
    with pytest.raises(ValueError, match="tensor h_w is missing"):
        module.prepare(**{name: one for name, one in tensors.items() if name != "h_w"})


def test_a_cluster_of_which_a_worker_is_killed_gives_the_same_bytes(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, h200: Machine
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(tmp_path / "here"))
    variables = {"WSOPT_CACHE_DIR": str(tmp_path / "there"), "WSOPT_CORES": "1"}  # one core for each worker
    with running(tmp_path, 2, **variables) as cluster:

        def kill_one(stage: str, _done: int, total: int) -> None:
            if (stage, total) == ("kernels", 2) and timer.ident is None:
                timer.start()

        timer = threading.Timer(1.0, cluster.workers[0].kill)
        with workers_at(cluster.address) as workers:
            found = build_cut(gated_product(), h200, workers=workers, progress=kill_one)
        assert [worker.poll() is None for worker in cluster.workers] == [False, True]
    assert found.files == _texts(built)
    # What workers have made is here, and nowhere else.
    assert all(known_builds(one.graph, h200) for one in read_cut(built).kernels)
    assert not (tmp_path / "there" / "builds").exists()
