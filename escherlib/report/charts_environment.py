"""Chart of family 0: how much of the machine this run may use."""

from escherlib.report import charts_base as base
from escherlib.report.display import not_measured
from escherlib.report.facts import GIB, join_words, number
from escherlib.report.theme import FILLS


def usable(results):
    """Share of cores, memory, power and clock that is left to a run, in % of what is installed or allowed."""
    found = [row for row in _shares(results) if row["of"] and row["value"] is not None]
    if not found:
        return not_measured("What this run may use", "env.json states no limits of this machine")
    bars = [_bar(**row) for row in found]
    layers, x = base.horizontal_bars(bars, (0, 112), "% of what is installed or allowed", step=30)
    layers += base.vertical_rule(100, x)
    short = [bar for bar in bars if bar["x"] < 99.5]
    told = join_words(f"{bar['name']} {bar['text']}" for bar in short or bars)
    title = (
        f"Less than all of it: {join_words(bar['name'] for bar in short)}"
        if short
        else "All of it may be used"
    )
    caption = f"{told[0].upper()}{told[1:]}. Bars end at what this run may use; the rule is what there is."
    words = (title, "Usable share of the machine, %", f"Bar chart. {told}.", caption)
    return base.finish(layers, *words, height=30 * len(bars), margin=False)


def _shares(results):
    """{name, value, of, unit} of each limit that env.json knows of."""
    env, device = results.env or {}, results.device
    host, gpu, power = env.get("host") or {}, env.get("gpu") or {}, env.get("power") or {}
    clocks, memory = gpu.get("clocks") or {}, device.get("memory_bytes")
    used = gpu.get("memory_used_bytes")
    whole = host.get("memory_total_bytes")
    yield {"name": "CPUs", "value": host.get("usable_cpus"), "of": host.get("online_cpus"), "unit": ""}
    yield {
        "name": "host memory",
        "value": _gib(host.get("memory_limit_bytes")),
        "of": _gib(whole),
        "unit": "GiB",
    }
    if results.kind == "gpu":
        free = memory - used if memory and used is not None else None
        yield {"name": "device memory", "value": _gib(free), "of": _gib(memory), "unit": "GiB"}
        yield {
            "name": "power cap",
            "value": power.get("cap_w"),
            "of": power.get("cap_default_w"),
            "unit": "W",
        }
        yield {
            "name": "clock",
            "value": clocks.get("application_mhz"),
            "of": clocks.get("max_mhz"),
            "unit": "MHz",
        }


def _gib(size):
    return size / GIB if size is not None else None


def _bar(name, value, of, unit):
    share = 100 * value / of
    text = f"{number(value)} of {number(of)} {unit}".strip()
    return {
        "name": name,
        "x": min(share, 110),
        "text": text,
        "color": FILLS["sky" if share >= 99.5 else "orange"],
    }


__all__ = ["usable"]
