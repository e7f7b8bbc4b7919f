"""What a check of a running training is judged from: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .place import Place


@dataclass(frozen=True, slots=True)
class Patched:
    """A class of decoder layers whose ``forward`` was replaced, and where the one in its place is defined."""

    class_name: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a model itself was told about activation checkpointing before a Trainer got it.

    Attributes:
        kwargs: The arguments of its checkpoint function; None where its switch is off.
        flagged: Attributes that say it is on while no layer has been switched on.
    """

    kwargs: Mapping[str, Any] | None = None
    flagged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFacts:
    """A training before its first step.

    Attributes:
        settings: TrainingArguments by name.
        patched: Classes of layers that lost transformers' switch.
        trained: How many parameters are trained.
        adapted: Whether PEFT adapters are on the model.
        built: What the model was told before the Trainer was built.
        unsaved: Trained adapter tensors that saving the adapter would leave out.
    """

    settings: Mapping[str, Any]
    patched: tuple[Patched, ...]
    trained: int
    adapted: bool
    built: ModelSettings = ModelSettings()
    unsaved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFacts:
    """One call of torch's checkpoint in the forward, and what became of its gradients.

    Attributes:
        reentrant: Which of the two variants it is.
        place: The innermost line of the user's code.
        trained: Trainable parameters of the modules it runs, where it can be seen which these are, and this rank has a
            part of them.
        lost: How many of them have no gradient after the backward.
        has_grad_input: Whether one of its positional tensors needs a gradient.
        preserves_rng: Whether the random state is brought back in the recompute.
        drops_out: Whether a dropout of its modules is on.
        has_cache: Whether a KV cache is among its arguments.
        is_inside: Whether another checkpoint, or a layer that a policy recomputes, runs around it.
        is_flat: Whether what it returns is a tensor, or tensors in one tuple; True where it is not known.
        is_given_values: Whether ``functional_call`` runs around it, with other parameters than the model's own.
        kinds: The classes of the modules it runs.
    """

    reentrant: bool
    place: Place | None
    trained: int
    lost: int
    has_grad_input: bool
    preserves_rng: bool
    drops_out: bool
    has_cache: bool
    is_inside: bool
    is_flat: bool
    is_given_values: bool = False
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The forwards of a step before one backward, and that backward.

    Attributes:
        calls: The calls of torch's checkpoint in the forward.
        sleeping: Decoder layers with trainable parameters that ran in eval mode.
        sleeping_at: The line that put them there, where it is one of this step.
        rewritten: Buffers that the forward wrote, and the backward again.
        switched: Modules whose training mode was another one when the backward began than after the forward.
        switched_at: The line that switched them.
        readapted: Modules whose active adapters were others when the backward began than after the forward.
        readapted_at: The line that switched these.
        generated: The lines that generated text in training mode with transformers' switch on.
        learns: Whether some parameter has a gradient that is not zero.
    """

    calls: tuple[CallFacts, ...]
    sleeping: tuple[str, ...] = ()
    sleeping_at: Place | None = None
    rewritten: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()
    switched_at: Place | None = None
    readapted: tuple[str, ...] = ()
    readapted_at: Place | None = None
    generated: tuple[Place | None, ...] = ()
    learns: bool = True


@dataclass(frozen=True, slots=True)
class StepsFacts:
    """Several steps.

    Attributes:
        starved: Calls of torch's checkpoint whose parameters got no gradient but zeros in any of them.
    """

    starved: tuple[CallFacts, ...]
