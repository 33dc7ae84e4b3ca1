"""Measurements as plain data: programs (a kernel with its constants), and probes (how one is run).

Imports nothing but the standard library: the command and the tests read the catalog without torch and triton.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Mode(StrEnum):
    """How a probe is run; each is one function of `runner`.

    `roles`: one to three warpgroups of a block, cycles an iteration. `alone`: one partition, likewise.
    `load` and `store`: copies by TMA. `block`: blocks in waves. `launch`: empty kernels. `sustained`: tensor
    instructions under the power limit. `library` and `copy`: what torch reaches; `read`: what reads alone do.
    """

    ROLES = "roles"
    ALONE = "alone"
    LOAD = "load"
    STORE = "store"
    BLOCK = "block"
    LAUNCH = "launch"
    SUSTAINED = "sustained"
    LIBRARY = "library"
    COPY = "copy"
    READ = "read"


class Place(StrEnum):
    """Where a copy reads: lines of its SM's own in L2, the same lines as all SMs, or device memory."""

    L2 = "l2"
    SAME = "same"
    DRAM = "dram"


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel of `kernels/` with its constants; `box` are rows and columns of the bf16 box it copies."""

    module: str
    function: str
    constants: tuple[tuple[str, int | bool | str], ...] = ()
    warps: int = 4
    registers: int | None = 160
    box: tuple[int, int] | None = None

    @property
    def label(self) -> str:
        """Module, function and short constants, for progress and errors."""
        told = [str(value) for name, value in self.constants if name != "ASM"]
        box = [f"{self.box[0]}x{self.box[1]}"] if self.box else []
        return " ".join([f"{self.module}.{self.function}", *told, *box])


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing to measure. A result is divided by `per`, what one iteration does of it.

    `groups` warpgroups in mode `roles`; `depth` copies in flight, from `place`; `blocks` is the number of
    blocks, all SMs if 0.
    """

    name: str
    mode: Mode
    program: Program | None = None
    per: float = 1.0
    groups: int = 1
    depth: int = 1
    place: Place = Place.DRAM
    blocks: int = 0
    options: tuple[str, ...] = field(default=())
