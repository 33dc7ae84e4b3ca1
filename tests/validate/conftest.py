"""Candidates of two graphs as the index of a folder, made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from validate_examples import candidate_set

from wsopt.validate.files import INDEX, candidate_set_to_json, write_json


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "candidates"
    write_json(found / INDEX, candidate_set_to_json(candidate_set()))
    return found
