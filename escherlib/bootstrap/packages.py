"""System packages of Debian and Ubuntu: which are missing, and installing them as root."""

import os
import shutil
import subprocess

from escherlib.bootstrap.console import run_step

REPORT = ("libpango-1.0-0", "libpangoft2-1.0-0", "libharfbuzz-subset0", "fonts-dejavu-core")
TESTS = ("chromium", "poppler-utils", "iproute2")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SERVES_AS = {"chromium": BROWSERS, "poppler-utils": ("pdftotext",), "iproute2": ("ip",)}
QUIET = ("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15", "-o", "DPkg::Lock::Timeout=120")


def missing(names):
    """Those of `names` that are not installed; none on a system without dpkg, whose names are not known."""
    if not shutil.which("dpkg-query"):
        return []
    asked = [name for name in names if not any(map(shutil.which, SERVES_AS.get(name, ())))]
    if not asked:
        return []
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *asked]
    try:
        shown = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    there = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return [name for name in asked if name not in there]


def apt_line(names):
    """The exact command that installs them."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install -y --no-install-recommends {' '.join(names)}"


def can_install():
    """Whether this process may install system packages."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(names, log):
    """Install system packages. Returns those that are still missing; never raises for a failure of apt."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", *QUIET, "install", "-y", "-q", "--no-install-recommends"]
    run_step("system package lists", ["apt-get", *QUIET, "update", "-q"], log, environment)
    code, _ = run_step(f"system packages {' '.join(names)}", [*command, *names], log, environment)
    if code != 0 and len(names) > 1:  # one that can't be had must not keep the others away
        for name in names:
            run_step(f"system package {name}", [*command, name], log, environment)
    return missing(names)
