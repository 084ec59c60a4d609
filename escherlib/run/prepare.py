"""PREPARE_SYS=1: kernel and driver settings that steady a measurement. Needs root; a refusal is told, never fatal."""

from pathlib import Path

SETTINGS = {
    "/proc/sys/kernel/numa_balancing": "0",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always",
    "/proc/sys/vm/compact_memory": "1",
    "/proc/sys/vm/drop_caches": "3",
}


def prepare_system(root="/"):
    """Write the settings and raise AMD performance levels to high. Returns path → "set" or why not."""
    wanted = {Path(root) / path.lstrip("/"): value for path, value in SETTINGS.items()}
    levels = Path(root).glob("sys/class/drm/card*/device/power_dpm_force_performance_level")
    wanted |= dict.fromkeys(levels, "high")
    return {str(path): _write(path, value) for path, value in wanted.items()}


def _write(path, value):
    try:
        path.write_text(value)
    except OSError as error:
        return f"not set: {error.strerror}"
    return f"set to {value}"
