"""Reads JSON files where neither the solver nor what it needs is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem


def read_json(path: Path) -> Any:
    """The data of a file. Raises InputError if it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), [Problem("", f"cannot be read: {error.strerror}")]) from error
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), [Problem("", f"is not JSON: {error}")]) from error
