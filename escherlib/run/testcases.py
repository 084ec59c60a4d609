"""Names of test cases and the family notebooks they stand for."""

from escherlib.errors import UserError
from escherlib.run.suite import notebook_source

ENVIRONMENT = "00_environment"
TESTCASES = {
    "environment": [ENVIRONMENT],
    "compute": ["01_bf16_compute"],
    "bandwidth": ["02_memory_bandwidth"],
    "capacity": ["03_memory_capacity"],
    "workload": ["04_workload_ops"],
    "e2e": ["05_e2e_mfu"],
    "sustained": ["07_sustained"],
    "stability": ["09_numerical_stability"],
}
AFTERWARDS = ("score", "report")  # cases that measure nothing: they re-make score and report of a run


def known():
    """All names TESTCASE takes."""
    return [*TESTCASES, *AFTERWARDS, "benchmark", "list"]


def families_of(testcase, suite):
    """Families of a comma list of test cases in the order of their numbers; `benchmark` is every family of the suite."""
    asked = [name.strip() for name in testcase.split(",") if name.strip()]
    unknown = [name for name in asked if name not in known()]
    if unknown or not asked:
        raise UserError(f"TESTCASE={testcase}: unknown test case; choose from {', '.join(known())}")
    if "benchmark" in asked:
        return [family for family in suite.families if notebook_source(family).exists()]
    return sorted({ENVIRONMENT, *(family for name in asked for family in TESTCASES.get(name, []))})
