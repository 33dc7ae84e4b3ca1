"""Caches of facts of tile programs: each fact is computed once for a program, or for all programs with one loop.

A search asks thousands of programs, most of which have the loop of another one: epilogues differ, the order of tiles,
how many a block takes. What depends on the loop alone is found once for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from wsopt.entries import extended


class _Known(Protocol):
    @property
    def known(self) -> dict[Any, Any]: ...

    @property
    def known_of_loop(self) -> dict[Any, Any]: ...


Program = TypeVar("Program", bound=_Known)
Rest = ParamSpec("Rest")
Fact = TypeVar("Fact")

FACTS: list[Callable[..., Any]] = []
"""The functions whose results are kept; tests hold that each finds the same where nothing is known."""


def of_program(
    function: Callable[Concatenate[Program, Rest], Fact],
) -> Callable[Concatenate[Program, Rest], Fact]:
    """A function of a tile program, and of further arguments that are hashable, that finds what it does once. Nobody
    may change what it returns.
    """
    return _kept(function, lambda program: program.known)


def of_loop(
    function: Callable[Concatenate[Program, Rest], Fact],
) -> Callable[Concatenate[Program, Rest], Fact]:
    """The same once for all programs with equal loops. It may read nothing of a program but its operations,
    dependences, rings, values, consumers, K-blocks an iteration, conditions, and limits that are lifted.
    """
    return _kept(function, lambda program: program.known_of_loop)


def _kept(
    function: Callable[Concatenate[Program, Rest], Fact], where: Callable[[Program], dict[Any, Any]]
) -> Callable[Concatenate[Program, Rest], Fact]:
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def kept(program: Program, /, *rest: Rest.args, **named: Rest.kwargs) -> Fact:
        known, key = where(program), (name, rest, *named.items())
        if key not in known:
            known[key] = function(program, *rest, **named)
        found: Fact = known[key]
        return found

    FACTS.append(kept)
    return kept


def known_of(*loop: Any) -> dict[Any, Any]:
    """What is known of the loop that these values make up: the same object for equal ones, at first empty. Entries
    that were added to tables may change what there is to know, so that meanwhile each program has its own.
    """
    return {} if extended() else _known(*loop)


@functools.lru_cache(maxsize=1024)
def _known(*loop: Any) -> dict[Any, Any]:
    return {}
