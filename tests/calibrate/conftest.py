"""Fixtures of the calibrate tests: none of them needs a GPU or torch."""

from __future__ import annotations

import pytest
from calibrate_samples import synthetic

from wsopt.calibrate.samples import Document


@pytest.fixture
def document() -> Document:
    return synthetic()
