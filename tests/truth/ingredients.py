"""What programs are written from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to write a part of a program; ``needs`` is an import that it brings."""

    name: str
    code: str
    needs: str = ""
