"""Pages as text: whole, small, soon made, with a policy for what is in them; and the command that writes them."""

from __future__ import annotations

import hashlib
import json
import re
import time
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import pytest
from page_builds import HOSTILE, NAMES, Pages, cut_folder, hostile_build, replay
from typer.testing import CliRunner

from wsopt.cli import app
from wsopt.emit.source import emit
from wsopt.errors import InputError
from wsopt.folder import SEARCH, read_folder
from wsopt.pages.build import build_page, cut_page
from wsopt.pages.html import json_text
from wsopt.pages.many import report_page
from wsopt.pages.source import EPILOGUE, links
from wsopt.program.ids import OpKind

DOCS = Path(__file__).parents[2] / "docs"


def digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def data_of(page: str) -> dict[str, object]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, object] = json.loads(found)
    return data


@pytest.mark.parametrize("name", [*NAMES, "cut"])
def test_a_page_is_one_small_file_whose_policy_names_its_script_and_style(pages: Pages, name: str) -> None:
    text = pages[name].read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    script, style = (
        re.findall(r"<script>(.*?)</script>", text, re.DOTALL),
        re.findall(r"<style>(.*?)</style>", text, re.DOTALL),
    )
    assert len(script) == len(style) == 1
    assert f"script-src {digest(script[0])}; style-src {digest(style[0])};".replace(
        "'", "&#39;"
    ) in text.replace("'", "&#39;")
    assert not re.findall(r"<[^>]* (?:src|style|on\w+)=", text.split('id="data"')[0])
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg|<li>.*?</li>|http-equiv", "", text)


def test_a_build_of_many_kernels_is_a_small_page_too(tmp_path: Path) -> None:
    cut = cut_folder(tmp_path)
    steps = tuple(replace(cut.record.steps[0], folder=f"kernels/{number}") for number in range(8))
    many = replace(cut, kernels=cut.kernels * 4, record=replace(cut.record, steps=steps))
    for found, sources in ((cut, 2), (many, 0)):
        text = cut_page(found)
        assert len(text.encode()) < 1_000_000
        assert text.count('<article id="kernel-') == len(found.kernels)
        assert text.count('<ol class="source"') == len(found.kernels)
        assert len(re.findall("<li><code>.*warpgroup_mma\\(", text)) >= sources
        assert bool(re.findall("<li><code>", text)) is bool(sources)
        assert text.count("own page: <code>wsopt inspect ") == len(found.kernels)
    data = data_of(cut_page(cut))["whole"]
    assert isinstance(data, dict)
    launch = cut.kernels[0].verified.machine.kernel_launch_us
    assert [step["end"] - step["begin"] for step in data["steps"]] == pytest.approx(
        [1e3 * (step.predicted_us - launch) for step in cut.record.steps]
    )
    assert data["total"] == pytest.approx(1e3 * cut.record.predicted_us)


def test_a_page_is_made_within_three_seconds_and_always_the_same(pages: Pages) -> None:
    found, began = pages.builds["attention_causal"], time.process_time()
    assert build_page(found) == pages["attention_causal"].read_text(encoding="utf-8")
    assert time.process_time() - began < 3


def test_texts_are_escaped_in_markup_and_in_data(tmp_path: Path) -> None:
    page = build_page(hostile_build(tmp_path / "build"))
    assert "<img" not in page
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    (kernel,) = data_of(page)["kernels"]  # type: ignore[misc]
    assert kernel["name"] == HOSTILE
    assert json.loads(json_text({"a": "</script><!--&\u2028"})) == {"a": "</script><!--&\u2028"}
    assert not set("<>&\u2028") & set(json_text({"a": "</script><!--&\u2028"}))


