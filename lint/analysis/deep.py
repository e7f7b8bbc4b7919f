"""Code nested more deeply than Python's recursion limit allows: a chain of 5,000 ``elif``, a sum of 5,000 terms.

The analysis follows the syntax tree by recursion. What does not fit is done again on a thread with a larger stack.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_NAME = "ckpt-lint: deep"
#: Bytes of address space; only what the recursion reaches is ever touched.
_STACK = 1 << 29
_LIMIT = 400_000


def with_any_depth(function: Callable[[], T]) -> T:
    """What ``function`` returns, however deep its recursion goes; it is called again when it does not fit the stack."""
    try:
        return function()
    except RecursionError:
        if is_deep():
            raise
    return _on_large_stack(function)


def is_deep() -> bool:
    """Whether this is the thread with the large stack."""
    import threading  # start-up: only a file with findings, or a deep one, comes here

    return threading.current_thread().name == _NAME


def _on_large_stack(function: Callable[[], T]) -> T:
    import threading  # start-up: only a deep file comes here

    outcome: list[T] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            failure.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    sys.setrecursionlimit(_LIMIT)
    try:
        thread = threading.Thread(target=call, name=_NAME)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if failure:
        raise failure[0]
    return outcome[0]
