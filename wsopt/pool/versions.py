"""Versions of Python, of packages and of this package's files: workers on other machines have to have the same."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping

from wsopt import __version__
from wsopt.cache import source_files

Versions = Mapping[str, str]
_PACKAGES = ("ortools", "triton", "numpy", "networkx")
_MACHINES = "machine/data/"


@functools.cache
def versions_here() -> Versions:
    """What this process has, by name: versions, and digests of this package's files."""
    found = {"Python": ".".join(platform.python_version_tuple()[:2]), "wsopt": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    machines, code = hashlib.sha256(), hashlib.sha256()
    for name, path in source_files():
        text = path.read_bytes()
        digest = machines if name.startswith(_MACHINES) else code
        digest.update(f"{name}:{len(text)};".encode() + text)
    return {
        **found,
        "wsopt's machine files": machines.hexdigest()[:12],
        "wsopt's code": code.hexdigest()[:12],
    }


def differences(theirs: Versions, ours: Versions) -> list[str]:
    """What is not the same there as here, in words."""
    return [
        f"{name} is {theirs.get(name, 'missing')} there and {here} here"
        for name, here in ours.items()
        if theirs.get(name) != here
    ]
