"""Lines for the person at the terminal, kept in the run's log as well."""

import json
import sys
from datetime import UTC, datetime


def log_name(testcase, workload, env, world=1):
    """`<testcase>-<workload>-px<partition>-nps<memory partition>-g<devices>-tp<ranks>.<time>.log`."""
    gpu = (env or {}).get("gpu") or {}
    partition, nps = gpu.get("compute_partition") or "na", str(gpu.get("memory_partition") or "na").removeprefix("NPS")
    devices = gpu.get("visible_devices") or 0
    stamp = f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    return f"{testcase.replace(',', '+')}-{workload}-px{partition}-nps{nps}-g{devices}-tp{world}.{stamp}.log"


def make_say(log, env=None):
    """A function `say(text, transient=False)`: prints a line and logs it; transient lines overwrite themselves."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if env is not None:
        log.write_text(json.dumps(env, indent=1) + "\n")
    terminal = sys.stdout.isatty()

    def say(text, transient=False):
        if transient and not terminal:
            return
        clear = "\r\x1b[K" if terminal else ""
        print(f"{clear}{text}", end="" if transient else "\n", flush=True)
        if not transient:
            with log.open("a") as stream:
                stream.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")

    return say
