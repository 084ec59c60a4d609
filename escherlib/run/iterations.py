"""ITERATIONS=N: every headline of every pass, with mean, median and coefficient of variation."""

import statistics

from escherlib.files import canonical_json, read_json, write_json, write_text


def headlines_of_passes(run_path):
    """Headline name → list of its values, pass 1 first. Text headlines are left out."""
    manifest = read_json(run_path / "run.json")
    found = {}
    for number, key in enumerate(["families", *sorted(k for k in manifest if k.startswith("pass_"))], start=1):
        for family in sorted(manifest[key]):
            file = run_path / "records" / family / "summary.json"
            if number > 1:
                file = run_path / "iterations" / key.removeprefix("pass_") / f"{family}.summary.json"
            if file.exists():
                for name, entry in read_json(file)["headline"].items():
                    if isinstance(entry["value"], (int, float)):
                        found.setdefault(name, []).append((number, entry["value"], entry["unit"]))
    return found


def spread(values):
    """Mean, median and CV (sample standard deviation over mean, %) of one headline; CV needs two values."""
    mean = statistics.fmean(values)
    cv_pct = 100 * statistics.stdev(values) / mean if len(values) > 1 and mean else None
    return {"mean": mean, "median": statistics.median(values), "cv_pct": cv_pct, "values": list(values)}


def write_iterations(run_path):
    """Write iterations.json and iterations.results (one RESULT line a pass). Returns lines for the terminal."""
    found = headlines_of_passes(run_path)
    table = {name: {**spread([v for _, v, _ in rows]), "unit": rows[0][2]} for name, rows in found.items()}
    write_json(run_path / "iterations.json", table)
    passes = sorted({number for rows in found.values() for number, _, _ in rows})
    lines = [
        f"RESULT pass={number} {canonical_json({n: v for n, rows in found.items() for k, v, _ in rows if k == number})}"
        for number in passes
    ]
    write_text(run_path / "iterations.results", "\n".join(lines) + "\n")
    return [
        f"{name}: mean {row['mean']:.4g} {row['unit'] or ''}, median {row['median']:.4g}"
        + (f", CV {row['cv_pct']:.2f} %" if row["cv_pct"] is not None else "")
        for name, row in table.items()
    ]
