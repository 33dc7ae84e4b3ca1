"""The benchmark of one folder from end to end, with the device's clock replaced. Skipped without torch."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_files import FIXTURES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.bench import bench_folder  # noqa: E402
from wsopt.bench.bench_options import BenchOptions  # noqa: E402
from wsopt.bench.eager_source import Missing  # noqa: E402
from wsopt.bench.rows import row_from_json, row_to_json  # noqa: E402
from wsopt.errors import InputError  # noqa: E402
from wsopt.runtime import launch  # noqa: E402

GRAPH = """{"format": "wsopt.graph/1", "name": "tiny",
 "inputs": [{"name": "x", "shape": [32, 64], "dtype": "bf16"},
            {"name": "w", "shape": [48, 64], "dtype": "bf16", "constant": true}],
 "nodes": [{"name": "h", "op": "matmul", "inputs": ["x", "w"], "attrs": {"transpose_b": true}},
           {"name": "y", "op": "cast", "inputs": ["h"], "attrs": {"dtype": "bf16"}}],
 "outputs": ["y"]}"""
OPTIONS = BenchOptions(
    baselines=("cublas", "eager", "scaled_mm"), rounds=3, sample_ms=0.2, warm_up_ms=1.0, graph_below_us=1e6
)


class HostClock:
    """Times on the host what would be timed on the device."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s

    def sample(self, launches: Sequence[Any], count: int) -> float:
        start = time.perf_counter()
        for number in range(count):
            launches[number % len(launches)]()
        return 1e3 * (time.perf_counter() - start)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("wsopt.runtime.hang.wait", lambda limit_s, what: None)
    monkeypatch.setattr(bench_folder, "CudaClock", HostClock)
    monkeypatch.setattr(bench_folder, "captured", lambda contestant, count: (contestant, 1))
    device = SimpleNamespace(L2_cache_size=50_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: device)
    shutil.copy(FIXTURES / "torch_kernel.py", tmp_path / "kernel.py")
    (tmp_path / "graph.json").write_text(GRAPH)
    (tmp_path / "schedule.json").write_text(
        '{"prediction": {"predicted_us": 3.5, "bound_us": 2, "roofline_us": 1.5}}'
    )
    return tmp_path


def test_a_good_kernel(folder: Path) -> None:
    row = bench_folder.bench_folder(folder, OPTIONS, device="cpu")
    assert (row.name, row.folder, row.status, row.message) == ("tiny", folder.name, "ok", "")
    assert (row.flops, row.bytes) == (2 * 32 * 48 * 64, 2 * (32 * 64 + 48 * 64 + 32 * 48))
    assert (row.predicted_us, row.bound_us, row.roofline_us) == (3.5, 2.0, 1.5)
    assert dict(row.errors)["y"] < 1e-2
    statuses = {item.name: item.status for item in row.baselines}
    assert statuses == {"cublas": "ok", "eager": "ok", "scaled_mm": "inapplicable"}
    assert row.baselines[0].ratio is not None
    assert row.baselines[0].graph_ratio is not None
    assert row_from_json(row_to_json(row)) == row


def test_no_settled_rounds(folder: Path) -> None:
    row = bench_folder.bench_folder(folder, replace(OPTIONS, settled_rounds=0), device="cpu")
    assert (row.status, row.kernel_settled) == ("ok", None)
    assert row.best_us is not None
    assert [item.settled_ratio for item in row.baselines] == [None, None, None]


def test_what_a_build_says_of_its_work(folder: Path) -> None:
    """A copy beside a kernel that its bytes bound, and rates of what masks leave."""
    schedule = {
        "schedule": {"prediction": {"roofline_us": 1e-6}},
        "machine": {"dram_sustained_bandwidth": 1e12},
        "work": {"flops": 4000, "bytes": 2000},
    }
    (folder / "schedule.json").write_text(json.dumps(schedule))
    options = replace(OPTIONS, baselines=("copy", "sdpa_cudnn"))
    row = bench_folder.bench_folder(folder, options, device="cpu")
    copy, sdpa = row.baselines
    assert (row.flops, row.bytes) == (4000, 2000)
    assert row.best_us is not None
    assert row.tflops == pytest.approx(4000 / row.best_us / 1e6)
    assert (copy.status, copy.error) == ("ok", None)
    assert copy.ratio is not None
    assert (sdpa.status, sdpa.ratio) == ("inapplicable", None)
    assert "compile it again" in sdpa.reason


def test_a_package_that_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise Missing("flash-attn-4 is not installed here")

    monkeypatch.setattr(bench_folder, "build_baseline", missing)
    (row,) = bench_folder.bench_folder(folder, replace(OPTIONS, baselines=("eager",)), device="cpu").baselines
    assert (row.status, row.reason) == ("missing", "flash-attn-4 is not installed here")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('outputs["y"].copy_(1.1 * x.float() @ w.float().T)', "y is off by 0.1"),
        ('outputs["y"][:31].copy_((x.float() @ w.float().T)[:31])', "y is off by inf"),
        ("len(launches) > 3 or good(); launches.append(1)", "y is off by inf after timing"),
    ],
)
def test_a_wrong_kernel(folder: Path, body: str, message: str) -> None:
    text = (folder / "kernel.py").read_text()
    text = text.replace("def launch():", "def good():")
    wrong = f"launches = []\n\n    def launch():\n        {body}\n\n    return launch, outputs\n\n\ndef run"
    (folder / "kernel.py").write_text(text.replace("return launch, outputs\n\n\ndef run", wrong))
    row = bench_folder.bench_folder(folder, OPTIONS, device="cpu")
    assert row.status == "wrong"
    assert message in row.message


def test_another_build_beside(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "other")
    options = replace(OPTIONS, baselines=("eager",), against=str(tmp_path / "other"))
    (eager, other) = bench_folder.bench_folder(folder, options, device="cpu").baselines
    assert (eager.name, other.name, other.status) == ("eager", "against", "ok")
    assert other.error is not None
    assert other.error < 1e-2
    for ratio, spread in ((other.ratio, other.spread), (other.graph_ratio, other.graph_spread)):
        assert ratio is not None
        assert spread is not None
        assert ratio > 0.0
        assert spread >= 0.0
    text = (tmp_path / "other" / "kernel.py").read_text().replace("x.float()", "1.1 * x.float()")
    (tmp_path / "other" / "kernel.py").write_text(text)
    (_, other) = bench_folder.bench_folder(folder, options, device="cpu").baselines
    assert (other.status, other.ratio) == ("wrong", None)
    assert other.reason.startswith("off by ")


def test_running_a_folder(folder: Path) -> None:
    result = launch.run_folder(folder, seed=5, device="cpu", exact=True)
    assert result.accepted()
    assert str(result).startswith("tiny, seed 5: y off by ")
    (folder / "graph.json").unlink()
    with pytest.raises(InputError, match=r"not a build folder: no graph\.json"):
        launch.run_folder(folder)
