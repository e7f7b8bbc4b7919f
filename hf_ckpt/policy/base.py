"""What every policy is: a small frozen value that turns a stack of layers into decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from ..errors import PolicyError
from .decision import Decision, RecomputeLayer, Role, Stack, Tower

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..planner.budget import Budget
    from .platform import Platform

#: Parts of a layer by their role, and in how many chunks of the tokens each of them runs.
Chunks: TypeAlias = tuple[tuple[Role, int], ...]


@dataclass(frozen=True, slots=True)
class Requests:
    """What a policy asks for beside its decisions about layers.

    Attributes:
        budget: The memory budget that the planner keeps.
        head_chunks: In how many chunks of tokens the loss head runs; None: as the model runs it, or as a plan has it.
        offload: Whether a plan may move saved tensors to host memory.
        attention_chunks: In how many chunks of the tokens the projections of attention run; None: as the model runs
            them, likewise the next ones.
        mlp_chunks: The same of each MLP.
        norm_chunks: The same of each norm.
    """

    budget: Budget | None = None
    head_chunks: int | None = None
    offload: bool = False
    attention_chunks: int | None = None
    mlp_chunks: int | None = None
    norm_chunks: int | None = None

    @property
    def chunks(self) -> Chunks:
        """The parts of each layer that run in chunks, by their role."""
        asked = {
            Role.ATTENTION: self.attention_chunks,
            Role.MLP: self.mlp_chunks,
            Role.NORM: self.norm_chunks,
        }
        return tuple((role, count) for role, count in asked.items() if count is not None)


@dataclass(frozen=True, slots=True)
class Policy(ABC):
    """Base of all policies. To add one, add a file to ``hf_ckpt/policies/``; the registry finds it.

    ``name`` is how it is spelt in a policy string. ``parse`` and ``arguments`` are inverse: arguments are the texts
    between the parentheses, split at commas, and every policy survives ``str -> policy -> str``.
    """

    name: ClassVar[str]
    #: An example of how it is written, where it takes arguments.
    usage: ClassVar[str] = ""
    #: The towers it speaks about; None means all of the model's.
    towers: ClassVar[frozenset[Tower] | None] = None

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """Build the policy from its written arguments.

        Args:
            arguments: What stands between the brackets, split at commas.

        Returns:
            The policy.

        Raises:
            PolicyError: The arguments do not fit.
        """
        if arguments:
            raise PolicyError(
                f"policy `{cls.name}` takes no arguments, but got `{', '.join(arguments)}`: write `{cls.name}`"
            )
        return cls()

    def arguments(self) -> tuple[str, ...]:
        """The arguments as they would be written."""
        return ()

    def __str__(self) -> str:
        written = ",".join(self.arguments())
        return f"{self.name}({written})" if written else self.name

    @abstractmethod
    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Decide about the layers of one stack.

        Args:
            stack: The layers, as plain data.

        Returns:
            The decision for each layer index that it speaks about; other layers keep everything.

        Raises:
            PolicyError: The stack has not what the policy names.
        """

    def about_layers(self) -> bool:
        """Whether it decides about layers, so that ``@`` can say about which."""
        return True

    def covers(self, stack: Stack) -> bool:
        """Whether it speaks about this stack: one of the towers it names, else any.

        Args:
            stack: The layers, as plain data.
        """
        return self.towers is None or stack.tower in self.towers

    def why_none(self, stack: Stack) -> str:
        """Why it names no layer of this stack.

        Args:
            stack: A stack that ``decide`` has nothing to say about.

        Returns:
            A clause for the error message; empty when the policy's name says it.
        """
        return ""

    def missing(self, stack: Stack) -> str:
        """What it names that this stack does not have.

        Args:
            stack: The layers, as plain data.

        Returns:
            A sentence for the error message; empty when there is nothing.
        """
        return ""

    def requests(self) -> Requests:
        """What it asks for beside its decisions about layers."""
        return Requests()

    def check(self, requests: Requests, platform: Platform) -> None:  # noqa: B027 (most need nothing)
        """Refuse surroundings that it cannot work with.

        Args:
            requests: What the whole policy asks for beside the layers.
            platform: Engine, device and model.

        Raises:
            PolicyError: the engine, the device or the rest of the policy does not fit.
            ModelStructureError: the model lacks a part that it needs.
        """


class LayerSelector(Policy):
    """A policy that names layers: alone it recomputes them whole, behind ``@`` it says where another policy applies."""

    __slots__ = ()

    @abstractmethod
    def select(self, stack: Stack) -> frozenset[int]:
        """Choose layers of one stack.

        Args:
            stack: The layers, as plain data.

        Returns:
            The chosen layer indices.

        Raises:
            PolicyError: An index does not exist.
        """

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Recompute each chosen layer whole."""
        return {index: RecomputeLayer() for index in self.select(stack)}


@dataclass(frozen=True, slots=True)
class CountedLayers(LayerSelector):
    """A selector with a number of layers as its only argument.

    Args:
        n: The number of layers, 1 or more.
    """

    n: int

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One whole number above 0."""
        return cls(positive_int(cls.name, arguments))

    def arguments(self) -> tuple[str, ...]:
        """``n``."""
        return (str(self.n),)


def positive_int(policy: str, arguments: tuple[str, ...]) -> int:
    """Read the single argument of a policy that takes a number.

    Args:
        policy: The policy's name, for the message.
        arguments: Its written arguments.

    Returns:
        The number, 1 or more.

    Raises:
        PolicyError: There is not one argument, or it is no whole number above 0.
    """
    if len(arguments) == 1 and arguments[0].isdecimal() and int(arguments[0]) > 0:
        return int(arguments[0])
    written = f"{policy}({','.join(arguments)})" if arguments else policy
    raise PolicyError(f"policy `{written}` needs one whole number above 0: write `{policy}(2)`")
