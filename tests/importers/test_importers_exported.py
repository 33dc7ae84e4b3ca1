"""Operations that an import says and the backend of torch.compile leaves to Inductor, against torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from wsopt.graph.reference import evaluate  # noqa: E402
from wsopt.importers.exported import import_exported  # noqa: E402

F = torch.nn.functional
IMAGE = (2, 4, 8, 8)


class Of(torch.nn.Module):
    """A function of modules and an input, as a model."""

    def __init__(self, function: Any, *parts: Any) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*self.parts, *given)


def _shared_rows(linear: Any, queries: Any, x: Any) -> Any:
    """Rows that all of a batch share, in a product of two dimensions."""
    return linear(queries.weight.expand(2, -1, -1).reshape(2, 16)) + x


CASES = {
    "pools": (IMAGE, lambda: Of(lambda x: F.max_pool2d(F.avg_pool2d(x, 3, 1, 1), 2) + 1)),
    "overlapping_pool": (IMAGE, lambda: Of(lambda x: F.max_pool2d(x, 3, stride=2, padding=1))),
    "global_pool": (IMAGE, lambda: Of(lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1))),
    "convolutions": (IMAGE, lambda: torch.nn.Sequential(
        torch.nn.Conv2d(4, 6, 3, padding=1, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(6, 6, 3, groups=6),
        torch.nn.Conv2d(6, 4, 2, groups=2, dilation=1), torch.nn.ConvTranspose2d(4, 3, 2, stride=2),
    )),
    "patches": (IMAGE, lambda: torch.nn.Conv2d(4, 8, 4, stride=4)),
    "group_norm": (IMAGE, lambda: torch.nn.Sequential(torch.nn.GroupNorm(2, 4), torch.nn.SiLU())),
    "nearest": (IMAGE, lambda: Of(lambda x: F.interpolate(x, scale_factor=2) * 2)),
    "nearest_and_windows": (IMAGE, lambda: torch.nn.Sequential(
        torch.nn.Upsample(scale_factor=2), torch.nn.Conv2d(4, 6, 3, padding=1),
        torch.nn.Upsample(scale_factor=2), torch.nn.Conv2d(6, 6, 1),
        torch.nn.Upsample(scale_factor=2), torch.nn.MaxPool2d(3), torch.nn.Upsample(scale_factor=2),
        torch.nn.AvgPool2d(2, padding=1), torch.nn.Upsample(scale_factor=2),
        torch.nn.ConvTranspose2d(6, 2, 2, stride=2),
    )),
    "numbers_joined": ((3, 4, 5), lambda: Of(lambda x: torch.cat(
        [torch.zeros_like(x[:, :1]), x.cumsum(1), torch.full((3, 1, 5), 2.5), x[:, :2], x.new_zeros(3, 1, 5)], 1
    ))),
    "zeros_in_front": ((3, 4, 5), lambda: Of(lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1] * 2], 1))),
    "argmax": ((4, 6), lambda: Of(lambda x: (x.argmax(-1), x.argmax(0, keepdim=True), x.argmax()))),
    "integers_divided": ((4, 8), lambda: Of(lambda x: x * torch.cos(torch.arange(0, 16, 2) / 16))),
    "many_joined": ((12, 4), lambda: Of(lambda x: torch.cat([x[i : i + 1] * i for i in range(11)]))),
    "gru": ((2, 10, 8), lambda: Of(lambda gru, x: gru(x)[0], torch.nn.GRU(8, 16, batch_first=True))),
    "shared_rows": ((2, 8), lambda: Of(_shared_rows, torch.nn.Linear(16, 8), torch.nn.Embedding(1, 16))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_model_means_what_torch_computes(tmp_path: Path, name: str) -> None:
    shape, make = CASES[name]
    torch.manual_seed(0)
    model, x, path = make().eval(), torch.randn(shape), tmp_path / f"{name}.pt2"
    with torch.no_grad():
        expected = model(x)
        torch.export.save(torch.export.export(model, (x,)), path)
    found = import_exported(path, {})
    (given,) = (one.name for one in found.graph.inputs if not one.constant)
    actual = evaluate(found.graph, {given: x.numpy(), **found.contents()}).values()
    results = expected if isinstance(expected, tuple) else (expected,)
    for mine, theirs in zip(actual, results, strict=True):
        assert mine.shape == tuple(theirs.shape)
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-4, atol=2e-5)


def test_rows_at_indices_of_an_input(tmp_path: Path) -> None:
    path, x, chosen = tmp_path / "rows.pt2", torch.randn(6, 4), torch.tensor([5, 0, 3])
    torch.export.save(torch.export.export(Of(lambda x, i: x[i] * 2), (x, chosen)), path)
    found = import_exported(path, {})
    assert [node.op for node in found.graph.nodes] == ["gather", "mul"]
    names = [one.name for one in found.graph.inputs]
    given = dict(zip(names, (x.numpy(), chosen.numpy().astype(np.int32)), strict=True))
    (actual,) = evaluate(found.graph, given).values()
    np.testing.assert_array_equal(actual, (x[chosen] * 2).numpy())
