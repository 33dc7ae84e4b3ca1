"""Options of the backend, as `torch.compile(..., options={...})` hands them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    faults: list[Problem] = []
    if mode is not None and mode != "default":
        if mode == "measure":
            values.setdefault("take", "measure")
        elif mode == "async":
            values.setdefault("wait", False)
        else:
            told = f'{mode!r}; the backend wsopt knows "default", "measure" and "async"'
            faults.append(Problem("/mode", told))
    names = [one.name for one in fields(Options)]
    faults += [
        Problem(f"/{name}", f"unknown option{hint(name, names)}; there are {', '.join(names)}")
        for name in values
        if name not in names
    ]
    faults += [
        Problem(f"/{name}", f"{values[name]!r}; wants one of {', '.join(words)}")
        for name, words in WORDS.items()
        if name in values and values[name] not in words
    ]
    if not isinstance(values.get("machine", ""), str):
        faults.append(Problem("/machine", f"{values['machine']!r}; wants a card's name or a path"))
    workers = values.get("workers", 0)
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
        faults.append(Problem("/workers", f"{workers!r}; wants a number of processes, or 0 for all cores"))
    if not isinstance(values.get("wait", True), bool):
        faults.append(Problem("/wait", f"{values['wait']!r}; wants True or False"))
    elif not values.get("wait", True) and values.get("take") == "measure":
        faults.append(Problem("/wait", "take 'measure' waits: nothing else is to run while it measures"))
    if not isinstance(values.get("frozen", False), bool):
        faults.append(Problem("/frozen", f"{values['frozen']!r}; wants True or False"))
    if not isinstance(values.get("scheduler"), str | None):
        told = f"{values['scheduler']!r}; wants the address of a Dask scheduler, such as tcp://10.0.0.1:8786"
        faults.append(Problem("/scheduler", told))
    if not isinstance(values.get("inductor", {}), Mapping):
        faults.append(Problem("/inductor", f"{values['inductor']!r}; wants names of settings with values"))
    elif values.get("inductor") and values.get("rest", "inductor") != "inductor":
        faults.append(Problem("/inductor", "does not go with rest 'eager', which Inductor has no part in"))
    else:
        faults += _unknown_settings(values.get("inductor", {}))
    if faults:
        raise InputError("options of the backend wsopt", faults)
    return Options(**values)


def _unknown_settings(settings: Mapping[Any, Any]) -> list[Problem]:
    """The faults of settings that Inductor does not have."""
    if not settings:
        return []
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
