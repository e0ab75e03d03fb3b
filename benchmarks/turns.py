"""Wall times that can be compared: all ways take turns in one process, and ratios are formed within a turn.

Other work on the machine slows neighbours in time alike, so a ratio within a turn is steadier than either time. It never judges.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def take_turns(ways: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Wall seconds of each way in each turn, after one turn that only warms up; every turn begins with the next way."""
    names = list(ways)
    for name in names:
        ways[name]()
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(seconds(ways[name]))
    return taken


def milliseconds(taken: Mapping[str, Sequence[float]], calls: int) -> dict[str, float]:
    """Median over turns of the milliseconds of one call, where a turn makes `calls` of them."""
    return {name: 1000 * statistics.median(values) / calls for name, values in taken.items()}


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Ratio of two ways' times within each turn: its median, smallest and largest over the turns."""
    found = [a / b for a, b in zip(above, below, strict=True)]
    return {"median": statistics.median(found), "low": min(found), "high": max(found)}


def shown(value: Mapping[str, Any]) -> str:
    """A ratio as text."""
    return f"{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
