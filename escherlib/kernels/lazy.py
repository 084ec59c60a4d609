"""`torch` and what is built on it, imported when first used: a notebook that only reads records runs without it."""

import importlib


class Lazy:
    """Stands for a module; what was asked of it once is an ordinary attribute from then on."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next look-up costs nothing: timed calls go through here
        return value


torch = Lazy("torch")
dit, dit_fused = Lazy("escherlib.kernels.dit"), Lazy("escherlib.kernels.dit_fused")
