"""Readings of a record that several tables share."""

from escherlib.report.facts import STATUS_WORDS


def percent_cell(value):
    """`93.1`"""
    return "–" if value is None else f"{value:.1f}"


def reading(record, name, key, field="mean"):
    """Mean of one telemetry field over the window of one state, or None."""
    window = (record.telemetry or {}).get(name) or {}
    return (window.get(key) or {}).get(field)


def remark(record, only=None):
    """What a reader must know of a row: status, reason, a wrong result, labels of its states (or of one)."""
    if not record.ok:
        word = STATUS_WORDS.get(record.status, record.status)
        return f"{word}: {record.reason}" if record.reason else word
    said = []
    if record.get("emulated"):
        said.append("emulated")
    for name, found in (record.result.get("states") or {}).items():
        if found and found.get("label") and only in (None, name):
            said.append(found["label"] if only else f"{name}: {found['label']}")
    if record.get("correct", "ok") is False:
        said.append("outside its error bound")
    return "; ".join(said)
