"""External validators: parsers, running, figures."""
