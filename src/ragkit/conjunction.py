"""Close approaches of two catalogued objects: published elements propagated with SGP4, and the smallest distances between them.

What comes out is deterministic and as good as the elements: a kilometre or two off near their epoch, more with every day.
It never fetches elements, and never says how probable a collision is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from sgp4.api import SGP4_ERRORS, Satrec
from sgp4.conveniences import jday_datetime
from sgp4.io import verify_checksum

from ragkit.errors import InputError

_DAY = 86400.0
_POINTS = 41  # of one refinement: each makes the bracket twenty times narrower
_ROUNDS = 6  # from a minute to about a microsecond, a centimetre of relative flight


@dataclass(frozen=True, slots=True)
class Approach:
    """One local minimum of the distance: when (UTC), how far apart (km), how fast past each other (km/s)."""

    time: datetime
    distance_km: float
    speed_km_s: float


def read_elements(line1: str, line2: str) -> Satrec:
    """Elements in the two-line format, checksums verified: a wrong digit is an error, not another orbit.

    Raises
    ------
    InputError
        A line is damaged, or the two belong to different objects.
    """
    if not (line1.startswith("1 ") and line2.startswith("2 ") and line1[2:7] == line2[2:7]):
        raise InputError(f"lines {line1[:8]!r} and {line2[:8]!r} are not line 1 and line 2 of one object")
    try:
        if {len(line1), len(line2)} != {69}:
            raise ValueError(f"lines of {len(line1)} and {len(line2)} columns instead of 69")
        verify_checksum(line1, line2)
        return Satrec.twoline2rv(line1, line2)
    except ValueError as error:
        raise InputError(f"damaged elements of {line1[2:7]}: {str(error).splitlines()[0]}; copy both lines again") from error


def close_approaches(
    first: Satrec,
    second: Satrec,
    start: datetime,
    hours: float,
    step_seconds: float = 30.0,
    lead_km: tuple[float, float] = (0.0, 0.0),
) -> list[Approach]:
    """All local minima of the distance between two objects in a span of time, in order of time.

    A scan in steps brackets each minimum, a grid that narrows around it refines it. A minimum at either end of the span is
    none: the distance may go on falling outside.

    Parameters
    ----------
    first, second : Satrec
        From `read_elements`; propagated as Vallado et al. (2006) describe.
    start : datetime
        An aware datetime.
    hours : float
        Length of the span.
    step_seconds : float
        Of the scan; far below the half period (some 50 minutes in a low orbit) that lies between two minima.
    lead_km : pair of float
        How far each object flies ahead of its elements along its velocity: an in-track error, to see what it does.

    Raises
    ------
    InputError
        A start without a time zone, a span or step that is no positive number, or elements that SGP4 cannot carry so far.
    """
    if start.tzinfo is None:
        raise InputError(f"start {start} has no time zone: give UTC")
    if not (0 < step_seconds < math.inf and 2 * step_seconds <= hours * 3600 < math.inf):
        raise InputError(f"a span of {hours} hours in steps of {step_seconds} s: give at least two steps")
    if not all(map(math.isfinite, lead_km)):
        raise InputError(f"lead_km is {lead_km}: give two finite numbers")
    times = np.arange(0.0, hours * 3600 + step_seconds / 2, step_seconds)
    distances, _ = _relative(first, second, start, times, lead_km)
    inner = distances[1:-1]
    lowest = 1 + np.flatnonzero((inner < distances[:-2]) & (inner <= distances[2:]))
    return [_refined(first, second, start, times[place], step_seconds, lead_km) for place in lowest]


def _refined(
    first: Satrec, second: Satrec, start: datetime, middle: float, reach: float, lead_km: tuple[float, float]
) -> Approach:
    for _ in range(_ROUNDS):
        times = np.linspace(middle - reach, middle + reach, _POINTS)
        distances, speeds = _relative(first, second, start, times, lead_km)
        place = int(np.argmin(distances))
        middle, reach = float(times[place]), 2 * reach / (_POINTS - 1)
    time = start.astimezone(UTC) + timedelta(seconds=middle)
    return Approach(time, float(distances[place]), float(speeds[place]))


def _relative(
    first: Satrec, second: Satrec, start: datetime, seconds: np.ndarray, lead_km: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Distance (km) and relative speed (km/s) at these seconds after the start; shapes (n,)."""
    states = [_states(satellite, start, seconds, lead) for satellite, lead in zip((first, second), lead_km, strict=True)]
    apart = states[0] - states[1]
    return np.linalg.norm(apart[:, :3], axis=1), np.linalg.norm(apart[:, 3:], axis=1)


def _states(satellite: Satrec, start: datetime, seconds: np.ndarray, lead_km: float) -> np.ndarray:
    """Position (km) and velocity (km/s) in SGP4's frame (TEME), shape (n, 6)."""
    day, fraction = jday_datetime(start.astimezone(UTC))
    errors, position, velocity = satellite.sgp4_array(np.full(len(seconds), day), fraction + seconds / _DAY)
    if errors.any():
        code = int(errors[errors > 0][0])
        raise InputError(f"SGP4 cannot carry object {satellite.satnum_str} so far ({SGP4_ERRORS[code]}): stay near its epoch")
    ahead = velocity * (lead_km / np.linalg.norm(velocity, axis=1, keepdims=True))
    return np.hstack([position + ahead, velocity])
