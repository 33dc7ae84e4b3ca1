"""Why a part of an FX graph is left to the usual way."""

from __future__ import annotations


class Untaken(Exception):
    """A part of an FX graph that our graphs do not say; the text is the reason that a person reads."""
