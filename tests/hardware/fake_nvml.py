"""A stand-in for pynvml: FAKE values of an invented card, and the faults that real drivers show."""

import time
from types import ModuleType, SimpleNamespace

UUID = "00000000-fa4e-fa4e-fa4e-000000000001"
BITS = {"GpuIdle": 1, "ApplicationsClocksSetting": 2, "SwPowerCap": 4, "HwThermalSlowdown": 64}
VALUES = {
    "ClockInfo": 1455,
    "PowerUsage": 612_345,
    "TotalEnergyConsumption": 5_000_000,
    "Temperature": 61,
    "EnforcedPowerLimit": 700_000,
    "CurrentClocksEventReasons": 4,
    "MaxClockInfo": 1980,
    "ApplicationsClock": 1980,
    "PowerManagementDefaultLimit": 700_000,
    "PowerManagementLimitConstraints": [200_000, 700_000],
    "EccMode": [1, 1],
    "MigMode": [0, 0],
    "ComputeMode": 0,
    "PersistenceMode": 1,
    "ComputeRunningProcesses": [SimpleNamespace(pid=1)],
    "CudaComputeCapability": (9, 0),
}
FIELDS = {186: 690_100, 82: 58}  # instant power in mW, memory temperature


class NVMLError(Exception):
    """Any NVML error; `code` as NVML numbers them."""

    def __new__(cls, code=999):
        kind = {3: NVMLError_NotSupported, 6: NVMLError_NotFound, 13: NVMLError_FunctionNotFound}.get(
            code, cls
        )
        return Exception.__new__(kind)

    def __init__(self, code=999):
        super().__init__({3: "Not Supported", 6: "Not Found"}.get(code, "Unknown Error"))


class NVMLError_NotSupported(NVMLError):
    """Code 3."""


class NVMLError_NotFound(NVMLError):
    """Code 6."""


class NVMLError_FunctionNotFound(NVMLError):
    """Code 13."""


def make(missing=(), old_names=False, fail_after=None, known=f"GPU-{UUID}", utilisation=100, **values):
    """A module like pynvml. `missing`: calls and fields that are not supported; `old_names`: a driver below
    535; `fail_after`: seconds after which every call fails; other arguments replace VALUES.
    """
    module = ModuleType("pynvml")
    module.inits, begun = [], time.monotonic()
    found = VALUES | values

    def answer(name):
        def ask(handle, *more):
            assert handle == "handle"
            if fail_after is not None and time.monotonic() - begun > fail_after:
                raise NVMLError(999)
            if name in missing:
                raise NVMLError(3)
            value = found[name]
            return value() if callable(value) else value

        return ask

    def field_values(handle, fields):
        if "fields" in missing:
            raise NVMLError(13)
        return [
            SimpleNamespace(
                nvmlReturn=3 if field in missing else 0,
                valueType=1,
                value=SimpleNamespace(uiVal=FIELDS[field]),
            )
            for field in fields
        ]

    def by_name(name):
        if name != known:
            raise NVMLError(6)
        return "handle"

    for name in found:
        setattr(module, f"nvmlDeviceGet{name}", answer(name))
    module.nvmlDeviceGetUtilizationRates = lambda handle: SimpleNamespace(gpu=utilisation, memory=40)
    module.nvmlDeviceGetMemoryInfo = lambda handle, version=None: SimpleNamespace(used=2**30)
    module.nvmlDeviceGetFieldValues = field_values
    module.nvmlDeviceGetHandleByUUID = module.nvmlDeviceGetHandleByPciBusId = by_name
    module.nvmlInit = lambda: module.inits.append("init")
    module.nvmlShutdown = lambda: module.inits.append("shutdown")
    module.nvmlSystemGetDriverVersion = lambda: "580.00.fake"
    prefix = "nvmlClocksThrottleReason" if old_names else "nvmlClocksEventReason"
    constants = {f"{prefix}{name}": bit for name, bit in BITS.items()}
    constants |= {f"{prefix}UserDefinedClocks": 2, f"{prefix}None": 0, f"{prefix}All": 71}
    constants |= {"NVML_SUCCESS": 0, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    constants |= {"NVML_FI_DEV_POWER_INSTANT": 186, "NVML_FI_DEV_MEMORY_TEMP": 82, "nvmlMemory_v2": 2}
    kinds = ("DOUBLE", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "SIGNED_LONG_LONG")
    constants |= {f"NVML_VALUE_TYPE_{name}": number for number, name in enumerate(kinds)}
    for name, value in constants.items():
        setattr(module, name, value)
    if old_names:
        module.nvmlDeviceGetCurrentClocksThrottleReasons = module.nvmlDeviceGetCurrentClocksEventReasons
        del module.nvmlDeviceGetCurrentClocksEventReasons
    for kind in (NVMLError, NVMLError_NotSupported, NVMLError_NotFound, NVMLError_FunctionNotFound):
        setattr(module, kind.__name__, kind)
    return module
