"""Parsers of the outputs of telemetry and host tools. Names are those of the tools, case as written."""

from importlib import import_module

MODULES = {
    "amd-smi": "amd_smi", "rocm-smi": "rocm_smi", "nvidia-smi": "nvidia_smi", "nvidia-smi-topo": "nvidia_smi_topo",
    "lscpu": "lscpu", "numactl": "numactl", "rocminfo": "rocminfo", "sysfs-topology": "sysfs_topology",
}  # fmt: skip


def parser_of(tool):
    """The function parse(text) of one of MODULES."""
    return import_module(f"escherlib.hardware.parsers.{MODULES[tool]}").parse
