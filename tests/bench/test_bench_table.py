"""Tables and the page of benchmarks against goldens; `WSOPT_RENEW_GOLDENS=1` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_files import FIXTURES

from wsopt.bench import docs
from wsopt.bench.rows import BaselineRow, Document, Row, Timing, to_text
from wsopt.bench.table import markdown_table, text_table

ROWS = (
    Row(
        name="gemm_bf16",
        folder="gemm_bf16",
        status="ok",
        errors=(("y", 0.0021),),
        flops=2 * 8192**3,
        bytes=402653184,
        kernel=Timing(1600.0, 1590.0, 1612.0, 21),
        tflops=687.2,
        gbs=251.6,
        bound_us=1200.0,
        roofline=0.75,
        baselines=(
            BaselineRow("cublas", "ok", time=Timing(1616.0, 1600.0, 1630.0, 21), ratio=1.01),
            BaselineRow("eager", "ok", error=0.0, time=Timing(1617.0, 1600.0, 1630.0, 21), ratio=1.0106),
            BaselineRow("inductor", "error", "RuntimeError: no compiler"),
            BaselineRow("scaled_mm", "inapplicable", "scaled_mm has one output"),
            BaselineRow("flash_attn_4", "missing", "flash-attn-4 is not installed here"),
        ),
    ),
    Row(
        name="gemm_ragged",
        folder="gemm_ragged",
        status="ok",
        errors=(("y", 0.0019),),
        kernel=Timing(41.0, 40.0, 42.0, 21),
        kernel_graph=Timing(15.0, 14.9, 15.2, 21),
        tflops=284.5,
        gbs=900.0,
        baselines=(
            BaselineRow(
                "cublas", "ok", ratio=0.91, graph_time=Timing(15.3, 15.2, 15.4, 21), graph_ratio=1.02
            ),
        ),
    ),
    Row("gemm_tn", "gemm_tn", "hang", "gemm_tn did not end within 20 s"),
    Row("gemm_tt", "gemm_tt", "wrong", "y is off by inf", errors=(("y", float("inf")),)),
)
DOCUMENT = Document(
    "2026-11-20T12:00:00Z",
    (("device", "NVIDIA H200"), ("driver", "580.1"), ("multiprocessors", 132)),
    (("torch", "2.11.0"), ("triton", "3.6.0"), ("wsopt", "0.1.0")),
    ROWS,
)


def assert_golden(name: str, text: str) -> None:
    path = FIXTURES / name
    if os.environ.get("WSOPT_RENEW_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_text_table() -> None:
    assert_golden("table.txt", text_table(DOCUMENT))


def test_markdown_table() -> None:
    assert_golden("table.md", markdown_table(DOCUMENT))


def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    older = Document("2026-01-01T00:00:00Z", DOCUMENT.machine, DOCUMENT.versions, ROWS[:1])
    Path("old.json").write_text(to_text(older))
    Path("new.json").write_text(to_text(DOCUMENT))
    assert docs.main(["old.json", "new.json", "-o", "page.md"]) == 0
    assert_golden("page.md", Path("page.md").read_text())


def test_page_of_what_is_no_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text("{")
    assert docs.main([str(tmp_path / "bad.json"), "-o", str(tmp_path / "page.md")]) == 2
    assert "not a benchmark" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_nothing_breaks_a_table() -> None:
    row = Row("a", "a", "error", "pipe | and\nline <b>")
    text = markdown_table(Document("", (), (), (row,)))
    assert "pipe \\| and line &lt;b>" in text
