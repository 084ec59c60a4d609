"""A stand-in for the amdsmi package: FAKE values of an invented card, in the shapes of two releases."""

from types import ModuleType, SimpleNamespace

BDF = "0000:c1:00.0"
ENERGY_STEP_UJ = 15.3


class AmdSmiLibraryException(Exception):
    """An error of the library; `err_code` as it numbers them."""

    def __init__(self, code):
        self.err_code = code
        super().__init__(f"Error code: {code}")


def make(old=False, known=BDF, unsupported=(), **replaced):
    """A module like amdsmi. `old`: names and keys of ROCm 6.0; `unsupported`: calls that fail with code 2."""
    module = ModuleType("amdsmi")
    state = {"energy": 1_000_000, "ppt": 10, "calls": []}
    kinds = ("SYS", "GFX", "MEM")
    module.AmdSmiClkType = SimpleNamespace(**{name: name for name in kinds})
    module.AmdSmiTemperatureType = SimpleNamespace(EDGE="EDGE", HOTSPOT="HOTSPOT", VRAM="VRAM", HBM_0="HBM_0")
    module.AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def energy(handle):
        state["energy"] += 1_000_000
        return {"power" if old else "energy_accumulator": state["energy"], "counter_resolution": ENERGY_STEP_UJ, "timestamp": 1}

    def metrics(handle):
        state["ppt"] += 5
        if old:
            return {"current_gfxclk": 2100, "average_socket_power": 300}
        quiet = dict.fromkeys(("prochot_residency_acc", "socket_thm_residency_acc", "vr_thm_residency_acc"), 3)
        clocks = [2100, 2104, 2102, 65535, "N/A"]
        return {"current_gfxclks": clocks, "ppt_residency_acc": state["ppt"], "hbm_thm_residency_acc": "N/A", **quiet}

    temperatures = {"EDGE": "N/A", "HOTSPOT": 71_000 if old else 71, "VRAM": 58, "HBM_0": 57}
    power = {"average_socket_power": 300, "power_limit": 560} if old else {
        "current_socket_power": 712, "average_socket_power": "N/A", "socket_power": 712}  # fmt: skip
    calls = {
        "amdsmi_get_processor_handles": lambda: ["other", "card"],
        "amdsmi_get_gpu_device_bdf": lambda handle: known if handle == "card" else "0000:11:00.0",
        "amdsmi_get_power_info": lambda handle: power,
        "amdsmi_get_power_cap_info": lambda handle: {"power_cap": 560 if old else 750_000_000},
        "amdsmi_get_energy_count": energy,
        "amdsmi_get_gpu_metrics_info": metrics,
        "amdsmi_get_gpu_activity": lambda handle: {"gfx_activity": 99, "umc_activity": 40, "mm_activity": "N/A"},
        "amdsmi_get_clock_info": lambda handle, kind: {"cur_clk" if old else "clk": {"SYS": 2050, "GFX": 2100, "MEM": 1300}[kind]},
        "amdsmi_get_temp_metric": lambda handle, kind, metric: temperatures[kind],
        "amdsmi_get_gpu_compute_partition": lambda handle: "SPX",
    }
    if not old:
        calls["amdsmi_get_violation_status"] = lambda handle: {"active_ppt_pwr": True, "active_vr_thrm": False, "active_hbm_thrm": "N/A"}
    renamed = {"amdsmi_get_processor_handles": "amdsmi_get_device_handles", "amdsmi_get_gpu_device_bdf": "amdsmi_get_device_bdf"}
    for name, function in (calls | replaced).items():
        setattr(module, renamed.get(name, name) if old else name, _failing if name in unsupported else function)
    module.amdsmi_init = lambda *flags: state["calls"].append("init")
    module.amdsmi_shut_down = lambda: state["calls"].append("shut down")
    module.state = state
    return module


def _failing(*arguments):
    raise AmdSmiLibraryException(2)
