"""What the README shows is what a recorded schedule makes and what was measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import docs_results as results
import draw
import pytest
import replay

from wsopt.graph.parse import parse_graph

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.stem
)
def test_a_picture_is_drawn_from_its_schedule(picture: Path) -> None:
    assert picture.read_text(encoding="utf-8") == draw.svg(replay.verified_of(picture.stem))


def test_the_picture_shows_products_that_fill_the_tensor_core() -> None:
    verified = replay.verified_of("cross_attention")
    (tensor,) = (row for row in draw.rows(verified) if row.name == "tensor core")
    (bars,) = tensor.lanes
    period = draw.INTERVALS * verified.schedule.ii
    shown = [(max(bar.start, 0), min(bar.end, period)) for bar in bars if bar.start < period]
    assert sum(end - start for start, end in shown) == period


def test_the_lines_are_of_the_kernel_of_the_picture() -> None:
    (shown,) = re.findall(r"<!-- fmt: off -->\n```python\n(.*?)```", README, re.DOTALL)
    lines = [line.strip() for line in replay.source_of("cross_attention").splitlines()]
    assert shown.count("\n") == 5
    assert shown in "\n".join(lines)


def test_the_table_is_what_was_measured() -> None:
    shown = README.partition("<!-- results -->\n")[2].partition("\n\n")[0].splitlines()
    assert shown[2:] == results.table()


def test_the_table_names_card_versions_and_days() -> None:
    told = README.partition("<!-- results -->\n")[2].partition("## ")[0]
    for document in results.documents():
        versions, machine = dict(document.versions), dict(document.machine)
        card = f"{machine['device']}, driver {machine['driver']}, "
        wanted = (card, f"Triton {versions['triton']};", document.date[:10])
        assert all(words in told for words in wanted), (document.date, wanted)
        assert f"torch {versions['torch'].partition('+')[0]}," in told


def test_the_lines_of_the_example_are_of_its_kernel() -> None:
    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- kernel -->\n```\n(.*?)```", page, re.DOTALL)
    lines = replay.source_of("gemm_bias_gelu").splitlines()
    source = "\n".join(line.strip() for line in lines)
    assert len(blocks) == 2
    for block in blocks:
        assert "\n".join(line.strip() for line in block.splitlines()) in source


def test_its_graph_is_the_same_as_json_and_in_python() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    (lines,) = re.findall(r"```python\n(import wsopt\n.*?)build = wsopt\.compile\(", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(lines, "README.md", "exec"), names)  # the README's own lines
    written, built = parse_graph(text, "README.md"), names["g"].build()
    assert (written.name, written.inputs) == (built.name, built.inputs)
    assert [(node.op, node.attrs, node.type) for node in written.nodes] == [
        (node.op, node.attrs, node.type) for node in built.nodes
    ]
