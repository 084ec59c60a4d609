"""The two ways a request can end without a result, apart from a defect of our own."""


class UserError(Exception):
    """Bad input. The message is one line: what was wrong, where, what was expected, what to do. Exit code 2."""

    def _render_traceback_(self):
        """What a notebook shows instead of a traceback (IPython asks for this)."""
        return [f"{type(self).__name__}: {self}"]


class Refused(Exception):
    """A measurement that cannot be given: backend unavailable, wrong result, does not fit. Final until forced."""
