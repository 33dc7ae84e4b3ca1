"""Masks whose contents are known are said by indices, and mean what they were."""

from __future__ import annotations

import numpy as np
import pytest

from wsopt.graph.reference import evaluate
from wsopt.graph.types import Graph, Node
from wsopt.importers.bands import is_mask, said
from wsopt.torch.values import Untaken
from wsopt.torch.writer import Writer

ROWS, COLUMNS = np.arange(12)[:, None], np.arange(20)
BANDS = {
    "causal": ROWS >= COLUMNS,
    "causal with a cache": ROWS + 8 >= COLUMNS,
    "window": (ROWS >= COLUMNS) & (COLUMNS > ROWS - 4),
    "keys that are padded": np.broadcast_to(COLUMNS < 13, (12, 20)),
    "one dimension": COLUMNS >= 5,
    "from the end": COLUMNS >= 15 - ROWS,
    "two steps a row": 2 * ROWS >= COLUMNS,
    "rows alone": np.broadcast_to(ROWS < 5, (12, 20)),
}


def meant(w: Writer, name: str) -> np.ndarray:
    """What a tensor of a writer without inputs holds."""
    nodes = tuple(Node(n.name, n.op, n.inputs, n.attrs, n.type) for n in w.nodes.values())
    return evaluate(Graph("mask", "", (), nodes, (name,)), {})[name]


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("least", [None, -np.inf, np.finfo(np.float32).min])
def test_a_band_is_said(name: str, least: float | None) -> None:
    mask = np.broadcast_to(BANDS[name], (2, 1, *BANDS[name].shape))
    found = mask if least is None else np.where(mask, np.float32(0), np.float32(least))
    assert least is None or is_mask(found)
    w = Writer(group="g")
    value = said(w, found)
    assert value.shape == found.shape
    assert {node.op for node in w.nodes.values()} <= {
        "iota", "less_equal", "greater_equal", "logical_and", "add", "mul", "where",
    }  # fmt: skip
    np.testing.assert_array_equal(np.broadcast_to(meant(w, str(value.tensor)), found.shape), found)


@pytest.mark.parametrize(
    "found",
    [
        np.tril(np.ones((6, 6), bool)) ^ np.eye(6, k=-3, dtype=bool),
        np.random.default_rng(0).integers(0, 2, (4, 8)).astype(bool),
        np.array([0.0, 1.0, 2.0]),
        np.array([3, 1, 4, 1]),
        np.stack([np.tril(np.ones((5, 5), bool)), np.triu(np.ones((5, 5), bool))]),
    ],
)
def test_what_follows_no_rule_is_not_said(found: np.ndarray) -> None:
    w = Writer(group="g")
    with pytest.raises(Untaken):
        said(w, found)
    assert not w.nodes


def test_weights_are_no_masks() -> None:
    assert not is_mask(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert not is_mask(np.random.default_rng(0).standard_normal((4, 4)))
    assert not is_mask(np.zeros((4, 4)))
