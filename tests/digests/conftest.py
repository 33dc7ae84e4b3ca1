"""The kernels of the emit tests, and the graphs that they use, have digests too."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("emit", "tile"):
    sys.path.append(str(Path(__file__).parents[1] / room))