def test_every_operation_has_its_lines(pages: Pages) -> None:
    for name in NAMES:
        found = pages.builds[name]
        lines = found.kernel.splitlines()
        linked = links(found.verified, found.kernel).lines
        starts = {
            "load": "tma_load(",
            "mma": "warpgroup_mma(",
            "release": "mbarrier.arrive(",
            "store": "gl.store(" if found.verified.schedule.structure.stored_by_threads else "tma_store(",
        }
        for op in found.verified.program.loop:
            own = [lines[number - 1] for number in linked[str(op.id)]]
            word = starts.get(str(op.id).partition(":")[0].partition("@")[0])
            assert word is None or any(word in line for line in own), str(op.id)
        if name != "layer_norm":
            assert any("def epilogue" in lines[number - 1] for number in linked[EPILOGUE])
        # A line of a loader is no line of a consumer.
        copies = {number for op, own in linked.items() if op.startswith("load:") for number in own}
        products = {number for op, own in linked.items() if op.startswith("mma:") for number in own}
        assert not copies & products


@pytest.mark.parametrize(
    ("name", "added", "ahead"),
    [
        ("golden-split", "combined(", 2),
        ("golden-shared_products", "combined(", 2),
        ("golden-combined", "last_to_arrive(", 0),
        ("golden-shared", "last_to_arrive(", 0),
    ],
)
def test_operations_of_split_sums_have_their_lines(name: str, added: str, ahead: int) -> None:
    """Sums of parts are the epilogue's; a block's first copies, before the kernel before ends, are copies too."""
    verified = replay.verified_of(name)
    source = emit(verified)
    linked = links(verified, source)
    lines = dict(enumerate(source.splitlines(), 1))
    assert not linked.why
    words = {OpKind.TMA_LOAD: "tma_load(", OpKind.MMA: "warpgroup_mma(", OpKind.RELEASE: "arrive("}
    for op in verified.program.loop:
        word = words.get(op.kind)
        own = [lines[number] for number in linked.lines[str(op.id)]]
        assert own, str(op.id)
        assert word is None or any(word in line for line in own), str(op.id)
        assert not any("workspace_ptr" in line or "combined(" in line for line in own), str(op.id)
    assert any(added in lines[number] for number in linked.lines[EPILOGUE])
    loads = {number for number, line in lines.items() if "tma_load(" in line and "_ring.index(" in line}
    copies = {n for op, own in linked.lines.items() if op.startswith("load:") for n in own}
    assert loads <= copies
    assert len(loads) >= len(verified.program.of(OpKind.TMA_LOAD)) + ahead


def test_another_kernel_is_not_linked_and_the_page_says_why(pages: Pages) -> None:
    found = links(pages.builds["gemm_bf16"].verified, "print('else')\n")
    assert not found.lines
    assert "not what this release writes" in found.why


def test_the_command_writes_page_and_trace(pages: Pages, tmp_path: Path) -> None:
    build, html, trace = pages.folder / "gemm_bf16", tmp_path / "page.html", tmp_path / "trace.pftrace"
    done = CliRunner().invoke(app, ["inspect", str(build), "--html", str(html), "--perfetto", str(trace)])
    assert (done.exit_code, done.output) == (0, f"written to {html}\nwritten to {trace}\n")
    assert html.read_text(encoding="utf-8") == pages["gemm_bf16"].read_text(encoding="utf-8")
    assert trace.stat().st_size > 10_000
    done = CliRunner().invoke(app, ["inspect", str(build), "--html", str(html), "--json"])
    assert json.loads(done.output) == {"html": str(html)}


def test_against_shows_both_builds(pages: Pages, tmp_path: Path) -> None:
    build, html = pages.folder / "gemm_bf16", tmp_path / "page.html"
    done = CliRunner().invoke(app, ["inspect", str(build), "--against", str(build), "--html", str(html)])
    assert done.exit_code == 0, done.output
    (kernel,) = data_of(html.read_text(encoding="utf-8"))["kernels"]  # type: ignore[misc]
    assert kernel["against"]["interval"] == kernel["interval"]
    assert kernel["against"]["compared"]["slower_us"] == 0


