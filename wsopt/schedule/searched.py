"""What a search made of every structure, as the file search.json beside a schedule: its bound, and how it ended."""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wsopt.program.types import Structure

FORMAT = "wsopt.search/1"
_DIGITS = string.digits + string.ascii_letters


class Ending(StrEnum):
    """How a structure's part in a search ended.

    `PRUNED`: its bound is no better than the best schedule. `INFEASIBLE`: a budget or the model rules it out.
    `REJECTED`: the compiler had no registers for it, or for one that lives in as many. `OPEN`: the time was over.
    """

    SOLVED = "solved"
    PRUNED = "pruned"
    INFEASIBLE = "infeasible"
    REJECTED = "rejected"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Searched:
    """A structure with the bound of its time, the time of its best schedule, both in microseconds, and that one's II,
    as far as they are known; `reason` says what ruled it out.
    """

    structure: Structure
    ending: Ending
    bound_us: float | None = None
    microseconds: float | None = None
    ii: int | None = None
    reason: str = ""


def search_text(searched: Iterable[Searched]) -> str:
    """The text of search.json: a column for each field, for there are thousands of structures."""
    every = list(searched)
    names = [field.name for field in dataclasses.fields(Structure)]
    columns = [_column(name, [getattr(one.structure, name) for one in every]) for name in names]
    columns += [
        _column("ending", [one.ending.value for one in every]),
        _column("reason", [one.reason.partition(":")[0] for one in every]),
        _column("bound_us", [_rounded(one.bound_us) for one in every]),
        _column("us", [_rounded(one.microseconds) for one in every]),
        _column("ii", [one.ii for one in every]),
    ]
    lines = ",\n".join(json.dumps(column, separators=(",", ":")) for column in columns)
    return f'{{"format": "{FORMAT}", "count": {len(every)}, "columns": [\n{lines}\n]}}\n'


def _column(name: str, own: Sequence[Any]) -> dict[str, Any]:
    """A column: its different values and, as one character each, which of them a structure has; or if there are too
    many for that, its value `each`.
    """
    values = list(dict.fromkeys(own))
    if len(values) > len(_DIGITS):
        return {"name": name, "each": own}
    places = dict(zip(values, _DIGITS, strict=False))
    return {"name": name, "values": values, "places": "".join(places[one] for one in own)}


def _rounded(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds, 4)


def read_search(text: str) -> dict[str, Any]:
    """The data of a search.json, checked: each column has a value for each structure. ValueError for another text."""
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    try:
        lengths = {
            len(column["each"] if "each" in column else column["places"]) for column in data["columns"]
        }
        names = {column["name"] for column in data["columns"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"its columns are damaged ({error})") from error
    if lengths != {data.get("count")} or not names >= {"ending", "reason", "bound_us", "us", "ii"}:
        raise ValueError("its columns do not have a value for each structure")
    return data
