"""Recorded schedules and the script that draws them, for the tests of the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

sys.path[:0] = [str(ROOT / "tests" / "digests"), str(ROOT / "docs" / "pictures")]
