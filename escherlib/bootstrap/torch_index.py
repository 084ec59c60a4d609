"""What an index of wheels offers this interpreter, asked within seconds."""

import platform
import re
import socket
import ssl
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

from escherlib.bootstrap.requirements import meets, package_of

WHEELS = "https://download.pytorch.org/whl"
REACH_S = 3  # an index that does not answer by then counts as unreachable


def offered(index, requirement, look_inside=True):
    """Newest torch for this interpreter on an index: (version, None), or (None, what is wrong)."""
    url = f"{index.rstrip('/')}/torch/"
    answer = []
    thread = threading.Thread(target=lambda: answer.append(_fetch(url)), daemon=True)
    thread.start()
    thread.join(REACH_S + 0.5)  # a name look-up has no time-out of its own
    page, trouble = answer[0] if answer else (None, f"unreachable (no answer in {REACH_S} s)")
    if trouble or not look_inside:
        return None, trouble
    versions = wheel_versions(page, requirement)
    if not versions:
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}"
        return None, f"has no {requirement} for {python}"
    return versions[-1], None


def _fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=REACH_S) as answer:
            return answer.read().decode(errors="replace"), None
    except urllib.error.HTTPError as error:
        return None, f"has no torch (HTTP {error.code})"
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            return None, f"unreachable (certificate: {error.reason.verify_message})"
        reason = error.reason
        text = (
            "no such host"
            if isinstance(reason, socket.gaierror)
            else getattr(reason, "strerror", None) or str(reason)
        )
        return None, f"unreachable ({text})"
    except (OSError, ValueError) as error:
        return None, f"unreachable ({error})"


def wheel_versions(page, requirement):
    """Versions on an index page that have a wheel for this interpreter and machine, oldest first."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    tags = rf"(?:{python}-{python}|py3-none)-[\w.]*(?:{platform.machine()}|any)"
    pattern = rf"torch-(\d+(?:\.\d+)*(?:\+[\w.]+)?)-{tags}\.whl"
    floor = package_of(requirement)[1]
    found = {v for v in re.findall(pattern, urllib.parse.unquote(page)) if meets(v, floor)}
    return sorted(found, key=lambda v: [int(part) for part in re.findall(r"\d+", v.split("+")[0])])
