"""Stands for the process of the stack: it behaves as requests name it (answers, hangs, dies). For faults only."""

import json
import os
import sys
import time

pipe = os.fdopen(int(sys.argv[1]), "w")
for line in sys.stdin:
    request = json.loads(line)
    what = request.get("compile") or request.get("scope", {}).get("mode") or "open"
    if what == "hang":
        time.sleep(600)
    if what == "die":
        print("last words", flush=True)
        os._exit(7)
    if what == "killed":
        os.kill(os.getpid(), 9)
    told = {"refused": {"refused": "out of memory: 3 TiB"}, "broken": {"failed": "ValueError: odd"},
            "half": {"ok": "x"}}.get(what, {"ok": {"pid": os.getpid(), "chunk_s": 1.0, "mode": what}})  # fmt: skip
    text = json.dumps(told) + "\n"
    pipe.write(text[:5] if what == "half" else text)
    pipe.flush()
    if what == "half":
        os._exit(0)
