"""Errors of the runtime. Each message is one sentence: what is wrong, where, and what to do."""


class CkptError(Exception):
    """Base of every error hf-ckpt raises on purpose."""


class PolicyError(CkptError, ValueError):
    """A policy string or dict is malformed, unknown, or cannot be composed."""


class ModelStructureError(CkptError):
    """A model has no decoder layers (or not the sublayers) that a policy asks for."""


class NoEffectError(CkptError):
    """A policy was applied, and the run shows that it changed nothing."""


class ConflictError(CkptError):
    """Something else already checkpoints the same layers (an FSDP plugin, a wrapper)."""


class MissingExtraError(CkptError, ImportError):
    """The runtime needs packages of the extra ``[train]`` that are not installed."""


class BudgetError(CkptError, ValueError):
    """A memory budget is malformed, unknowable on this machine, or smaller than the smallest plan."""


class ForecastError(CkptError):
    """A policy can be applied, but what it will cost is not known before it runs."""


class DeviceError(CkptError, ValueError):
    """There is no profile of a card, or the card cannot do what was asked."""


class ScriptError(CkptError):
    """A script that was to be verified cannot be run, or trains in a way that nothing can be put into."""
