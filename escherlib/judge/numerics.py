"""SC-10: are the errors of family 9 within bound, does that bound tell wrong products, do special values hold?"""

from functools import partial

from escherlib.judge.criteria import Criterion, judge_numerics
from escherlib.judge.rows import STABILITY, not_measured, number

ERRORS, SPECIAL, SUMS = "error/", "special/", "sums/"


def stability(results, scoring):
    """SC-10: every row `error/…` within the bound of SC-6, every wrong kernel outside it, special values as IEEE says.

    Results that change from run to run are told, not judged: another order of summing is not a wrong one.
    """
    limits = scoring.sc10
    rule = (
        f"{limits.title}: every row within the bound of SC-6, products that are wrong on purpose outside it, "
        "special values as IEEE arithmetic has them"
    )
    rows, special = results.rows(STABILITY, ERRORS), results.rows(STABILITY, SPECIAL)
    judged = [judge_numerics(row, scoring.sc6) for row in rows if row.ok]
    wrong = wrong_kernels(rows, scoring.sc6)
    broken = broken_cases(special)
    unjudged = [f"{row.name} {row.status}: {row.reason or 'no reason given'}" for row in [*rows, *special] if not row.ok]
    details = {"rows": judged, "wrong_kernels": wrong, "special": broken, "not_judged": unjudged}
    row = partial(Criterion, "SC-10", limits.role, rule=rule, details=details)
    misses = [f"{entry['row']}: {entry['miss']}" for entry in judged if entry["miss"]]
    misses += [f"{entry['row']}: the bound lets {entry['kernel']} pass" for entry in wrong if not entry["caught"]]
    misses += [f"{entry['row']}: {entry['case']}: {entry['found']}, expected {entry['expected']}" for entry in broken]
    if misses:
        return row("FAIL", "; ".join(misses))
    if not judged:
        return row("SKIP", "; ".join(unjudged) or not_measured(results, STABILITY))
    top = max(judged, key=lambda entry: entry["error"] / entry["bound"])
    told = [f"{len(judged)} row{'s' * (len(judged) > 1)} within bound, the nearest {top['row']} with "
            f"{number(top['error'])} of {number(top['bound'])}"]  # fmt: skip
    told += [f"{len(wrong)} of {len(wrong)} wrong products outside it"] if wrong else []
    told += [repeat_words(rows)] if repeat_words(rows) else []
    told += ["not judged: " + "; ".join(unjudged)] if unjudged else []
    # a format that the device lacks is no gap, a row that broke is
    gap = any(not r.ok and r.status != "refused" for r in [*rows, *special])
    return row("PARTIAL_PASS" if gap else "PASS", "; ".join(told))


def wrong_kernels(rows, limits):
    """[{row, kernel, error, bound, times_emulation, caught}] of the products that are wrong on purpose, judged anew."""
    return [
        {"row": row.name, "kernel": name, **{key: entry.get(key) for key in ("error", "bound", "times_emulation")},
         "caught": is_caught(entry, limits)}
        for row in rows
        if row.ok
        for name, entry in row.get("wrong_kernels", default={}).items()
    ]  # fmt: skip


def is_caught(entry, limits):
    """Whether the rule of SC-6 turns a wrong product away: not finite, outside the bound, or far above the emulation."""
    error, times = entry.get("error"), entry.get("times_emulation")
    bound = min(entry.get("bound") or limits.error, limits.error_output_rounding)
    return error is None or error > bound or (times is not None and times > limits.times_emulation)


def broken_cases(rows):
    """[{row, case, expected, found}] of special values that came out otherwise than they should."""
    return [
        {"row": row.name, **{key: case.get(key) for key in ("case", "expected", "found")}}
        for row in rows
        if row.ok
        for case in row.get("cases", default=[])
        if not case.get("ok")
    ]


def unsteady(rows):
    """Names of rows whose repeated runs gave other bits."""
    return [row.name for row in rows if row.ok and row.get("repeat", "bitwise_equal") is False]


def repeat_words(rows):
    """Whether results repeat bit by bit, in words; empty where no row was repeated."""
    known = [row for row in rows if row.ok and row.get("repeat", "bitwise_equal") is not None]
    if not known:
        return ""
    changing = unsteady(known)
    return f"bits change from run to run in {', '.join(changing)}" if changing else "bitwise the same from run to run"
