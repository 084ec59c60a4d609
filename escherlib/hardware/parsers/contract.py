"""What every parser of a program's output returns: JSON values with a status, and never an exception.

A parser is a function of one text: parse(text) → dict. `status` says what the text was worth:
  ok           a whole output with positive evidence
  partial      evidence, but cut off, or some of it unreadable: `reason` says what is missing
  failed       the program failed or reported an error (`reason`: its words), or nothing was recognised ("unparsed")
  unavailable  the program said that it can't work here: no device, no driver, no permission
Units stand in the names (`power_w`, `busbw_gb_s`); what was not said is None; sentinels ("N/A", 65535) are None.
"""

import math

OK, PARTIAL, FAILED, UNAVAILABLE = "ok", "partial", "failed", "unavailable"
UNPARSED = "unparsed"
USABLE = (OK, PARTIAL)


def result(status, reason=None, **values):
    """A parser's return value: status and reason first."""
    return {"status": status, "reason": reason, **values}


def unparsed(**values):
    """Nothing in the text is evidence of the tool's output."""
    return result(FAILED, UNPARSED, **values)


def read(parser, text):
    """`parser(text)` with finite numbers only; a parser that stumbles gives a failed result, not an exception."""
    try:
        found = parser(text)
    except Exception as error:  # the text comes from others: whatever is in it ends no run
        return result(FAILED, f"{UNPARSED} ({type(error).__name__})")
    return finite(found)


def finite(value):
    """The same JSON value with None in place of NaN and infinities."""
    if isinstance(value, dict):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
