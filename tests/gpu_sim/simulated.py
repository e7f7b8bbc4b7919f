"""Starts Python on a simulated card: ``python -m tests.gpu_sim.simulated h100 SCRIPT ...`` or ``... -m MODULE ...``.

A card is data of :mod:`hf_ckpt.devices.cards`, handed over in the environment. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_ckpt.devices.cards import CARDS, card_named

from .build import LIBRARIES, PLACE

ROOT = Path(__file__).parents[2]
#: The environment with torch's CUDA wheel, where it is not `.venv-sim` of the repository.
VARIABLE = "HF_CKPT_SIM_VENV"


@dataclass(frozen=True, slots=True)
class Rig:
    """An environment with torch's CUDA wheel and the simulated runtime."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter with torch's CUDA wheel."""
        return self.folder / "bin" / "python"

    @property
    def libraries(self) -> list[Path]:
        """What is loaded before torch."""
        return [self.folder / PLACE / name for name in LIBRARIES]

    def missing(self) -> str:
        """Why it cannot run; empty when it can."""
        absent = [path for path in (self.python, *self.libraries) if not path.exists()]
        return f"no simulated GPU ({absent[0]} is missing): run `make sim`" if absent else ""

    def environment(self, card: str, *, count: int = 1, allocator: str = "") -> dict[str, str]:
        """The variables under which a process finds ``count`` such cards; ``allocator`` is PYTORCH_CUDA_ALLOC_CONF."""
        profile = card_named(card)
        rates = profile.rates()
        told = {
            "NAME": f"{profile.title} (simulated)",
            "COUNT": count,
            "CAPABILITY": 10 * profile.capability[0] + profile.capability[1],
            "BYTES": int(profile.capacity.value),
            "HALF": rates.matmul["half"],
            "SINGLE": rates.matmul["single"],
            "STREAM": rates.stream,
            "LINK": rates.host_link,
            "LAUNCH": rates.per_op,
        }
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTORCH_", "SIM_GPU_"))},
            **{f"SIM_GPU_{name}": str(value) for name, value in told.items()},
            "SIM_GPU_CARD": profile.name,
            "LD_PRELOAD": ":".join(map(str, self.libraries)),
            "CUDA_MODULE_LOADING": "LAZY",
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(self.folder / PLACE / "cache" / profile.name),
            **({"PYTORCH_CUDA_ALLOC_CONF": allocator} if allocator else {}),
        }

    def of_card(self, card: str, *, allocator: str = "") -> dict[str, str]:
        """Those of the variables that differ from card to card."""
        own = ("SIM_GPU_", "PYTORCH_", "XDG_CACHE_HOME")
        everything = self.environment(card, allocator=allocator)
        return {name: value for name, value in everything.items() if name.startswith(own)}

    def run(
        self, card: str, arguments: list[str], *, count: int = 1, allocator: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python with these arguments on ``count`` simulated cards."""
        return subprocess.run(
            [str(self.python), *arguments],
            env=self.environment(card, count=count, allocator=allocator),
            cwd=ROOT,
            text=True,
            capture_output=True,
            check=False,
        )

    def start(self, card: str, arguments: list[str]) -> subprocess.Popen[str]:
        """Start its Python with these arguments on a simulated card; stdin and stdout are pipes, stderr is ours."""
        return subprocess.Popen(
            [str(self.python), *arguments],
            env=self.environment(card),
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of JSON that a started process prints; libraries print other lines. Raises EOFError at the end."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise EOFError("the process on the simulated card ended")


def rig() -> Rig:
    """The rig of ``$HF_CKPT_SIM_VENV``, else that of the repository's ``.venv-sim``."""
    return Rig(Path(os.environ.get(VARIABLE, ROOT / ".venv-sim")).absolute())


def main(arguments: list[str]) -> None:
    """Replace this process by one on a simulated card."""
    if not arguments:
        raise SystemExit(f"usage: python -m tests.gpu_sim.simulated CARD ARGUMENTS...\ncards: {', '.join(CARDS)}")
    found = rig()
    if found.missing():
        raise SystemExit(found.missing())
    allocator = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    environment = found.environment(arguments[0], allocator=allocator)
    os.execve(found.python, [str(found.python), *arguments[1:]], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
