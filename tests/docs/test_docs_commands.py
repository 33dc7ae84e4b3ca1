"""The README's table of commands has commands and options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from wsopt.cli import app

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `wsopt (.+?)` \|", README.partition("## Commands")[2], re.MULTILINE)


def commands() -> dict[str, Any]:
    """The command line's commands by name."""
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


@pytest.mark.parametrize("row", ROWS)
def test_options_are_the_commands_own(row: str) -> None:
    names = row.split("\\|") if "\\| ops" in row else [row.split()[0]]
    for name in names:
        command = commands()[name.strip()]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", row)) <= known


def test_every_command_is_in_the_table() -> None:
    told = {
        word
        for row in ROWS
        for word in (row.replace("\\|", " ").split() if "ops" in row else row.split()[:1])
    }
    assert set(commands()) <= told
