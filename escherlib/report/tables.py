"""Every table by name: functions of a run's Results. Each returns a Table, or a "not measured" box.

As the last expression of a cell a Table shows itself; `.frame` is a pandas DataFrame of its raw values.
"""

from escherlib.files import write_text
from escherlib.report.display import not_measured
from escherlib.report.facts import GIB, STATUS_WORDS, bytes_text, family_reason, number, reason_of
from escherlib.report.table import Column, Table, filled, words
from escherlib.report.table_rows import remark
from escherlib.report.tables_compute import COMPUTE, GEMM_GROUPS, correctness, gemm, peak, variants
from escherlib.report.tables_e2e import FAMILY as E2E
from escherlib.report.tables_e2e import account, chunks, compiles, mfu, path_checks, what_if
from escherlib.report.tables_memory import BANDWIDTH, CAPACITY, bandwidth, capacity, headroom, plateaus
from escherlib.report.tables_numerics import FAMILY as STABILITY
from escherlib.report.tables_numerics import depths, error_bounds, special_values, summation, wrong_kernels
from escherlib.report.tables_sustained import FAMILY as SUSTAINED
from escherlib.report.tables_sustained import phases, recovery, staying
from escherlib.report.tables_workload import FAMILY as OPS
from escherlib.report.tables_workload import attention as attention_backends
from escherlib.report.tables_workload import captured, losses, operations, totals

ENVIRONMENT = "00_environment"
UNITS = {"_mhz": "MHz", "_w": "W", "_c": "°C"}


def precheck(results):
    """What family 0 checked before anything was measured."""
    record = results.row(ENVIRONMENT, "precheck")
    if record is None or not record.ok:
        return not_measured(
            "Pre-checks", reason_of([record]) if record is not None else family_reason(results, ENVIRONMENT)
        )
    rows = tuple(
        check | {"class": "bad" if check["status"] == "warning" else ""}
        for check in record.get("checks", default=[])
    )
    columns = (
        Column("check", "check", words, text=True),
        Column("status", "status", words, text=True),
        Column("found", "found", words, text=True),
        Column("why", "why it matters", words, text=True),
    )
    return Table("precheck", "Pre-checks", columns, rows)


def environment(results):
    """env.json as name and value, nested names joined by dots; long lists are shortened."""
    if not results.env:
        return not_measured("Environment", "env.json is missing")
    rows = tuple(
        {"name": name, "value": value} for name, value in _flat(results.env) if value not in (None, "", [])
    )
    columns = (Column("name", "what", _spaced, text=True), Column("value", "value", words, text=True))
    return Table("environment", "Environment, as captured before the first measurement", columns, rows)


def _flat(tree, prefix=""):
    """(dotted name, text) of every leaf; the schema's number says nothing to a reader."""
    for name, value in tree.items():
        if name == "packages":
            yield f"{prefix}{name}", ", ".join(f"{package} {version}" for package, version in value.items())
        elif isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "schema":
            yield f"{prefix}{name}", _leaf(name, value)


def _leaf(name, value, longest=100):
    if name.endswith("_bytes") and isinstance(value, int):
        return bytes_text(value)
    unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), None)
    if unit and isinstance(value, (int, float)):
        return f"{number(value)} {unit}"
    if isinstance(value, list):
        value = ", ".join("/".join(map(_item, v.items())) if isinstance(v, dict) else str(v) for v in value)
    text = "" if value is None else str(value)
    return text if len(text) <= longest else f"{text[:longest]}…"


def _item(pair):
    name, value = pair
    return f"{name.removesuffix('_bytes').replace('_', ' ')} {_leaf(name, value)}"


def _spaced(name):
    ending = next((suffix for suffix in ("_bytes", *UNITS) if name.endswith(suffix)), "")
    return " · ".join(part.replace("_", " ") for part in name.removesuffix(ending).split("."))


def any_rows(results, family):
    """All rows of a family, plainly: what stands in the report where a notebook is missing or failed."""
    records = results.rows(family)
    if not records:
        return not_measured(f"Records of {family}", family_reason(results, family))
    rows = tuple(
        {
            "row": row_label(record),
            "status": STATUS_WORDS.get(record.status, record.status),
            "value": _values(record),
            "remark": remark(record) if record.ok else record.reason,
            "class": "" if record.ok else "bad",
        }
        for record in records
    )
    columns = (
        Column("row", "row", words, text=True),
        Column("status", "status", words, text=True),
        Column("value", "value", words, text=True),
        Column("remark", "remark", words, text=True),
    )
    return Table("rows", "Records of this family", filled(columns, rows, ("remark", "value")), rows)


def row_label(record):
    """Row name with a size in bytes made readable: `copy/67108864` is `copy 64 MiB`."""
    head, _, tail = record.name.rpartition("/")
    return f"{head} {bytes_text(int(tail))}" if record.family == BANDWIDTH and tail.isdigit() else record.name


def _values(record):
    """Rates of all states as text; streams in GB/s, everything else in TFLOP/s; sizes in GiB."""
    found = []
    for name, measured in (record.result.get("states") or {}).items():
        for key, unit in (("gb_s", "GB/s"), ("tflops", "TFLOP/s")):
            if measured and measured.get(key):
                found.append(f"{number(measured[key])} {unit} {name}")
                break
    if not found and record.family == CAPACITY and record.get("bytes"):
        found.append(f"{number(record.get('bytes') / GIB)} GiB")
    return ", ".join(found)


def all_tables(results):
    """(family, table) of every table that has rows."""
    made = [(COMPUTE, gemm(results, prefix)) for prefix in GEMM_GROUPS if results.rows(COMPUTE, prefix)]
    made += [(COMPUTE, peak(results)), (COMPUTE, correctness(results)), (BANDWIDTH, bandwidth(results))]
    made += [(BANDWIDTH, plateaus(results)), (CAPACITY, capacity(results)), (CAPACITY, headroom(results)), (ENVIRONMENT, precheck(results))]
    if results.rows(OPS):
        made += [(OPS, table(results)) for table in (operations, attention_backends, losses, captured, totals)]
    if results.rows(E2E):
        made += [(E2E, table(results)) for table in (mfu, chunks, compiles, path_checks, account, what_if)]
    if results.rows(SUSTAINED):
        made += [(SUSTAINED, table(results)) for table in (phases, staying, recovery)]
    if results.rows(STABILITY):
        made += [(STABILITY, table(results)) for table in (error_bounds, wrong_kernels, summation, special_values, depths)]
    return [(family, table) for family, table in made if isinstance(table, Table)]


def write_tables(results):
    """Write each table as CSV beside its records. Returns the files."""
    files = []
    for family, table in all_tables(results):
        files.append(results.path / "records" / family / f"{table.id}.csv")
        write_text(files[-1], table.to_csv())
    return files


__all__ = [
    "account",
    "all_tables",
    "any_rows",
    "attention_backends",
    "bandwidth",
    "capacity",
    "captured",
    "chunks",
    "compiles",
    "correctness",
    "depths",
    "environment",
    "error_bounds",
    "gemm",
    "headroom",
    "losses",
    "mfu",
    "operations",
    "path_checks",
    "peak",
    "phases",
    "plateaus",
    "precheck",
    "recovery",
    "remark",
    "special_values",
    "staying",
    "summation",
    "totals",
    "variants",
    "what_if",
    "write_tables",
    "wrong_kernels",
]
