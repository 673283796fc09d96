"""The exception tree.

Only the caller's own mistakes and broken invariants are raised. A bad *request* is never raised:
it becomes an output with ``finish_reason == "error"`` and a message, and the rest of the batch
goes on.

::

    NanoserveError
    |-- ConfigError (ValueError)      a setting that is unknown or out of range
    |-- ModelError                    a model that cannot be found, read or run
    |   |-- ModelNotFound             the name leads nowhere
    |   |-- UnsupportedModel          found, but of an architecture or option we do not run
    |   `-- WeightsMismatch           found, but its tensors are not those of its config
    |-- RequestRefused                why one request cannot run; becomes its output's error
    `-- IntegrityError                an invariant of the engine is broken: a bug in it
"""


class NanoserveError(Exception):
    """Base of everything that nanoserve raises on purpose."""


class ConfigError(NanoserveError, ValueError):
    """A setting is unknown or out of range; the message lists every fault found."""


class ModelError(NanoserveError):
    """The model cannot be found, read or run."""


class ModelNotFound(ModelError):
    """The model's name leads to no package, file, folder, hub repository or synthetic config."""


class UnsupportedModel(ModelError):
    """The checkpoint was found, but its architecture or one of its options is not implemented."""


class WeightsMismatch(ModelError):
    """The checkpoint lacks tensors, has others, or has them in another shape than its config."""


class RequestRefused(NanoserveError):
    """A request cannot run; the engine catches this and turns it into the request's output."""


class IntegrityError(NanoserveError):
    """A conservation law of the engine does not hold: a bug in nanoserve, never in the input."""
