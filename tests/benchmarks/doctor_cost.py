"""What watching costs: ``python -m tests.benchmarks.doctor_cost``, the share of a step that SelectiveCkpt's watch takes.

Its hooks and its looks are timed one by one in a real training, so that noise between steps has no part in the figure.
"""

from __future__ import annotations

import argparse
import itertools
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from hf_ckpt.doctor.outlook import Outlook
from hf_ckpt.doctor.watch import Watch

from ..doctor.runs import run, small_llama, texts

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 30
_SPENT: list[float] = []


def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            _SPENT.append(time.perf_counter() - start)

    return timed


def main() -> None:
    """Train, and print the share."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for owner, names in ((Watch, ("begin_step", "_before", "_after")), (Outlook, ("look",))):
        for name in names:
            setattr(owner, name, _timed(getattr(owner, name)))
    model = small_llama(hidden_size=256, intermediate_size=688, num_hidden_layers=8)
    begun: list[float] = []
    model.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter()))
    run(10**11, model, texts([256] * 4 * STEPS), arguments_of={"max_steps": STEPS, "per_device_train_batch_size": 4})
    step = median(later - earlier for earlier, later in itertools.pairwise(begun[5:]))
    watching = sum(_SPENT) / STEPS
    print(f"watching takes {1e6 * watching:.0f} us of a step of {1e3 * step:.1f} ms: {watching / step:.3%}")


if __name__ == "__main__":
    main()
