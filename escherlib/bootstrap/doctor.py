"""Does the software stack fit the device? Every question is asked in a child process with a time limit.

Exit code 0, or 2 where a GPU is there that torch can't use, or where torch itself is missing or too old.
"""

import importlib.util
import json
import platform
import shutil
import subprocess
import sys

from escherlib.bootstrap import packages
from escherlib.bootstrap.console import SetupError, last_error, say
from escherlib.bootstrap.devices import check_device
from escherlib.bootstrap.requirements import lacking, read_requirements

LIMIT_S = 120
TORCH = """
import json, torch
kind = "rocm" if torch.version.hip else "cuda" if torch.version.cuda else "cpu"
facts = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip, "build": kind}
facts |= {"device": None, "trouble": None}
try:
    place = "cpu" if kind == "cpu" else "cuda"
    x = torch.ones(64, 64, device=place)
    assert float((x @ x).sum()) == 64 ** 3
    if place == "cuda":
        p = torch.cuda.get_device_properties(0)
        facts["device"] = f"{p.name}, {p.gcnArchName if kind == 'rocm' else f'sm_{p.major}{p.minor}'}"
except Exception as error:
    facts["trouble"] = str(error).strip().splitlines()[0]
print("\\n" + json.dumps(facts))
"""
PROFILE = """
import json, sys
from escherlib.hardware.device import open_device
device = open_device(sys.argv[1])
profile, found = device.profile, device.identification
answer = {"device": device.name, "profile": getattr(profile, "id", None)}
print("\\n" + json.dumps(answer | {"how": found.how, "notes": list(found.notes)}))
"""
WEASYPRINT = """
import weasyprint
assert weasyprint.HTML(string="<p>x").write_pdf()[:4] == b"%PDF"
print(weasyprint.__version__)
"""
# An unrelated package on the package index is also called aiter, hence the submodule; iris likewise.
OPTIONAL = {
    "triton": ("triton", "import triton; print(triton.__version__)"),
    "aiter": ("aiter", "import aiter, aiter.ops.triton; print(getattr(aiter, '__version__', 'yes'))"),
    "iris": ("iris", "import iris; iris.atomic_add; print(getattr(iris, '__version__', 'yes'))"),
    "flash_attn": ("flash_attn", "import flash_attn; print(flash_attn.__version__)"),
    "flash-attn-4": (
        "flash_attn",
        "import flash_attn.cute\nfrom importlib import metadata\n"
        "try: print(metadata.version('flash-attn-4'))\nexcept metadata.PackageNotFoundError: print('yes')",
    ),
}
# shown on CUDA hosts
HINTS = {"flash-attn-4": "`make setup EXTRAS=fa4` installs it, for Hopper and Blackwell GPUs"}


def ask(code, *arguments, limit_s=LIMIT_S):
    """Run Python in a child: (True, its last line) or (False, why not)."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer in {limit_s} s"
    if done.returncode < 0:
        return False, f"ended by signal {-done.returncode}"
    if done.returncode:
        return False, last_error(_last_line(done.stderr))
    return True, _last_line(done.stdout)


def _last_line(text):
    return (text.strip().splitlines() or [""])[-1]


def run_doctor(spec="auto"):
    """Print what the stack is and whether it fits DEVICE. Returns the exit code."""
    try:
        kind = check_device(spec)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows, problems = [], []
    rows.append(("host needs", {"cpu": "cpu (no GPU asked for or found)"}.get(kind, kind)))
    rows.append(("python", f"{platform.python_version()} · {sys.executable}"))
    rows += _torch_rows(kind, problems)
    rows += _profile_rows(spec, problems)
    rows += _packages_rows(problems)
    rows.append(("pdf", pdf_engine()))
    rows += [(name, _hinted(name, kind, _optional(*question))) for name, question in OPTIONAL.items()]
    rows.append(("numactl", shutil.which("numactl") or "–"))
    rows.append(("c++ compiler", compiler()))
    for name, text in rows:
        say(f"{name:<14}{text}")
    say(f"{'fits':<14}{'yes' if not problems else 'no: ' + '; '.join(problems)}")
    return 2 if problems else 0


def _torch_rows(kind, problems):
    ok, answer = ask(TORCH)
    if not ok:
        problems.append(f"torch can't be imported ({answer})")
        return [("torch", f"– ({answer})")]
    facts = json.loads(answer)
    if kind != "cpu" and facts["build"] != kind:
        problems.append(
            f"the host has a {kind} device, but torch {facts['torch']} is a {facts['build']} build "
            "(give another with TORCH=)"
        )
    elif facts["trouble"] and (kind != "cpu" or facts["build"] == "cpu"):
        problems.append(f"torch can't compute on the {kind} device: {facts['trouble']}")
    shown = f"{facts['torch']} · CUDA {facts['cuda'] or '–'} · HIP {facts['hip'] or '–'}"
    sees = f"no device ({facts['trouble']})" if facts["trouble"] else facts["device"] or "the CPU"
    return [("torch", shown), ("torch sees", sees)]


def _profile_rows(spec, problems):
    ok, answer = ask(PROFILE, spec)
    if not ok:
        problems.append(f"the device can't be opened ({answer})")
        return [("device", f"– ({answer})")]
    found = json.loads(answer)
    profile = found["profile"] or "no profile, so no rated values"
    row = ("device", f"{found['device']} · {profile} (by {found['how']})")
    return [row, *(("", note) for note in found["notes"])]


def _packages_rows(problems):
    lack = lacking(read_requirements())
    if not lack:
        return [("packages", "complete")]
    listed = ", ".join(f"{wanted} (has {version})" if version else wanted for wanted, version in lack)
    problems.append("packages are missing (run `make setup`, or install them yourself with VENV=none)")
    return [("packages", f"missing: {listed}")]


def pdf_engine():
    """What a report's PDF will be made with, or the line that would help."""
    ok, answer = ask(WEASYPRINT)
    if ok:
        return f"WeasyPrint {answer}"
    absent = answer.startswith("ModuleNotFoundError")
    line = (
        "not installed" if absent else packages.apt_line(packages.missing(packages.REPORT) or packages.REPORT)
    )
    browser = next(filter(None, map(shutil.which, packages.BROWSERS)), None)
    if browser:
        return f"{browser} (WeasyPrint: {line})"
    return f"none (WeasyPrint: {line})"


def _optional(package, code):
    if importlib.util.find_spec(package) is None:
        return "–"
    ok, answer = ask(code, limit_s=60)
    return answer or "yes" if ok else f"– ({answer})"


def _hinted(name, kind, text):
    """What a backend's row says, with the way to get it where it is lacking and could be of use."""
    return f"{text} {HINTS[name]}" if name in HINTS and kind == "cuda" and text.startswith("–") else text


def compiler():
    """The C++ compiler that torch.compile would use on a CPU, with its version."""
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if not found:
        return "– (torch.compile needs one on CPUs: apt-get install -y g++)"
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20).stdout
    return f"{found} · {shown.splitlines()[0]}" if shown else found
