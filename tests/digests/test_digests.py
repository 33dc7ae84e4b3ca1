"""The machine code of every problem, golden and graph of the truth set is what it was, from recorded schedules."""

from __future__ import annotations

import functools

import pytest
import replay

COMPILED_ANYWAY = tuple(replay.names()[:: 3 * replay.CHUNK])


@functools.cache
def compiler() -> tuple[str, str] | None:
    """A Python with a release of Triton that digests are kept of, the oldest first, and that release."""
    kept = replay.known()
    found = [(python, replay.release(python)) for python in reversed(replay.pythons())]
    return next((pair for pair in found if pair[1] in kept), None)


@functools.cache
def digests(python: str, names: tuple[str, ...]) -> dict[str, str]:
    """Digests of some kernels as a Python's Triton compiles them."""
    return dict(zip(names, replay.digests(python, map(replay.source_of, names)), strict=True))


def chunk_of(name: str) -> tuple[str, ...]:
    """The kernels compiled in one process with a kernel: those that are compiled anyway, or itself."""
    return COMPILED_ANYWAY if name in COMPILED_ANYWAY else (name,)


def test_every_kernel_has_a_digest() -> None:
    kept = replay.known()
    assert len(replay.names()) >= 45
    assert all(sorted(digests) == replay.names() for digests in kept.values())
    assert sorted(replay.kernels()) == replay.names() == sorted(replay.texts())


@pytest.mark.compiler
@pytest.mark.parametrize("name", replay.names())
def test_the_machine_code_is_what_it_was(name: str) -> None:
    found = compiler()
    if found is None:
        pytest.skip(
            f"digests are kept of Triton {', '.join(replay.known())}; WSOPT_TEST_TRITON_OTHER may name one"
        )
    python, release = found
    if replay.texts()[name] == replay.text_digest(name) and name not in COMPILED_ANYWAY:
        return  # one release makes one machine code of one program: those compiled anyway show that
    assert digests(python, chunk_of(name))[name] == replay.known()[release][name], (
        f"the emitter makes other machine code of {name}; if that is meant, time the kernel beside the former one, "
        "and run `python tests/digests/replay.py renew`"
    )
