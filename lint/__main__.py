"""The ``ckpt-lint`` command.

Plain paths, `--no-cache` and the options that pre-commit passes are handled without an option parser, because a clean
commit pays for everything that is imported on the way.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeGuard

_PLAIN_OPTIONS = ("--force-exclude", "--no-cache")


def main() -> None:
    """Run ``ckpt-lint`` and exit: 0 clean, 1 findings, 2 a failure of the tool or of its input."""
    try:
        status = _run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        _drop_output()  # the reader (`| head`) has seen enough
        status = 1
    except Exception as error:  # the last line of defence: users get a sentence, not a traceback
        if os.environ.get("CKPT_LINT_TRACEBACK"):
            raise
        _explain(error)
        status = 2
    sys.exit(status)


def _explain(error: Exception) -> None:
    if _cannot_write(error):
        _drop_output()
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        return
    detail = " ".join(f"{type(error).__name__}: {error}".split())
    print(f"error: internal error of ckpt-lint ({detail}); please report it", file=sys.stderr)
    print("set CKPT_LINT_TRACEBACK=1 to see where it happened", file=sys.stderr)


def _cannot_write(error: Exception) -> TypeGuard[OSError]:
    """Whether it is the disk behind standard output that failed: errors about a file that was opened name it."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
    return isinstance(error, OSError) and error.filename is None and error.errno in full


def _drop_output() -> None:
    # Python would complain again when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    # A closed stream (`>&-`) is None; nobody reads what is written to it.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A source line that the terminal cannot show must not end the run.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # Python's own remarks on the code that is checked (invalid escapes) are not ours to print.
    warnings.simplefilter("ignore")
    rest = arguments[1:] if arguments[:1] == ["check"] else arguments
    paths = [argument for argument in rest if not argument.startswith("-")]
    options = [argument for argument in rest if argument.startswith("-")]
    if paths and all(option in _PLAIN_OPTIONS for option in options) and not _is_command(arguments[0]):
        # Start-up: plain paths need no option parser, and an interrupt while these load is caught too.
        from .cli.command import run
        from .cli.options import Options

        force_exclude, no_cache = (option in options for option in _PLAIN_OPTIONS)
        return run(Options(paths=tuple(paths), force_exclude=force_exclude, no_cache=no_cache))
    from .cli.parser import run_cli

    return run_cli(arguments)


def _is_command(word: str) -> bool:
    return word in ("rule", "explain", "help", "lsp")


if __name__ == "__main__":
    main()
