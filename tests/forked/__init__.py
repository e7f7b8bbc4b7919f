"""Scripts run in forks of one process that has the libraries loaded, so that each costs its own seconds only."""

from .scripts import Forked, Run

__all__ = ["Forked", "Run"]
