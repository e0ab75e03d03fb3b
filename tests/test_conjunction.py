"""Close approaches: a published one to two metres, a brute-force scan, the triangle inequality, elements that are refused."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sgp4.conveniences import jday_datetime

from ragkit.conjunction import close_approaches, read_elements
from ragkit.errors import InputError

# The last elements before the collision of 10 February 2009.
IRIDIUM_33 = (
    "1 24946U 97051C   09040.78448243 +.00000153 +00000-0 +47668-4 0  9994",
    "2 24946 086.3994 121.7028 0002288 085.1644 274.9812 14.34219863597336",
)
COSMOS_2251 = (
    "1 22675U 93036A   09040.49834364 -.00000001  00000-0  95251-5 0  9996",
    "2 22675 074.0355 019.4646 0016027 098.7014 261.5952 14.31135643817415",
)
START = datetime(2009, 2, 10, tzinfo=UTC)


def closest(lead_km=(0.0, 0.0), swapped=False, hours=24.0):
    pair = [read_elements(*IRIDIUM_33), read_elements(*COSMOS_2251)]
    found = close_approaches(*(reversed(pair) if swapped else pair), START, hours, lead_km=lead_km)
    return min(found, key=lambda approach: approach.distance_km)


def test_published_miss_distance_of_iridium_33_and_cosmos_2251():
    # Bennett et al.: 698.72 metres at 16:55:59.80 for SGP4; the satellites met at some 11.7 km/s.
    nearest = closest()
    assert nearest.distance_km == pytest.approx(0.69872, abs=0.002)
    assert abs(nearest.time - datetime(2009, 2, 10, 16, 55, 59, 800000, UTC)) < timedelta(milliseconds=20)
    assert nearest.speed_km_s == pytest.approx(11.7, abs=0.1)


def test_two_minima_a_revolution_each_below_its_neighbourhood():
    first, second = read_elements(*IRIDIUM_33), read_elements(*COSMOS_2251)
    found = close_approaches(first, second, START, 24.0)
    assert 27 <= len(found) <= 29  # 14.3 revolutions a day
    assert found == sorted(found, key=lambda approach: approach.time)
    for approach in found:
        day, fraction = jday_datetime(approach.time)
        around = fraction + np.linspace(-20, 20, 4001) / 86400
        days = np.full(len(around), day)
        apart = np.linalg.norm(first.sgp4_array(days, around)[1] - second.sgp4_array(days, around)[1], axis=1)
        assert approach.distance_km == pytest.approx(apart.min(), abs=1e-3)


def test_order_of_the_objects_makes_no_difference():
    assert closest(swapped=True).distance_km == pytest.approx(closest().distance_km, abs=1e-9)


@settings(max_examples=12, deadline=None)
@given(lead=st.floats(-3, 3), late=st.floats(-3, 3))
def test_a_shift_moves_the_minimum_by_no_more_than_itself(lead, late):
    assert abs(closest((lead, late), hours=18).distance_km - closest(hours=18).distance_km) <= abs(lead) + abs(late) + 1e-6


@pytest.mark.parametrize("line", [0, 1])
def test_a_wrong_digit_is_refused(line):
    lines = list(IRIDIUM_33)
    lines[line] = lines[line][:22] + str((int(lines[line][22]) + 1) % 10) + lines[line][23:]
    with pytest.raises(InputError, match="damaged elements"):
        read_elements(*lines)


@pytest.mark.parametrize("lines", [IRIDIUM_33[::-1], (IRIDIUM_33[0], COSMOS_2251[1]), ("", ""), ("1 24946", "2 24946")])
def test_lines_that_are_no_pair_are_refused(lines):
    with pytest.raises(InputError):
        read_elements(*lines)


@pytest.mark.parametrize(
    ("start", "hours", "step", "lead"),
    [
        (datetime(2009, 2, 10), 1, 30, (0, 0)),
        (START, 0, 30, (0, 0)),
        (START, float("nan"), 30, (0, 0)),
        (START, 1, -1, (0, 0)),
        (START, 1, 30, (float("inf"), 0)),
    ],
)
def test_wrong_spans_are_refused(start, hours, step, lead):
    pair = read_elements(*IRIDIUM_33), read_elements(*COSMOS_2251)
    with pytest.raises(InputError):
        close_approaches(*pair, start, hours, step, lead)


def test_elements_of_a_decayed_object_are_refused():
    # An upper stage in its last days, from the verification set of Vallado et al.
    stage = read_elements(
        "1 28350U 04020A   06167.21788666  .16154492  76267-5  18678-3 0  8894",
        "2 28350  64.9977 345.6130 0024870 260.7578  99.9590 16.47856722116490",
    )
    with pytest.raises(InputError, match="28350"):
        close_approaches(stage, read_elements(*COSMOS_2251), datetime(2006, 6, 16, 6, tzinfo=UTC), 96)
