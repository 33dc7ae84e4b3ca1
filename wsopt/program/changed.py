"""Frozen data with other values in some of its fields, for what a search makes by the ten thousand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

Data = TypeVar("Data")


def changed(one: Data, **values: Any) -> Data:
    """As `dataclasses.replace`, which makes a call for each field: a copy of the dictionary that has all of them.

    The data have no slots, and do nothing when they are made; TypeError otherwise, and for a field that is none.
    """
    kind: Any = type(one)
    made: Data = object.__new__(kind)
    own = vars(made)
    own.update(vars(one))
    count = len(own)
    own.update(values)
    if len(own) > count:
        raise TypeError(f"{kind.__name__} has no fields {', '.join([*own][count:])}")
    for name, make in _made_anew(kind):
        own[name] = make()
    return made


@functools.cache
def _made_anew(kind: Any) -> tuple[tuple[str, Callable[[], Any]], ...]:
    """The fields that each value of a type makes for itself, and how."""
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} does something when it is made")
    own = [field for field in dataclasses.fields(kind) if not field.init]
    return tuple((field.name, field.default_factory) for field in own if callable(field.default_factory))
