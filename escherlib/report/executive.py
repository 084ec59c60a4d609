"""The one table that answers the question: per family the measured, its ceiling, and the verdict."""

from escherlib.judge.roofs import read_roofs
from escherlib.report.facts import (
    GIB,
    families,
    family_title,
    outcome,
    percent,
    percent_text,
    quantity,
    status_word,
)
from escherlib.report.table import Column, Table, words

SEVERITY = ("FAIL", "WARN", "WARN_CPU", "PARTIAL_PASS", "SKIP", "PASS")
CRITERIA = {
    "00_environment": (),
    "01_bf16_compute": ("SC-1", "SC-6"),
    "02_memory_bandwidth": ("SC-2",),
    "03_memory_capacity": ("SC-11",),
    "04_workload_ops": ("SC-3",),
    "05_e2e_mfu": ("SC-4",),
    "07_sustained": ("SC-7",),
    "09_numerical_stability": ("SC-10",),
    "10_fused_collectives": ("SC-12",),
    "11_validation": ("SC-9",),
}


def lines(results, score):
    """Rows of the table: family, quantity, measured, ceiling, share of the ceiling in %, verdict."""
    found = []
    for family in families(results):
        entry = outcome(results, family)
        made = READINGS.get(family, _headline)(results, family) if family in results.records else []
        if not made:
            reason = entry.get("reason") or "no record"
            made = [{"quantity": "–", "measured": reason, "ceiling": None, "share": None}]
        for index, row in enumerate(made):
            verdict = _verdict(family, entry, score) if index == 0 else ""
            found.append(
                {"family": family_title(results, family) if index == 0 else "", "verdict": verdict, **row}
            )
    return found


def _verdict(family, entry, score):
    if entry["status"] != "finished":
        return status_word(entry)
    statuses = {
        c.id: c.status
        for c in score.criteria
        if c.id in CRITERIA.get(family, ()) and c.reason != "not measured"
    }
    return min(statuses.values(), key=SEVERITY.index) if statuses else "measured"


def table(results, score):
    """The table itself."""
    columns = (
        Column("family", "family", words, text=True),
        Column("quantity", "quantity", words, text=True),
        Column("measured", "measured", lambda v: v or "–"),
        Column("ceiling", "ceiling", lambda v: v or "–"),
        Column("share", "% of ceiling", lambda v: percent_text(v)),
        Column("verdict", "verdict", words, text=True, pill=True),
    )
    note = "Ceilings: rated figures of the profile, or what this run showed possible; each row says which."
    return Table(
        "executive",
        f"{len(families(results))} families on {results.device.get('name')}",
        columns,
        tuple(lines(results, score)),
        note,
    )


def _row(quantity_, value, ceiling, unit, basis):
    told = f"{quantity(ceiling, unit)} {basis}" if ceiling else None
    return {
        "quantity": quantity_,
        "measured": quantity(value, unit),
        "ceiling": told,
        "share": percent(value, ceiling),
    }


def _environment(results, family):
    headline = results.summaries.get(family, {}).get("headline", {})
    warnings = (headline.get("warnings") or {}).get("value")
    said = (headline.get("ready") or {}).get("value") or "–"
    counted = f", {warnings} warning{'s' if warnings != 1 else ''}" if warnings else ""
    return [
        {
            "quantity": "pre-checks",
            "measured": said.replace(" with warnings", "") + counted,
            "ceiling": None,
            "share": None,
        }
    ]


def _compute(results, family):
    roofs = read_roofs(results)
    dtype, found = roofs.peak_dtype, []
    if roofs.peak_burst_tflops:
        found.append(
            _row(f"{dtype} GEMM peak, burst", roofs.peak_burst_tflops, roofs.rated_tflops, "TFLOP/s", "rated")
        )
    if roofs.peak_sustained_tflops:
        found.append(
            _row(
                f"{dtype} GEMM peak, sustained",
                roofs.peak_sustained_tflops,
                roofs.peak_burst_tflops,
                "TFLOP/s",
                "burst",
            )
        )
    return found


def _bandwidth(results, family):
    roofs = read_roofs(results)
    found = [
        _row(f"{op} plateau", roofs.plateaus[op].gb_s, roofs.rated_memory_gb_s, "GB/s", "rated")
        for op in ("copy", "add")
        if roofs.plateaus[op].gb_s
    ]
    if roofs.memory_gb_s:
        found.append(
            _row(f"roof ({roofs.memory.row})", roofs.memory_gb_s, roofs.rated_memory_gb_s, "GB/s", "rated")
        )
    return found


def _capacity(results, family):
    rows = [row for row in results.rows(family, "contiguous/") if row.ok and row.get("bytes")]
    best = max(rows, key=lambda row: row.get("bytes"), default=None)
    if best is None:
        return []
    return [
        _row(
            "largest tensor",
            best.get("bytes") / GIB,
            best.get("free_bytes") and best.get("free_bytes") / GIB,
            "GiB",
            "free",
        )
    ]


def _headline(results, family):
    """Any other family: its first figures as its own summary words them."""
    headline = results.summaries.get(family, {}).get("headline", {})
    return [
        {
            "quantity": name.replace("_", " "),
            "measured": quantity(entry["value"], entry["unit"]),
            "ceiling": None,
            "share": None,
        }
        for name, entry in list(headline.items())[:3]
    ]


READINGS = {
    "00_environment": _environment,
    "01_bf16_compute": _compute,
    "02_memory_bandwidth": _bandwidth,
    "03_memory_capacity": _capacity,
}
