"""Run as a script: one stack on the device, asked by JSON lines on stdin, answering on the pipe named in argv.

Requests: {"open": {device, geometry, path, backends, bracket_gemm, protocol}} first, then {"compile": mode},
{"scope": {...}}, {"headroom": {...}} and {"hold": {...}}, which tells {"progress": line} on the way. Answers: {"ok": …}, {"refused": why},
{"failed": why}, {"bad_input": why}. stdout and stderr belong to whatever
libraries print. The process ends when stdin closes, whatever it is doing: then its parent is gone.
"""

import json
import os
import sys
import threading
import traceback
from queue import Queue

from escherlib.errors import Refused, UserError
from escherlib.hardware.device import open_device


def requests():
    """The requests as they come; the process ends at once when there can be no more."""
    waiting = Queue()

    def listen():
        for line in sys.stdin:
            waiting.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield waiting.get()


def answer(session, request, tell):
    """(session, answer) of one request; `tell(line)` reports progress."""
    from escherlib.kernels.scopes import Session

    if "open" in request:
        wanted = dict(request["open"])
        return Session(open_device(wanted.pop("device")), **wanted), "open"
    if "compile" in request:
        return session, session.compile(request["compile"])
    if "headroom" in request:
        return session, session.headroom(**request["headroom"])
    if "hold" in request:
        return session, session.hold(tell, **request["hold"])
    return session, session.scope(**request["scope"])


def failure(error):
    """The answer that tells of an exception, with the words a record keeps."""
    line = (str(error).strip().splitlines() or ["no message"])[0][:300]
    if isinstance(error, Refused):
        return {"refused": str(error)}
    if isinstance(error, UserError):
        return {"bad_input": str(error)}
    if type(error).__name__ in ("OutOfMemoryError", "MemoryError"):
        return {"refused": f"out of memory: {line}", "fatal": True}
    return {"failed": f"{type(error).__name__}: {line}"}


def main(descriptor):
    """Answer requests until stdin closes."""
    session, pipe = None, os.fdopen(descriptor, "w")

    def send(line):
        pipe.write(json.dumps(line, allow_nan=False) + "\n")
        pipe.flush()

    for request in requests():
        try:
            session, result = answer(session, request, lambda line: send({"progress": line}))
            told = {"ok": result}
        except Exception as error:  # whatever it is, the parent writes it into a record
            traceback.print_exc()
            told = failure(error)
        send(told)
        if told.get("fatal"):
            os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
