"""Operations of FX graphs that an import says, and that the backend of torch.compile leaves to Inductor."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from wsopt.importers.rows import rows_at
from wsopt.torch.table import Entry
from wsopt.torch.values import Value
from wsopt.torch.writer import Writer


def _embedding(w: Writer, table: Value, indices: Value, *_of_training: Any) -> Value:
    return rows_at(w, table, indices, 0)


MORE: Mapping[Any, Entry] = MappingProxyType({torch.ops.aten.embedding.default: _embedding})
"""The entries by overload, beside those of `wsopt.torch.table`."""
