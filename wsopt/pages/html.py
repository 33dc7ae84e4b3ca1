"""Pages as text: templates, styles and scripts put together into one file that asks for nothing else.

A page has its data as one block of JSON. Its security policy lets nothing in but its own script and style, by their
digests; texts from a graph are escaped, and scripts set them as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from markupsafe import Markup
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String

from wsopt import __version__
from wsopt.emit.text import template_folder

_FOLDER = "pages"
_STYLES = ("page.css",)
_SCRIPTS = ("dom.js", "timeline.js", "charts.js", "search.js")


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """The templates of pages: every text is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder() / _FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(template: str, script: str, data: Mapping[str, Any], **context: Any) -> str:
    """A page from its template and its own script, with `data` as JSON and these further names."""
    styles, scripts = _together(_STYLES), _together((*_SCRIPTS, script))
    return (
        _environment()
        .get_template(template)
        .render(
            data=Markup(json_text(data)),
            style=Markup(styles),
            script=Markup(scripts),
            style_digest=digest(styles),
            script_digest=digest(scripts),
            version=__version__,
            **context,
        )
    )


def _together(names: Iterable[str]) -> str:
    folder = template_folder() / _FOLDER
    return "\n" + "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def digest(text: str) -> str:
    """A script's or a style's digest as a security policy names it (CSP 3, section 2.3.1)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def json_text(data: Mapping[str, Any]) -> str:
    """JSON that can stand in an element: no character of it begins a tag, a comment or an entity."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


_MARKED = {Comment: "c", String.Doc: "c", Keyword: "k", Name.Function: "f", Number: "m", String: "s"}
"""Kinds of words that a page marks in a source, with their classes; marks on all would be three times the source."""


def source_lines(source: str) -> list[Markup]:
    """The lines of a kernel's source with some of its words marked by kind; every character of it is escaped."""
    lines = [Markup("")]
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        name = next((mark for marked, mark in _MARKED.items() if kind in marked), "")
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append(Markup(""))
            lines[-1] += Markup('<span class="{}">{}</span>').format(name, part) if name and part else part
    return lines if lines[-1] else lines[:-1]
