"""The roofline: its corner, its two sides, and that a time floor and a rate are the same statement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escherlib.accounting import roofline

RATE = st.floats(0.1, 1e4)
WORK = st.integers(1, 10**15)


def test_values_by_hand():
    assert roofline.ridge(1000, 5000) == 200
    assert roofline.attainable(100, 1000, 5000) == 500
    assert roofline.attainable(400, 1000, 5000) == 1000
    assert roofline.floor_s(2e12, 1e9, 1000, 5000) == pytest.approx(2e-3)
    assert roofline.floor_s(1e9, 1e10, 1000, 5000) == pytest.approx(2e-3)
    assert roofline.bound(2e12, 1e9, 1000, 5000) == "compute"
    assert roofline.bound(0, 1, 1000, 5000) == "memory"


@given(RATE, RATE)
def test_both_roofs_meet_at_the_ridge(peak, bandwidth):
    corner = roofline.ridge(peak, bandwidth)
    assert roofline.attainable(corner, peak, bandwidth) == pytest.approx(peak)
    assert roofline.attainable(corner / 2, peak, bandwidth) == pytest.approx(peak / 2)
    assert roofline.attainable(corner * 2, peak, bandwidth) == peak


@given(WORK, WORK, RATE, RATE)
def test_work_over_its_floor_is_the_attainable_rate(flop, nbytes, peak, bandwidth):
    floor = roofline.floor_s(flop, nbytes, peak, bandwidth)
    assert flop / floor / 1e12 == pytest.approx(roofline.attainable(flop / nbytes, peak, bandwidth))
    side = "compute" if flop / nbytes >= roofline.ridge(peak, bandwidth) else "memory"
    if flop / nbytes != pytest.approx(roofline.ridge(peak, bandwidth)):
        assert roofline.bound(flop, nbytes, peak, bandwidth) == side


@given(WORK, WORK, RATE, RATE, st.floats(1.01, 10))
def test_a_faster_machine_is_never_slower(flop, nbytes, peak, bandwidth, factor):
    floor = roofline.floor_s(flop, nbytes, peak, bandwidth)
    assert roofline.floor_s(flop, nbytes, peak * factor, bandwidth) <= floor
    assert roofline.floor_s(flop, nbytes, peak, bandwidth * factor) <= floor
    assert roofline.floor_s(flop, nbytes, peak * factor, bandwidth * factor) == pytest.approx(floor / factor)
