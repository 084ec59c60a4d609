"""External validators: how each is found and run, and how its output is read. Names are those of the tools."""

from importlib import import_module

from escherlib.hardware import parsers

MODULES = {
    "BabelStream": "babelstream", "TransferBench": "transferbench", "nccl-tests": "nccl_tests", "nvbandwidth": "nvbandwidth",
    "rccl-tests": "rccl_tests", "rocm-bandwidth-test": "rocm_bandwidth_test", "rvs": "rvs",
}  # fmt: skip


def known():
    """Names of all tools whose outputs can be read, in order."""
    return sorted([*MODULES, *parsers.MODULES], key=str.lower)


def parser_of(tool):
    """The function parse(text) of any known tool."""
    if tool in MODULES:
        return import_module(f"escherlib.tools.{MODULES[tool]}").parse
    return parsers.parser_of(tool)
