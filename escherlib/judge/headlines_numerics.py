"""Family 9 in its last words: the worst error, whether bounds bite and results repeat, what special values become."""

from escherlib.judge.headlines_compute import worst_numerics
from escherlib.judge.numerics import ERRORS, SPECIAL, SUMS, broken_cases, repeat_words, unsteady, wrong_kernels
from escherlib.judge.rows import STABILITY, number, percent
from escherlib.parameters import load_scoring

LEANING = 4  # standard errors of a mean that chance alone hardly reaches in any of a few dozen rows


def numerical_stability(results):
    """Worst scaled error, determinism, wrong kernels caught, special values."""
    rows, special = results.rows(STABILITY, ERRORS), results.rows(STABILITY, SPECIAL)
    worst = worst_numerics(results, STABILITY, ERRORS)
    wrong = wrong_kernels(rows, load_scoring().sc6)
    caught = sum(entry["caught"] for entry in wrong)
    repeats = repeat_words(rows)
    headline = {
        "worst_scaled_error": (worst["error"] if worst else None, ""),
        "worst_scaled_error_row": (_case(worst["row"]) if worst else None, ""),
        "deterministic": (("no" if unsteady(rows) else "yes") if repeats else None, ""),
        "worst_scaled_error_of_bound": (worst["error"] / worst["bound"] if worst else None, ""),
        "wrong_kernels_caught": (f"{caught} of {len(wrong)}" if wrong else None, ""),
        "special_values": (_special_word(special), ""),
    }
    findings = [
        *_worst_sentences(rows, worst),
        *_bite_sentences(wrong),
        *([f"Repeated runs: {repeats}."] if repeats else []),
        *_few_row_sentences(rows),
        *_sum_sentences(results.rows(STABILITY, SUMS)),
        *_special_sentences(special),
    ]
    return headline, findings


def _case(name):
    """`error/bf16/4096` → `bf16, K 4096`."""
    _, dtype, k = name.split("/")
    return f"{dtype}, K {k}"


def _worst_sentences(rows, worst):
    if worst is None:
        return ["No error was measured."]
    inside = "inside" if worst.get("ok") else "OUTSIDE"
    error = f"scaled error {number(worst['error'])} of {number(worst['bound'])}"
    first = f"The row nearest its bound is {_case(worst['row'])}: {error}, {inside}."
    leaning = [row for row in rows if row.ok and abs(_lean(row) or 0) > LEANING]
    if not leaning:
        return [first, f"No row's errors lean to one side by more than {LEANING} standard errors of their mean."]
    top = max(leaning, key=lambda row: abs(_lean(row)))
    mean = top.get("bias", "outward", "mean")
    side = "towards zero, as truncation does" if mean < 0 else "away from zero"
    most = f"most in {_case(top.name)}: {abs(mean):.2g} ulp of a typical result"
    return [first, f"Errors lean {side} in {len(leaning)} of {len(rows)} rows, {most}."]


def _lean(row):
    """Mean outward error in units of its standard error, or None."""
    mean, spread = row.get("bias", "outward", "mean"), row.get("bias", "outward", "standard_error")
    return mean / spread if mean is not None and spread else None


def _bite_sentences(wrong):
    if not wrong:
        return []
    missed = [f"{entry['kernel']} in {_case(entry['row'])}" for entry in wrong if not entry["caught"]]
    if missed:
        return [f"The bound is too loose for {', '.join(missed)}: wrong products pass it."]
    finite = [entry for entry in wrong if entry["error"] is not None]
    weakest = min(finite, key=lambda entry: entry["error"] / entry["bound"], default=None)
    told = f"The bounds bite: all {len(wrong)} products that are wrong on purpose are turned away"
    if weakest is None:
        return [told + "."]
    times = f"{number(weakest['error'] / weakest['bound'])} × its bound"
    return [f"{told}; the nearest miss is {weakest['kernel'].replace('_', ' ')} in {_case(weakest['row'])} with {times}."]


def _few_row_sentences(rows):
    changed = [row.name.split("/")[1] for row in rows if row.ok and row.get("repeat", "few_rows", "bitwise_equal") is False]
    if not changed:
        return []
    return [f"Results depend on the batch in {', '.join(dict.fromkeys(changed))}: a row among few others has other bits than among many."]


def _sum_sentences(rows):
    """What partial sums in the output's format cost, and what a switch changed."""
    outside, moved = [], []
    for row in rows:
        others = row.get("variants", default=[])[1:]
        chunked = [v for v in others if not v["within"] and v["variant"].startswith("K in")]
        if chunked:
            top = max(chunked, key=lambda v: v["max"] or 0)
            outside.append(f"{row.get('dtype')} ({number(top['max'])} of {number(top['bound'])})")
        switched = [v for v in others if v.get("switch") and v["changed"] > 0]
        moved += [f"{v['variant']} changes {percent(v['changed'])} of the {row.get('dtype')} results" for v in switched]
    found = [f"Partial sums that pass through the output's format leave the bound in {', '.join(outside)}."] if outside else []
    return [*found, *([f"Switches: {'; '.join(moved)}."] if moved else [])]


def _special_word(rows):
    if not any(row.ok for row in rows):
        return None
    return "not as IEEE" if broken_cases(rows) else "as IEEE"


def _special_sentences(rows):
    broken = [f"{entry['row'].split('/')[1]}: {entry['case']}: {entry['found']}" for entry in broken_cases(rows)]
    found = [f"Special values go wrong: {'; '.join(broken)}."] if broken else []
    flushed = [
        f"{row.get('dtype')} ({case['case'].removeprefix('subnormal ')})"
        for row in rows
        if row.ok
        for case in row.get("cases", default=[])
        if case["found"] == "flushed to zero"
    ]
    if flushed:
        return [*found, f"Subnormal numbers are flushed to zero in {', '.join(flushed)}."]
    return [*found, *(["Subnormal numbers are kept in every format measured."] if any(row.ok for row in rows) else [])]


__all__ = ["numerical_stability"]
