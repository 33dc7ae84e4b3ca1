"""Parts of rows that stay in registers from the first pass over rows that no SM holds to the second.

They are the row's first parts: each is read from its slot, which is handed back at once, and used where it is. What
follows needs those slots. The second pass treats them last, and waits for nothing. A kernel has them as a tuple, so
that loops over them are written out by the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from wsopt.emit import text

_STAY = "The first parts stay in registers, as they were read; their slots are free for others."
_LAST = "What stayed in registers comes last: nothing is waited for."


class Kept(Enum):
    """What a pass over parts of rows has to do with registers: nothing, or it fills them, or it reads them."""

    NOTHING = "nothing"
    FILLED = "filled"
    READ = "read"


def tile(kept: Kept, name: str, loaded: str, converted: Callable[[str], str]) -> Iterator[str]:
    """The lines that make a tile of a part: `loaded` from its slot, or from the registers that keep it, and
    `converted`.
    """
    if kept is Kept.NOTHING:
        yield f"{name} = {converted(loaded)}"
        return
    if kept is Kept.FILLED:
        yield f"{_kept(name)} = {_kept(name)} + ({loaded},)"
    yield f"{name} = {converted(f'{_kept(name)}[part]')}"


def filled(body: str, names: list[str]) -> list[str]:
    """The loop of the first pass over the parts that stay in registers, of tiles with these names."""
    return [f"# {_STAY}", *(f"{_kept(name)} = ()" for name in names), _each(body)]


def read(body: str) -> list[str]:
    """The loop of the second pass over the parts that stayed in registers."""
    return [f"# {_LAST}", _each(body)]


def _each(body: str) -> str:
    return "for part in gl.static_range(IN_REGISTERS):\n" + text.block(body)


def _kept(name: str) -> str:
    return f"{name}_kept"
