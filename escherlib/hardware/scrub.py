"""What of the environment may be written down: an allow-list of variables, values without identities."""

import os
import re
import socket

from escherlib.files import sha256_text

ALLOWED = (
    "ATEN", "CUBLAS", "CUDA", "CUDNN", "DNNL", "FI_", "FLASH", "GLOO", "GOMP", "GPU_", "HIP", "HSA",
    "KMP", "MIOPEN", "MKL", "NCCL", "NVIDIA_TF32", "NVIDIA_VISIBLE", "OMP", "ONEDNN", "OPENBLAS", "PYT",
    "RCCL", "ROC", "TENSILE", "TORCH", "TRITON", "UCX",
)  # fmt: skip
PRIVATE = ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONHISTFILE")  # folders of one machine
SECRET = re.compile("TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
UUID = re.compile(
    r"\b(GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
)
SHORT_UUID = re.compile(
    r"\b(GPU|MIG)-(?!#)[0-9a-f]{4,}[0-9a-f-]*", re.IGNORECASE
)  # a prefix is enough for CUDA
LOGIN = re.compile(r"(?<=//)[^/@\s]+@")
ADDRESS = re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b")
COMMON_HOSTS = ("localhost", "host", "node")
LONGEST = 400


def safe_variables(environ=None):
    """{name: value} of the variables that may change a measurement, scrubbed; secrets are left out."""
    environ = os.environ if environ is None else environ
    return {
        name: scrub(value, environ)
        for name, value in sorted(environ.items())
        if name.startswith(ALLOWED) and name not in PRIVATE and not SECRET.search(name)
    }


def scrub(text, environ=None):
    """A text without home folder, host name, logins, IP addresses and UUIDs (these become short hashes)."""
    environ = os.environ if environ is None else environ
    text = UUID.sub(_hashed, text)
    text = SHORT_UUID.sub(_hashed, text)
    text = ADDRESS.sub("<address>", LOGIN.sub("<login>@", text))
    home = environ.get("HOME", "").rstrip("/")
    if len(home) > 1:
        text = re.sub(re.escape(home) + r"(?=/|:|$)", "~", text)
    text = re.sub(r"/home/[^/:]+", "~", text)
    name = socket.gethostname()
    for host in (name, name.partition(".")[0]):
        if len(host) > 2 and host.lower() not in COMMON_HOSTS:
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", text)
    return text[:LONGEST]


def _hashed(found):
    return f"{(found[1] or 'id-').rstrip('-')}-#{sha256_text(found[0].lower())[:8]}"
