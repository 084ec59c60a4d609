"""NVIDIA sensors through NVML (package nvidia-ml-py, module pynvml).

Calls and units: NVML API reference. A device is found by UUID, else by PCI address; its index is never used,
since NVML does not know the visible-device variables.
"""

import re

from escherlib.hardware.telemetry.source import Reader, Source

INTERVAL_S = 0.04  # three samples fit into a burst of 150 ms
PERMANENT = (
    "NVMLError_NotSupported",
    "NVMLError_NoPermission",
    "NVMLError_FunctionNotFound",
    "NVMLError_InvalidArgument",
    "AttributeError",
)
BIT_PREFIXES = ("nvmlClocksEventReason", "nvmlClocksThrottleReason")  # the older name is still on old drivers
NO_BITS = ("All", "None", "UserDefinedClocks")  # two sums and an alias
# names of one call in different drivers, the usual one first
LIMITS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # the first from 535 on
TEMPERATURE = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
POWER_LIMIT = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
INSTANT, LAGGING = "instant", "average of the last second"


def open_source(job):
    """NVML as a Source. Raises what NVML raises where driver, library or device is missing."""
    nvml, handle = connect(job.get("uuid"), job.get("bdf"))
    return Source(
        name="nvml",
        readers=_readers(nvml, handle),
        interval_s=INTERVAL_S,
        permanent=lambda error: type(error).__name__ in PERMANENT,
        limit_bits=limit_bits(nvml),
        notes=_notes(nvml, handle),
        close=nvml.nvmlShutdown,
    )


def connect(uuid=None, bdf=None):
    """(the NVML module, handle of the device). The caller ends it with nvmlShutdown()."""
    import pynvml as nvml

    nvml.nvmlInit()
    asks = [(nvml.nvmlDeviceGetHandleByUUID, name) for name in _uuid_names(uuid)]
    asks += [(nvml.nvmlDeviceGetHandleByPciBusId, bdf)] if bdf else []
    for ask, name in asks:
        try:
            return nvml, ask(name)
        except nvml.NVMLError:
            continue
    nvml.nvmlShutdown()
    raise LookupError("NVML does not know this device")


def _uuid_names(uuid):
    """The forms a UUID may have: torch leaves the prefix out, and a MIG slice has another one."""
    bare = re.sub("^(GPU|MIG)-", "", uuid or "")
    return [f"{prefix}-{bare}" for prefix in ("GPU", "MIG")] if bare else []


def _readers(nvml, handle):
    """All readers, best power sensor only."""
    milli = 1e-3
    ask = {
        "clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "limit_mask": lambda: limit_mask(nvml, handle),
        "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "temperature_c": lambda: renamed(nvml, TEMPERATURE, handle, nvml.NVML_TEMPERATURE_GPU),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "memory_temperature_c": lambda: field_value(nvml, handle, nvml.NVML_FI_DEV_MEMORY_TEMP),
        "utilisation_pct": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "power_limit_w": lambda: renamed(nvml, POWER_LIMIT, handle) * milli,
    }
    since = []

    def energy_j():
        """J since the first call: the driver counts mJ from its own start."""
        now = ask["energy"]()
        since.append(now) if not since else None
        return ((now - since[0]) * milli,)

    def one(name, digits=0, slow=False):
        return Reader((name,), lambda: (ask[name](),), digits, slow)

    return (
        one("clock_mhz"),
        power_reader(nvml, handle),
        one("limit_mask"),
        Reader(("energy_j",), energy_j, 2),
        one("temperature_c", slow=True),
        one("memory_clock_mhz", slow=True),
        one("memory_temperature_c", slow=True),
        one("utilisation_pct", slow=True),
        one("power_limit_w", slow=True),
    )


def power_reader(nvml, handle):
    """Instant power where the driver has it, else the classic call, which averages on newer parts."""

    def instant():
        return (field_value(nvml, handle, nvml.NVML_FI_DEV_POWER_INSTANT) * 1e-3,)

    def classic():
        return (nvml.nvmlDeviceGetPowerUsage(handle) * 1e-3,)

    try:
        instant()
        return Reader(("power_w",), instant, 1, averaging=INSTANT)
    except Exception:  # an older driver: any failure means that the other call is used
        span_s = 1.0 if _classic_power_lags(nvml, handle) else 0.0
        return Reader(("power_w",), classic, 1, averaging=LAGGING if span_s else INSTANT, span_s=span_s)


def _classic_power_lags(nvml, handle):
    """Whether nvmlDeviceGetPowerUsage averages over 1 s: from Ampere on, GA100 excepted (NVML reference)."""
    try:
        return tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)) > (8, 0)
    except Exception:
        return True


def field_value(nvml, handle, field_id):
    """One value of the field interface. Raises the NVML error that the field itself reports."""
    found = nvml.nvmlDeviceGetFieldValues(handle, [field_id])[0]
    if found.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(found.nvmlReturn)
    members = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    return getattr(found.value, members[found.valueType])


def limit_mask(nvml, handle):
    """Bits of what limits the clock now."""
    return renamed(nvml, LIMITS, handle)


def renamed(nvml, names, *arguments):
    """The first of `names` that module and driver have, called. Raises what the last one raises where none is there."""
    for name in names:
        try:
            return getattr(nvml, name)(*arguments)
        except (AttributeError, nvml.NVMLError_FunctionNotFound):
            if name == names[-1]:
                raise
    raise AttributeError("no name of this call")


def limit_bits(nvml):
    """Bit value → name in words, from the constants of the loaded module: {4: "sw_power_cap", …}."""
    found = {}
    for prefix in BIT_PREFIXES:
        for name in sorted(vars(nvml)):
            word = name.removeprefix(prefix)
            if word != name and word not in NO_BITS:
                found.setdefault(int(getattr(nvml, name)), re.sub("(?<=[a-z])(?=[A-Z])", "_", word).lower())
    return found


def _notes(nvml, handle):
    try:
        mig = nvml.nvmlDeviceGetMigMode(handle)[0]
    except Exception:  # no MIG on this part
        mig = 0
    return ("MIG is on: sensors are the whole card's",) if mig else ()
