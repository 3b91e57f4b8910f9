"""The pieces of a body with commas between them."""

from __future__ import annotations

from collections.abc import Sequence

# Below it, joining a piece costs less than handing it around does.
_SMALL_BYTES = 16 * 1024
_SAMPLE = 64


def separated(pieces: Sequence[bytes]) -> list[bytes]:
    """JSON values, or runs of them, with commas between; small ones as one piece.

    Whoever handles a body pays for each of its pieces (its length is summed, more than once; it is joined or cut again
    for the socket), so that a conversation of a thousand short turns would cost more than one of ten long ones. Long
    pieces are not copied here.
    """
    if len(pieces) < 2:
        return list(pieces)
    sample = pieces[:: 1 + len(pieces) // _SAMPLE]  # to measure all of a thousand costs more than to join them
    if sum(map(len, sample)) <= _SMALL_BYTES * len(sample):
        return [b",".join(pieces)]
    apart = [b","] * (2 * len(pieces) - 1)
    apart[::2] = pieces
    return apart
