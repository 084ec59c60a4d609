"""A power cap's bit that lingers after a load, or shows before utilisation does, is a limit; one that never clears is not."""

from escherlib.hardware.telemetry.samples import Series, idle_mask


def test_only_a_bit_that_is_always_set_at_idle_is_ignored():
    at = (1, 2, 3, 4)
    used = Series(at, (0, 0, 0, 90))
    assert idle_mask({"limit_mask": Series(at, (8, 12, 12, 12)), "utilisation_pct": used}) == 8
    assert idle_mask({"limit_mask": Series(at, (0, 4, 4, 4)), "utilisation_pct": used}) == 0
    assert idle_mask({"limit_mask": Series(at, (4, 4, 4, 4)), "utilisation_pct": used}) == 4
