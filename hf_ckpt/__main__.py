"""``python -m hf_ckpt``: the command ``hf-ckpt``, for launchers that take a module."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main()
