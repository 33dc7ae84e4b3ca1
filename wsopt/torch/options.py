"""Options of the backend, as `torch.compile(..., options={...})` hands them over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from wsopt.driver import DEFAULT_MACHINE
from wsopt.errors import InputError, Problem
from wsopt.graph.faults import hint

WORDS = {
    "execute": ("kernel", "reference", "simulation"),
    "rest": ("inductor", "eager"),
    "take": ("predicted", "all", "measure"),
}
"""The words that an option may be."""


_WANTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "machine": (lambda value: isinstance(value, str), "a card's name or a path"),
    "workers": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a number of processes, or 0 for all cores",
    ),
    "wait": (lambda value: isinstance(value, bool), "True or False"),
    "frozen": (lambda value: isinstance(value, bool), "True or False"),
    "scheduler": (
        lambda value: isinstance(value, str | None),
        "the address of a Dask scheduler, such as tcp://10.0.0.1:8786",
    ),
    "inductor": (lambda value: isinstance(value, Mapping), "names of settings with values"),
}
"""Of options that are not one of some words, whether a value is right, and what they want instead."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is compiled.

    execute: what computes the pieces: their `kernel` on a GPU, or the `reference` of their graphs in torch on any
    device, at once or after a `simulation` of their kernels.
    rest: what compiles all else: `inductor`, or `eager`, which runs it operation by operation and compiles nothing.
    take: which pieces are taken: where our `predicted` time beats the rates that Inductor was measured at, `all`, or
    those that `measure` shows to be faster.
    machine: the card whose figures count, a name or the path of a machine file.
    workers: processes that compile pieces; 0 are as many as there are cores.
    wait: whether the first call waits until kernels are built; else the graph is compiled again when they are.
    frozen: whether weights do not change any more, so that kernels may read them packed, as a CUDA graph replays.
    scheduler: the address of a Dask scheduler whose workers compile pieces instead, such as tcp://10.0.0.1:8786.
    inductor: settings of Inductor while it compiles all else, such as {"triton.cudagraphs": True}.
    """

    execute: str = "kernel"
    rest: str = "inductor"
    take: str = "predicted"
    machine: str = DEFAULT_MACHINE
    workers: int = 0
    wait: bool = True
    frozen: bool = False
    scheduler: str | None = None
    inductor: Mapping[str, Any] = field(default_factory=dict)


def read_options(given: Mapping[str, Any] | None, mode: str | None) -> Options:
    """Options, checked; `mode` "measure" is `take` "measure", and `mode` "async" is not to `wait`.

    Raises InputError with all faults.
    """
    values = dict(given or {})
    faults = _take_mode(values, mode)
    faults += [*_unknown_names(values), *_wrong_values(values), *_clashes(values)]
    if faults:
        raise InputError("options of the backend wsopt", faults)
    return Options(**values)


def _take_mode(values: dict[str, Any], mode: str | None) -> list[Problem]:
    """Set the option that a mode stands for, if it is not given. The fault of a mode that there is not."""
    match mode:
        case None | "default":
            pass
        case "measure":
            values.setdefault("take", "measure")
        case "async":
            values.setdefault("wait", False)
        case _:
            told = f'{mode!r}; the backend wsopt knows "default", "measure" and "async"'
            return [Problem("/mode", told)]
    return []


def _unknown_names(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The faults of options that there are not."""
    names = [one.name for one in fields(Options)]
    for name in values:
        if name not in names:
            yield Problem(f"/{name}", f"unknown option{hint(name, names)}; there are {', '.join(names)}")


def _wrong_values(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The faults of options with a value that they cannot have."""
    for name, words in WORDS.items():
        if name in values and values[name] not in words:
            yield Problem(f"/{name}", f"{values[name]!r}; wants one of {', '.join(words)}")
    for name, (is_right, wanted) in _WANTED.items():
        if name in values and not is_right(values[name]):
            yield Problem(f"/{name}", f"{values[name]!r}; wants {wanted}")


def _clashes(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The faults of options that do not go together, and of settings that Inductor does not have."""
    if values.get("wait", True) is False and values.get("take") == "measure":
        yield Problem("/wait", "take 'measure' waits: nothing else is to run while it measures")
    settings = values.get("inductor")
    if isinstance(settings, Mapping) and settings:
        if values.get("rest", "inductor") != "inductor":
            yield Problem("/inductor", "does not go with rest 'eager', which Inductor has no part in")
        else:
            yield from _unknown_settings(settings)


def _unknown_settings(settings: Mapping[Any, Any]) -> list[Problem]:
    """The faults of settings that Inductor does not have."""
    from torch._inductor import config

    known = config.get_config_copy()
    return [
        Problem(
            f"/inductor/{name}", f"Inductor has no such setting{hint(str(name), _near(str(name), known))}"
        )
        for name in settings
        if name not in known
    ]


def _near(name: str, known: Iterable[str]) -> list[str]:
    """The names that stand in the same group and begin alike, for there are too many to be compared."""
    begins = len(name.rpartition(".")[0]) + 2
    return [one for one in known if one[:begins] == name[:begins]]
