"""Tests here compile kernels with Triton, which only Linux has."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("triton") else ["test_fuzz.py"]
