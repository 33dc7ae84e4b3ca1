"""Kernels and graphs are those of the emitter's and the tile tests."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("emit", "tile"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))
