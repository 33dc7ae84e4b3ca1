"""What the page on the performance model says of its errors is what the committed measurements have."""

from __future__ import annotations

from pathlib import Path

import docs_errors as errors
import docs_results as results

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance-model.md").read_text(encoding="utf-8")


def rows_behind(head: str) -> list[str]:
    """The rows of the table whose head begins so."""
    table = PAGE[PAGE.index(f"\n| {head} |") + 1 :].partition("\n\n")[0]
    return table.splitlines()[2:]


def test_errors_by_group() -> None:
    assert rows_behind("schedules") == errors.by_group()


def test_ranks_and_regret() -> None:
    assert rows_behind("over graphs") == errors.by_graph()


def test_errors_of_benchmarks() -> None:
    assert rows_behind("benchmarks") == errors.of_benchmarks()


def test_the_figures_in_its_words() -> None:
    graphs = {graph.name: graph for found in errors.validations() for graph in found.graphs}
    assert f"Over {len(graphs)} graphs and {len(errors.points())} schedules" in PAGE
    ragged, rows = graphs["gemm_ragged"], graphs["softmax_rows"]
    worst = max((point.error for point in ragged.points), key=abs)
    newest, _ = results.measured()["gemm_ragged", "cublas"]
    assert f"`gemm_ragged`, {newest.best_us:.0f} us, has a tau of {ragged.tau:.2f}" in PAGE
    assert f"worst error of {worst:+.1%}" in PAGE
    assert f"tau is {rows.tau:.2f}" in PAGE
    point, _ = max(errors.points(), key=lambda item: abs(item[0].error))
    assert f"The worst prediction, {point.error:+.1%}" in PAGE
    assert (point.graph, point.candidate.structure["depth"], point.candidate.depth) == (
        "attention_d64",
        64,
        1,
    )


def test_card_versions_and_days() -> None:
    for found in errors.validations():
        card = f"{found.card['device']} (driver {found.card['driver']}"
        assert card in PAGE
        assert found.date[:10] in PAGE
        assert f"Triton {found.versions['triton']}" in PAGE
