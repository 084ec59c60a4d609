"""Clock, power, temperature, energy and limits beside every measurement.

A sampler process of its own writes one file a notebook; the run cuts windows out of it afterwards by their
time stamps. `start(device, path)` → Sampler; `read_samples`, `window`, `windows`, `trace` read what it wrote.

File: one JSON value a line. An object with "fields" is a header: {schema, source, fields, units, interval_s,
averaging, span_s, absent, passed_over, limit_bits, start_ns, notes, read_us}; a restarted sampler, or another
source after a gap, writes another one. A
list is a sample: µs since the header's start_ns (time.monotonic_ns), then the values in the header's order,
null where a sensor said nothing. An object with "t" is an event at that µs: {"interval_s"}, {"gap": reason},
{"absent": {field: reason}}, {"end": reason}. No serial, UUID or PCI address is ever in it.
"""

from escherlib.hardware.telemetry.control import Sampler, start
from escherlib.hardware.telemetry.samples import Samples, read_samples
from escherlib.hardware.telemetry.window import trace, window, windows

__all__ = ["Sampler", "Samples", "read_samples", "start", "trace", "window", "windows"]
