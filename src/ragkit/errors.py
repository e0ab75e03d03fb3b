"""What a user can mend, said on one line: the thing, the value, the remedy.

The command line catches `RagkitError` and prints its message; anything else is a fault of ours and keeps its traceback.
"""


class RagkitError(Exception):
    """Root of every error that a user can act on."""


class InputError(RagkitError, ValueError):
    """A value, file or setting that was given is wrong."""


class ServiceError(RagkitError, RuntimeError):
    """Something needed from outside the process failed: weights, a server, a disk."""
