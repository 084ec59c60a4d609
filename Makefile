# A thin face over `python -m escherlib`. `make help` lists targets and variables.
# Values reach the set-up code through the environment, never through a shell line, so blanks and quotes in them are safe.

.DEFAULT_GOAL := help
.NOTPARALLEL:

export PYTHON ?= python3
TARGETS := help benchmark report analyze models list setup doctor lab test clean

export ESCHER_GIVEN := $(MAKEOVERRIDES)
export ESCHER_GOALS := $(MAKECMDGOALS)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))

.PHONY: $(TARGETS)
$(TARGETS):
	@command -v "$$PYTHON" >/dev/null || { echo "error: $$PYTHON not found; install Python 3.11 or newer: apt-get install -y python3 python3-venv" >&2; exit 2; }
	@"$$PYTHON" -m escherlib.bootstrap make $@
