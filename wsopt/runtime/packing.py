"""Constants that a kernel wants laid out anew: done once for each tensor, before the first launch that reads it.

The text of this file below its imports stands in every emitted kernel.py that reads packed constants, after that of
launcher.py; `PACKED` says which of its inputs are packed, and how. Extents stay what they are.

Fragments are words of 16 bits in the order in which the threads that hold a row of a product's operand read them. Of
`four_bits` element 32 j + 16 y + 8 x + 2 t + e of 128 is number 2 x + y, from the lowest bits up, of word
8 t + 2 j + e; of `eight_bits` element 16 j + 8 s + 2 t + e of 64 is number s of that word. What is `turned` has its
columns one behind the other; what is `padded` has rows that begin at multiples of 16 bytes, and what is `spread` such
elements.
"""

import weakref
from typing import Any

import torch

from wsopt.runtime.launcher import _LOCK, _expect, _keep

PACKED: dict[str, str] = {}  # of a kernel that has none

# For fragments: elements that are packed together, their dimensions as they lie in the graph, the order of those in
# fragments; then the dimensions there, and the way back.
_ORDERS = {
    "four_bits": (128, (4, 2, 2, 4, 2), (0, 1, 5, 2, 6, 4, 3), (4, 4, 2, 2, 2), (0, 1, 3, 6, 5, 2, 4)),
    "eight_bits": (64, (4, 2, 4, 2), (0, 1, 4, 2, 5, 3), (4, 4, 2, 2), (0, 1, 3, 5, 2, 4)),
}
_MOST_COPIES = 1024
_COPIES: dict[Any, Any] = {}  # by what was packed: that tensor, which keeps its memory its own, and the copy


def _words(tensor: Any) -> Any:
    """A tensor's bytes as words of 16 bits; `base` is the tensor."""
    words = tensor.view(torch.int16)
    words.base = tensor
    return words


def _reordered(tensor: Any, how: str, back: bool) -> Any:
    """The rows of a matrix in the order of fragments, or back in that of the graph."""
    unit, *ways = _ORDERS[how]
    dims, order = ways[2:] if back else ways[:2]
    rows, length = tensor.shape
    _expect(length % unit == 0, f"rows of {length} elements have no whole fragments of {unit}")
    return tensor.reshape(rows, length // unit, *dims).permute(order).contiguous().reshape(rows, length)


def _laid_out(tensor: Any, how: str, back: bool = False) -> Any:
    """A tensor as a kernel reads it, or such a one as the graph has it."""
    if back and how in ("turned", "padded", "lines", "spread"):
        return tensor.contiguous()
    if how == "turned":
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if how in ("padded", "lines", "spread"):
        (rows, length), near = tensor.shape, 16 // tensor.element_size() if how == "spread" else 1
        whole = 128 if how == "lines" else 16
        pitch = -(-length * near * tensor.element_size() // whole) * whole // tensor.element_size()
        apart = torch.empty_strided((rows, length), (pitch, near), dtype=tensor.dtype, device=tensor.device)
        return apart.copy_(tensor)
    if how == "eight_bits":
        return _reordered(tensor, how, back)
    rows, length = tensor.shape
    numbers = torch.stack([tensor & 15, tensor >> 4], -1).reshape(rows, 2 * length)
    low, high = _reordered(numbers, how, back).reshape(rows, length, 2).unbind(-1)
    return low | (high << 4)


def _version(tensor: Any) -> int:
    """How often a tensor was written to, as far as torch tells."""
    return 0 if tensor.is_inference() else tensor._version


def _packed(name: str, tensor: Any) -> Any:
    """An input as the kernel reads it: packed now, if it was not since this tensor was last written to."""
    how = PACKED[name]
    mark = getattr(tensor, "wsopt_packing", None)
    if mark is not None:
        found, source, version = mark
        _expect(found == how, f"tensor {name} is packed as {found}, and this kernel reads it as {how}")
        own = source()
        stale = own is not None and _version(own) != version
        _expect(not stale, f"tensor {name} was written to since it was packed: call prepack() again")
        return tensor
    key = (how, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, str(tensor.device))
    known = _COPIES.get(key)
    if known is None or known[1] != _version(tensor):
        with _LOCK:
            _keep(_COPIES, _MOST_COPIES, key, (tensor, _version(tensor), _copy(name, tensor, how)))
    return _COPIES[key][2]


def _copy(name: str, tensor: Any, how: str) -> Any:
    """A packed copy of a tensor, which was unpacked again and compared with it."""
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"tensor {name} has not been packed yet, and is not while a CUDA graph is captured: call run(), "
            "prepare() or prepack() once with it before the capture"
        )
    _expect(len(tensor.shape) == 2, f"tensor {name} has {len(tensor.shape)} dimensions, expected 2")
    packed = _laid_out(tensor.detach(), how)
    again = _laid_out(packed, how, back=True)
    same = torch.equal(again.view(torch.uint8), tensor.detach().contiguous().view(torch.uint8))
    if not same:
        raise RuntimeError(
            f"tensor {name} is another one when it has been packed as {how} and unpacked again"
        )
    packed.wsopt_packing = (how, weakref.ref(tensor), _version(tensor))
    return packed


def prepack(**tensors: Any) -> dict[str, Any]:
    """The tensors by name, with those that the kernel reads packed as it reads them; `run` takes them so.

    Inputs that are not packed are by `run`, which keeps them and the copy. A packed copy is refused when the tensor
    that it was made of has been written to.
    """
    return {name: _packed(name, one) if name in PACKED else one for name, one in tensors.items()}


def packs(launcher: Any) -> Any:
    """A launcher class that is handed packed tensors, whatever it is called with."""

    class PackingLauncher(launcher):  # type: ignore[misc]
        def run(self, tensors: dict[str, Any], out: Any) -> Any:
            return super().run(prepack(**tensors), out)

        def prepare(self, tensors: dict[str, Any], outputs: dict[str, Any] | None) -> Any:
            return super().prepare(prepack(**tensors), outputs)

    return PackingLauncher