def test_a_file_that_cannot_be_written_is_said_before_any_work(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "page.html"
    for command in (
        ["inspect", str(tmp_path), "--html", str(missing)],
        ["report", str(tmp_path), "--html", str(tmp_path)],
    ):
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, InputError)
        assert "does not exist" in str(done.exception) or "is a folder" in str(done.exception)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (SEARCH, "{}", "its format is not wsopt.search/1"),
        (
            SEARCH,
            '{"format": "wsopt.search/1", "count": 2, "columns": [{"name": "rows", "each": [1]}]}',
            "each structure",
        ),
        ("trace/trace.json", "[]", "is no trace.json of this release"),
        ("trace/trace.json", None, "is of another schedule"),
    ],
)
def test_damaged_files_are_refused_by_name(
    pages: Pages, tmp_path: Path, file: str, text: str | None, told: str
) -> None:
    found = pages.builds["gemm_bf16"]
    folder = tmp_path / "build"
    folder.mkdir()
    for path in found.path.glob("*.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / file).parent.mkdir(exist_ok=True)
    other = (DOCS / "traces" / "attention_causal.json").read_text(encoding="utf-8")
    (folder / file).write_text(other if text is None else text, encoding="utf-8")
    with pytest.raises(InputError, match=told):
        build_page(read_folder(folder))


def test_a_build_without_a_record_of_its_search_says_so(pages: Pages, tmp_path: Path) -> None:
    found = pages.builds["layer_norm"]
    for path in found.path.glob("*.*"):
        if path.name != SEARCH:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    page = build_page(read_folder(tmp_path))
    assert "has no search.json" in page
    assert 'data-chart="search"' not in page


def test_a_report_takes_builds_and_benchmarks_together(pages: Pages) -> None:
    page = report_page([pages.folder / "gemm_bf16", DOCS / "benchmarks" / "h200_products.json"])
    entries = data_of(page)["entries"]
    assert isinstance(entries, list)
    build, rows = entries[0], entries[1:]
    prediction = pages.builds["gemm_bf16"].verified.schedule.prediction
    assert (build["name"], build["predicted_us"]) == ("gemm_bf16", prediction.microseconds)
    trace = json.loads((DOCS / "traces" / "gemm_bf16.json").read_text(encoding="utf-8"))
    assert build["measured"]["median_us"] == trace["times_us"]["plain"]["median_us"]
    benchmark = json.loads((DOCS / "benchmarks" / "h200_products.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in rows] == [row["folder"] for row in benchmark["rows"]]
    assert rows[0]["ratios"]["cublas"][0] == benchmark["rows"][0]["baselines"][0]["graph_ratio"]
    assert "580.159.04" in page
    with pytest.raises(InputError, match="neither a folder that compile wrote nor"):
        report_page([Path("nowhere")])


def test_the_benchmarks_page_is_made_from_the_committed_files() -> None:
    files = sorted((DOCS / "benchmarks").glob("*.json"))
    assert (DOCS / "benchmarks.html").read_text(encoding="utf-8") == report_page(files)


@pytest.mark.parametrize("name", ["gemm_bf16", "attention_causal"])
def test_measured_operations_are_listed_by_how_far_they_are_off(pages: Pages, name: str) -> None:
    (kernel,) = data_of(pages[name].read_text(encoding="utf-8"))["kernels"]  # type: ignore[misc]
    rows, ii = kernel["measured"]["ops"], pages.builds[name].verified.schedule.ii
    offs = [abs(row["off"]) for row in rows]
    assert offs == sorted(offs, reverse=True)
    assert offs[0] > 0.01
    trace = json.loads((DOCS / "traces" / f"{name}.json").read_text(encoding="utf-8"))
    stamped = {
        (part["name"], op["op"]): op["measured"]["start"]["median"] - op["predicted"]["start"]
        for part in trace["partitions"]
        for op in part["ops"]
        if op["measured"]["start"]
    }
    assert {(row["role"], row["op"]): row["off"] * ii for row in rows} == pytest.approx(stamped)
    picture = kernel["measured"]["picture"]
    kinds = [row["name"].rpartition(" ")[2] for row in picture["rows"]]
    assert kinds[:3] == ["scheduled", "predicted", "measured"]
    assert kinds == kinds[:3] * (len(kinds) // 3)
