"""How many cores a process may count on: those of the machine, or its share of them where others work beside it."""

from __future__ import annotations

import os

_NAME = "WSOPT_CORES"
"""The variable of the environment that tells a process its share."""


def cores() -> int:
    """Cores that this process may keep busy; at least one."""
    return int(os.environ.get(_NAME) or os.cpu_count() or 1)


def shared_among(processes: int) -> dict[str, str]:
    """What the environment of each of so many processes has to say of its share."""
    return {_NAME: str(max(1, cores() // max(1, processes)))}


def take_share(processes: int) -> None:
    """Count on a share of the cores from now on, as one of so many processes."""
    os.environ.update(shared_among(processes))
