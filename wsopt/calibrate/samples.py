"""Raw measurements of a calibration as plain data, their JSON, their median and spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem

FORMAT = 1
RESOLUTION = 0.005
"""Least spread that is stated, as a share of the value: no two runs are held to agree more closely."""


@dataclass(frozen=True, slots=True)
class Document:
    """One calibration: when, on what, with what, and every sample by name (one a round, in their order).

    Cycles are of the SM clock. Names that end in `_us` are microseconds, in `.rate` bytes a second, in `.mhz`
    and `.tflops` what they say; all others cycles. `failures` says why a probe has no or fewer samples.
    """

    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    samples: Mapping[str, tuple[float, ...]]
    failures: Mapping[str, str]

    def to_text(self) -> str:
        """As JSON, one name a line."""
        body = {
            "format": FORMAT,
            "date": self.date,
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "failures": dict(self.failures),
        }
        lines = [f"    {json.dumps(k)}: {json.dumps(list(v))}" for k, v in sorted(self.samples.items())]
        head = json.dumps(body, indent=2).removesuffix("\n}")
        return head + ',\n  "samples": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def document_from_file(path: Path) -> Document:
    """The document that `to_text` wrote; InputError if the file cannot be read or is none."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        samples = {name: tuple(map(float, values)) for name, values in raw["samples"].items()}
        return Document(raw["date"], raw["machine"], raw["versions"], samples, raw["failures"])
    except OSError as error:
        told = f"cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"is no calibration's JSON ({type(error).__name__}: {error})"
    raise InputError(str(path), [Problem("", told)])


def middle(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def spread(samples: Sequence[float]) -> float:
    """Half the range of the samples, but at least RESOLUTION of the median."""
    return max((max(samples) - min(samples)) / 2, RESOLUTION * abs(middle(samples)))
