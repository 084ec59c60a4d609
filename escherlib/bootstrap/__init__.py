"""From a bare Python to a working environment: set-up, device check, doctor, and the face of `make`.

Standard library only, since it runs before anything is installed. `python3 -m escherlib.bootstrap --help`.
"""
