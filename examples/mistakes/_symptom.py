"""What the scripts of this folder measure with: gradients, replays, stored bytes, two ranks, and the last word."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("ACCELERATE_USE_CPU", "true")

#: A causal language model that is built and trained in milliseconds; every config of transformers takes these.
TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def confirm(holds: bool, what: str) -> None:
    """Say that the mistake went wrong as claimed; leave with status 1 when it did not."""
    if not holds:
        sys.exit(f"not confirmed: {what}")
    print(f"confirmed: {what}", flush=True)


def tokens(seed: int = 0, rows: int = 2, length: int = 8) -> dict[str, torch.Tensor]:
    """A batch for a causal language model: int64 ids of shape (rows, length), and the same as labels."""
    import torch

    ids = torch.randint(3, 60, (rows, length), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "labels": ids}


def gradients(model: nn.Module, loss: torch.Tensor | None = None) -> dict[str, torch.Tensor | None]:
    """The gradient of every trainable parameter by name, after the backward pass of ``loss`` where one is given."""
    if loss is not None:
        model.zero_grad()
        loss.backward()
    return {
        name.replace("_checkpoint_wrapped_module.", ""): None if weight.grad is None else weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def gradient_error(found: dict[str, torch.Tensor | None], wanted: dict[str, torch.Tensor | None]) -> float:
    """The largest relative error of a gradient; 1.0 for one that is missing.

    Norms below 1e-4 of the largest one count as that, so that rounding noise on a zero gradient is no error.
    """
    norms = {name: float(grad.norm()) for name, grad in wanted.items() if grad is not None}
    floor = 1e-4 * max(norms.values())
    errors = [0.0]
    for name, norm in norms.items():
        grad = found[name]
        errors.append(1.0 if grad is None else float((grad - wanted[name]).norm()) / (norm + floor))
    return max(errors)


def missing(found: dict[str, torch.Tensor | None]) -> list[str]:
    """The trainable parameters without a gradient."""
    return [name for name, grad in found.items() if grad is None]


def reentrant_nodes(tensor: torch.Tensor) -> int:
    """How many regions of the reentrant variant the graph behind ``tensor`` holds."""
    nodes, seen = [tensor.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            nodes += [parent for parent, _ in node.next_functions]
    return sum(type(node).__name__ == "CheckpointFunctionBackward" for node in seen)


class Executions:
    """How often modules are called while it is open: twice a step where a replay happens."""

    def __init__(self, *modules: nn.Module) -> None:
        self.count = 0
        self._handles = [module.register_forward_pre_hook(self._add) for module in modules]

    def _add(self, *_: object) -> None:
        self.count += 1

    def __enter__(self) -> Executions:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


@contextmanager
def saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes that the forward pass in the block keeps for backward, each storage once."""
    import torch

    held: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield lambda: sum(storage.nbytes() for storage in held.values())


def failure(action: Callable[[], object]) -> str:
    """The first line of the exception that ``action`` raises, with its class; empty when it raises none."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return ""


def on_two_ranks(worker: Callable[[int], object]) -> Any:
    """Run ``worker(rank)`` in two processes of one gloo group; what rank 0 returns, or its exception as text."""
    import torch
    import torch.multiprocessing as mp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.pt")
        # Forked, the two need not import torch and transformers again.
        context = mp.start_processes(_rank, (worker, port, result), nprocs=2, join=False, start_method="fork")
        for process in context.processes:
            process.join(120)
            process.kill()
        if not os.path.exists(result):
            sys.exit("not confirmed: rank 0 died without a result")
        return torch.load(result, weights_only=False)


def _rank(rank: int, worker: Callable[[int], object], port: int, result: str) -> NoReturn:
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank))
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.set_num_threads(1)
    returned: list[object] = []
    problem = failure(lambda: returned.append(worker(rank)))
    if rank == 0:
        torch.save(problem or returned[0], f"{result}.part")
        os.replace(f"{result}.part", result)
    # A failed collective leaves the group in a state that its own cleanup waits on.
    os._exit(0)
