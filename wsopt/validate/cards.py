"""The same problems compiled for two cards, side by side: `python -m wsopt.validate.cards A/ B/ -o FILE`.

Each folder has builds of one card. The file has of every problem that both have what its page shows: roles, tile,
rings, the share of the roofline. Nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wsopt.errors import InputError, Problem
from wsopt.exit_status import with_exit_status
from wsopt.machine.load import load_machine
from wsopt.schedule.types import PartitionRole
from wsopt.targets import Operands
from wsopt.validate.files import load_json, write_json

FORMAT = "wsopt.cards/1"


@dataclass(frozen=True, slots=True)
class Side:
    """A problem's schedule on one card: its predicted microseconds and the roofline's, the number and the warps of
    each role, the tile of a block, slots of all rings, cycles of an interval, waves of tiles; the `columns` of tensor
    memory that it takes for so many `sets` of sums, over how many blocks `splits` its sums are split, and how many
    `products` its loop has. Whether it `promotes` partial sums, or computes `beside` products. In a loop that
    computes values between products: how many of eight exp2 go by a polynomial, and the memory of `operands`. Whether
    a tile is of `paired` blocks, and rows' sums are rescaled where they must be (`lazy`).
    """

    microseconds: float
    roofline_us: float
    roles: tuple[tuple[str, int, int], ...]
    tile: tuple[int, int, int]
    slots: int
    ii: int
    waves: int
    sets: int
    columns: int
    splits: int
    swap: bool
    promotes: bool
    beside: bool
    products: int
    exp2_eighths: int = 0
    operands: str = Operands.REGISTERS
    paired: bool = False
    lazy: bool = False

    @property
    def consumers(self) -> int:
        """Consumers of a block."""
        return next(count for role, count, _ in self.roles if role == PartitionRole.CONSUMER)

    @property
    def described(self) -> str:
        """Its roles: how many there are of each, and their warps."""
        return ", ".join(f"{count} x {name.replace('_', ' ')} ({warps})" for name, count, warps in self.roles)


@dataclass(frozen=True, slots=True)
class Card:
    """A card's figures for an SM: multiply-adds of bf16 a cycle, exp2 a cycle, bytes from L2 a cycle, GB/s of device
    memory, and columns of tensor memory.
    """

    name: str
    multiply_adds: float
    exp2: float
    l2_bytes: float
    memory_gbs: float
    columns: int


@dataclass(frozen=True, slots=True)
class Problems:
    """The cards, and of each problem both sides."""

    cards: tuple[Card, Card]
    rows: tuple[tuple[str, Side, Side], ...]


def card_of(name: str) -> Card:
    """The figures of a card, at its sustained clock. InputError for a name that no card has."""
    machine = load_machine(name)
    cycles = machine.sm_count * machine.sustained_clock_mhz * 1e6
    return Card(
        name,
        machine.tensor_rate("bf16"),
        machine.scalar["exp2"],
        round(machine.l2_bandwidth / cycles, 1),
        round(machine.dram_sustained_bandwidth / machine.sm_count / 1e9, 1),
        machine.tensor_memory_columns,
    )


def side_of(folder: Path) -> tuple[str, Side]:
    """The card of a build, and what is told of its schedule. InputError for a folder that is no build of a kernel."""
    path = folder / "schedule.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return str(data["schedule"]["machine"]), _side(data)
    except OSError as error:
        told = f"cannot be read: {error.strerror or error}"
    except (ValueError, KeyError, TypeError, IndexError) as error:
        told = f"is no build of one kernel: {type(error).__name__}: {error}"
    raise InputError(str(path), [Problem("", told)])


def _side(data: Mapping[str, Any]) -> Side:
    schedule, kernel = data["schedule"], data["summary"]["kernels"][0]
    s, made, partitions = schedule["structure"], schedule["prediction"], schedule["partitions"]
    roles = Counter((one["role"], one["warps"]) for one in partitions)
    at_once = s["consumers"] if s["sharing"] == "cooperative" else 1
    ops = {one["op"].split("@")[0] for one in schedule["placed"]}
    kinds = {op.split(":")[0] for op in ops}
    return Side(
        round(made["microseconds"], 2),
        round(made["roofline_us"], 2),
        tuple((role, count, warps) for (role, warps), count in roles.items()),
        (s["rows"] * at_once * (2 if s["paired"] else 1), s["columns"], s["depth"]),
        sum(depth for _, depth in schedule["rings"]),
        schedule["ii"],
        made["waves"],
        schedule["buffers"]["sums"],
        kernel["ptxas"]["tensor_columns"],
        s["splits"],
        s["swap"],
        "add" in kinds,
        "beside" in kinds,
        sum(op.startswith("mma:") for op in ops),
        s["exp2_eighths"],
        s["operands"],
        s["paired"],
        s["lazy"],
    )


def compared(first: Path, second: Path) -> Problems:
    """The problems of which both folders have a build. InputError where there is none, or a folder has two cards."""
    names = sorted({one.parent.name for one in first.glob("*/schedule.json")})
    both = [name for name in names if (second / name / "schedule.json").is_file()]
    found = [(name, side_of(first / name), side_of(second / name)) for name in both]
    cards = {(one[0], other[0]) for _, one, other in found}
    if len(cards) != 1:
        told = f"builds of one card each are wanted; found {sorted(cards) or 'no build that both have'}"
        raise InputError(f"{first}, {second}", [Problem("", told)])
    first_card, second_card = map(card_of, cards.pop())
    return Problems((first_card, second_card), tuple((name, one[1], other[1]) for name, one, other in found))


def load_cards(path: Path) -> Problems:
    """The problems of a file. InputError if it is none."""
    return load_json(path, FORMAT, _problems)


def _problems(data: Mapping[str, Any]) -> Problems:
    first, second = (Card(**card) for card in data["cards"])
    rows = tuple((row["name"], _read(row["first"]), _read(row["second"])) for row in data["rows"])
    return Problems((first, second), rows)


def _read(data: Mapping[str, Any]) -> Side:
    roles = tuple((str(name), int(count), int(warps)) for name, count, warps in data["roles"])
    rows, columns, depth = data["tile"]
    return Side(**(dict(data) | {"roles": roles, "tile": (rows, columns, depth)}))


def write_cards(path: Path, found: Problems) -> None:
    """Write the problems to a file. InputError if that cannot be."""
    rows = [{"name": n, "first": asdict(one), "second": asdict(other)} for n, one, other in found.rows]
    write_json(path, {"format": FORMAT, "cards": list(map(asdict, found.cards)), "rows": rows})


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.cards", description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    write_cards(chosen.output, compared(chosen.first, chosen.second))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
