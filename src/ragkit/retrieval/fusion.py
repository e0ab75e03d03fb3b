"""Reciprocal rank fusion of ranked lists. Scores of the lists are never compared, only their ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TypeVar

from ragkit.errors import InputError

Id = TypeVar("Id", str, int)


def fuse(rankings: Sequence[Sequence[Id]], c: float = 60) -> list[tuple[Id, float]]:
    """Fuse ranked lists of ids: score(d) = sum over lists of 1 / (c + rank of d), ranks from 1.

    An id that a list repeats counts once there, at its first place. Fused scores tie by construction (two lists that swap
    two ids), so equal scores are ordered by id.

    Raises
    ------
    InputError
        `c` is not a finite number above -1 (a rank's weight would be infinite or change sign), or a ranking is a string.

    References
    ----------
    Cormack, Clarke and Buettcher (2009), "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR.
    """
    if isinstance(c, bool) or not isinstance(c, Real) or not math.isfinite(c) or c <= -1:
        raise InputError(f"fuse: c is {c!r}: give a finite number above -1, 60 is usual")
    if isinstance(rankings, str) or any(isinstance(ranking, str) for ranking in rankings):
        raise InputError("fuse: a ranking is a string: give lists of ids, such as [['a', 'b'], ['b']]")
    shares: dict[Id, list[float]] = {}
    for ranking in rankings:
        for rank, key in enumerate(dict.fromkeys(ranking), start=1):
            shares.setdefault(key, []).append(1.0 / (c + rank))
    # fsum is exact, so that a score does not depend on the order in which lists are given.
    scored = [(key, math.fsum(parts)) for key, parts in shares.items()]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))
