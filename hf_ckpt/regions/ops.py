"""Which op outputs a selective region keeps, on torch's selective activation checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from ..policy.saveable import is_saveable

if TYPE_CHECKING:
    from ..policy.decision import SaveableOps


class SaveableContexts:
    """The ``context_fn`` of a region: fresh selective-checkpoint contexts a call. Plain data, so it pickles.

    An op output is kept where all ``rules`` keep it.
    """

    def __init__(self, *rules: SaveableOps) -> None:
        self.rules = rules
        self.cached: dict[Any, Any] = {}

    def __call__(self) -> tuple[Any, Any]:
        """``torch.utils.checkpoint.create_selective_checkpoint_contexts`` with these rules."""
        contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(self._policy)  # type: ignore[no-untyped-call]
        self.cached = contexts[0].storage
        return contexts

    def held(self) -> list[Any]:
        """What the last forward cached; torch keeps it beside autograd, where no saved-tensor hook sees it."""
        entries = tree_leaves(list(self.cached.values()))  # lists of outputs in torch 2.11, dicts of them later
        return [entry.val for entry in entries if hasattr(entry, "val")]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"cached": {}}

    def _policy(self, ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = all(keeps(rule, op) for rule in self.rules)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def keeps(saveable: SaveableOps, op: Any) -> bool:
    """Whether the outputs of this ``OpOverload`` are kept."""
    return isinstance(op, torch._ops.OpOverload) and is_saveable(saveable, str(op))


def has_op(name: str) -> bool:
    """Whether torch has an op of this name: ``mm``, ``aten.addmm``, ``aten.mm.default``."""
    parts = name.split(".")
    namespace = getattr(torch.ops, parts[0] if len(parts) > 1 else "aten")
    return hasattr(namespace, parts[1] if len(parts) > 1 else parts[0])
