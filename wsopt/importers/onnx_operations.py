"""The whole table of ONNX operations: every file that has entries, loaded."""

from __future__ import annotations

from wsopt.importers import (
    onnx_activations,
    onnx_elementwise,
    onnx_images,
    onnx_products,
    onnx_quantized,
    onnx_views,
)
from wsopt.importers.onnx_table import TABLE

FILES = (onnx_activations, onnx_elementwise, onnx_images, onnx_products, onnx_quantized, onnx_views)
"""The files that have entries."""

__all__ = ["FILES", "TABLE"]
