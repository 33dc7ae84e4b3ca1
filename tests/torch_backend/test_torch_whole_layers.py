"""A layer that torch runs as one operation is written out: its products and its attention are pieces."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch import Tensor, nn  # noqa: E402
from torch_pieces import fresh, with_pieces  # noqa: E402

from wsopt.runtime.torch_reference import relative_error  # noqa: E402
from wsopt.torch.compiler import watching  # noqa: E402
from wsopt.torch.report import report_of  # noqa: E402

B = torch.bfloat16
CAUSAL = torch.ones(16, 16, dtype=torch.bool).triu(1)
PADDED = torch.arange(16) >= torch.tensor([[16], [9]])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    ("columns", "padding"), [(None, None), (CAUSAL, None), (None, PADDED), (CAUSAL, PADDED)]
)
def test_an_encoder_layer_is_pieces(norm_first: bool, columns: Tensor | None, padding: Tensor | None) -> None:
    fresh()
    activation = "gelu" if norm_first else "relu"
    layer = nn.TransformerEncoderLayer(
        64, 4, 128, activation=activation, norm_first=norm_first, batch_first=True
    )
    model = layer.eval().to(B)
    x, how = torch.randn(2, 16, 64).to(B), {"src_mask": columns, "src_key_padding_mask": padding}
    with torch.no_grad(), watching() as seen:
        found = with_pieces(model)(x, **how)
        want = model(x, **how)
    report = report_of(seen)
    assert report.flops > 2 * 2 * 16 * 64 * (4 * 64 + 2 * 128)
    assert report.share == 1.0, report
    assert (found.dtype, found.stride()) == (want.dtype, want.stride())
    assert relative_error(found, want) < 1e-2
