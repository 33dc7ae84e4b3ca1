"""The pages of measurements are made from the committed files, and from nothing else."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from wsopt.bench import docs as bench_docs
from wsopt.bench.rows import load_document
from wsopt.validate import docs as validate_docs

DOCS = Path(__file__).parents[2] / "docs"


def test_benchmarks(tmp_path: Path) -> None:
    files = sorted((DOCS / "benchmarks").glob("*.json"))
    assert bench_docs.main([*map(str, files), "-o", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == (DOCS / "benchmarks.md").read_text(
        encoding="utf-8"
    )


def test_rows(tmp_path: Path) -> None:
    files, page = sorted((DOCS / "rows").glob("*.json")), tmp_path / "page.md"
    assert bench_docs.main([*map(str, files), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "rows.md").read_text(encoding="utf-8")
    rows = {row.name: row.status for file in files for row in load_document(file).rows}
    assert rows == {path.stem: "ok" for path in (DOCS / "rows" / "graphs").glob("*.json")}


def test_quantized(tmp_path: Path) -> None:
    file, page = DOCS / "quantized" / "h200.json", tmp_path / "page.md"
    files = map(str, sorted((DOCS / "quantized").glob("*.json")))
    assert bench_docs.main([*files, "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "quantized.md").read_text(encoding="utf-8")
    rows = load_document(file).rows
    assert {row.name: row.status for row in rows} == {
        path.stem: "ok" for path in (DOCS / "quantized" / "graphs").glob("*.json")
    }
    times = {row.name: row.kernel_graph or row.kernel for row in rows}
    us = {name: f"{time.median_us:.1f}" for name, time in times.items() if time is not None}
    readme, told = (
        " ".join(path.read_text(encoding="utf-8").split())
        for path in (DOCS.parent / "README.md", DOCS / "front-end.md")
    )
    assert us["i4_1"] == us["i4_16"]
    assert (
        f"take {us['i4_1']} us under 1 row and under 16 in a CUDA graph, {us['i4_64']} us under 64" in readme
    )
    assert f"of bf16 they take {us['bf16_1']}, {us['bf16_16']} and {us['bf16_64']} us" in readme
    assert (
        f"takes {us['i4_1']} us with 1 row and with 16, where bf16 takes {us['bf16_1']} and {us['bf16_16']}"
        in told
    )
    assert (
        f"{us['i4_64']} us with 64 rows, where bf16 takes {us['bf16_64']}; i8 takes {us['i8_16']} us with 16"
        in told
    )
    assert f"4096 rows take {us['i4_4096']} us with i4 and {us['bf16_4096']} us with bf16, by plain" in told
    since = load_document(DOCS / "quantized" / "h200_scaled_sums.json").rows
    found = {row.folder: f"{row.kernel_graph.median_us:.1f}" for row in since if row.kernel_graph is not None}
    assert (
        f"1 row takes {found['i4_1.new']} us, 16 rows {found['i4_16.new']}, and 64 rows {found['i4_64.new']}."
        in readme
    )


def test_what_an_h100_gave() -> None:
    def ratios(file: str) -> dict[str, float]:
        """Ratios to the first baseline, of a CUDA graph if the kernel is short."""
        rows = load_document(DOCS / file).rows
        first = {row.folder: row.baselines[0] for row in rows}
        return {name: one.graph_ratio or one.ratio or 0.0 for name, one in first.items()}

    groups, backward = ratios("groups/h100.json"), ratios("rows/backward/measured/h100.json")
    long, decode = ratios("rows/long/h100.json"), ratios("decode/h100.json")
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"are at {min(groups.values()):.2f} to {max(groups.values()):.2f} of torch's own" in readme
    rms, layer = (backward[f"{name}_backward"] for name in ("rms_norm", "layer_norm"))
    assert f"at {rms:.2f} and {layer:.2f} of Inductor" in readme
    logarithm, loss = (long[f"{name}_128256"] for name in ("log_softmax", "cross_entropy"))
    assert f"over 128,256 columns at {logarithm:.2f} and {loss:.2f} of it" in readme
    many, one = (decode[f"pages16_{shape}"] for shape in ("16_32_8_8192", "1_64_8_131072"))
    assert f"of 16 at {many:.2f} and {one:.2f} of the speed of a kernel that only reads" in readme


def test_norms_of_rows() -> None:
    rows = {row.name: row for row in load_document(DOCS / "rows" / "h200.json").rows}
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    norms = [rows[f"{kind}_{length}"] for kind in ("rms", "layer_norm") for length in (4096, 8192, 16384)]
    told = [
        [one.graph_ratio or one.ratio or 0.0 for row in norms for one in row.baselines if one.name == name]
        for name in ("copy", "inductor")
    ]
    (low, high), (least, most) = ((min(one), max(one)) for one in told)
    assert [len(one) for one in told] == [6, 6]
    assert (
        f"are at {low:.2f} to {high:.2f} of the one and at {least:.2f} to {most:.2f} of the other" in readme
    )


def test_f8_with_scales() -> None:
    rows = {row.name: row for row in load_document(DOCS / "f8" / "h100.json").rows}
    few, one, large = (f"{shape}" for shape in ("128x7168x2048", "4096x4096x7168", "4096x7168x16384"))
    page = " ".join((DOCS / "front-end.md").read_text(encoding="utf-8").split())

    def ratio(shape: str) -> float:
        (baseline,) = rows[f"blocks_{shape}"].baselines
        return baseline.graph_ratio or baseline.ratio or 0.0

    assert f"of 4096 x 7168 x 4096 is at {ratio(one):.2f} of torch's `scaled_mm`" in page
    assert f"one of 128 x 2048 x 7168 at {ratio(few):.2f}" in page
    assert f"one of 4096 x 16384 x 7168 at {ratio(large):.2f}" in page
    times = {name: row.kernel_graph or row.kernel for name, row in rows.items()}
    us = {name: time.median_us for name, time in times.items() if time is not None}
    more = [us[f"blocks_{shape}"] / us[f"promoted_{shape}"] - 1 for shape in (few, one, large)]
    assert f"each is within {100 * max(more):.0f} % of the promoted product" in page


def test_few_tiles(tmp_path: Path) -> None:
    file, page = DOCS / "few_tiles" / "h200.json", tmp_path / "page.md"
    chains = DOCS / "few_tiles" / "h200_chains.json"
    files = sorted((DOCS / "few_tiles").glob("*.json"))
    assert bench_docs.main([*map(str, files), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "few_tiles.md").read_text(encoding="utf-8")
    rows = load_document(file).rows
    assert {row.status for row in rows} == {"ok"}
    ratios = {row.name: row.baselines[0].graph_ratio or row.baselines[0].ratio or 0.0 for row in rows}
    few = [ratio for name, ratio in ratios.items() if int(name.split("_")[1]) <= 128]
    many = [ratio for name, ratio in ratios.items() if int(name.split("_")[1]) > 128]
    every, of_few, of_many = map(statistics.geometric_mean, (ratios.values(), few, many))
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"Of [{len(rows)} products](docs/few_tiles.md) of 1 to 4096 rows" in readme
    assert f"beside cuBLAS is {every:.2f}, short ones in a CUDA graph: {of_few:.2f} with up to 128" in readme
    assert f"rows, {of_many:.2f} with 512 and 4096, where {min(many):.2f} is the least" in readme
    rows = load_document(chains).rows
    assert {row.status for row in rows} == {"ok"}
    of_eight = [row.baselines[0].graph_ratio or 0.0 for row in rows if row.name.startswith("c_8_")]
    told = f"With 8 rows and the weights of a layer, 34 to 134 MB, it is {min(of_eight):.2f} to {max(of_eight):.2f}"
    assert told in readme


def test_survey(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert bench_docs.main([*map(str, sorted((DOCS / "survey").glob("*.json"))), "-o", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == (DOCS / "survey.md").read_text(encoding="utf-8")


def test_validations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The page's links are relative to it, so it is written beside a link to the files.
    (tmp_path / "model").symlink_to(DOCS / "model")
    monkeypatch.chdir(tmp_path)
    files = sorted(Path("model").glob("*.json"))
    assert validate_docs.main([*map(str, files), "-o", "model.md"]) == 0
    assert (tmp_path / "model.md").read_text(encoding="utf-8") == (DOCS / "model.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("file", "machine", "told"),
    [
        (
            "two_cores",
            "h200",
            "the {} graphs in `problems/` compile in {} to {} s, in the geometric mean in {} s",
        ),
        (
            "b200_two_cores",
            "b200",
            "With `--machine b200` they compile in {1} to {2} s, in the geometric mean in {3} s",
        ),
    ],
)
def test_compile_times(file: str, machine: str, told: str) -> None:
    found = json.loads((DOCS / "compile_times" / f"{file}.json").read_text(encoding="utf-8"))
    assert found["compiled_for"] == machine
    rows = found["rows"]
    assert {row["graph"] for row in rows} == {path.stem for path in (DOCS.parent / "problems").glob("*.json")}
    assert {(row["status"], row["gap"]) for row in rows} == {("optimal", 0)}
    least, most, mean = min(row["seconds"] for row in rows), found["most_s"], found["geometric_mean_s"]
    page = " ".join((DOCS / "how-it-works.md").read_text(encoding="utf-8").split())
    assert told.format(len(rows), least, most, mean) in page
