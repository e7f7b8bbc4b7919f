"""Long sequences of an 8B on a simulated H100, into LONG.md: ``python -m tests.gpu_sim.long``.

What plans say stands beside what torch's allocator gives and what copies to host memory hold up. Rows are kept beside
the simulated runtime, so an interrupted run goes on where it was; ``--again`` runs all of them,
``--kept`` none.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .build import PLACE
from .chunked_gradients import differences
from .long_page import page
from .simulated import rig

if TYPE_CHECKING:
    from collections.abc import Callable

    from .simulated import Rig

PAGE = Path(__file__).with_name("LONG.md")
CARD = "h100"
LENGTHS = (131072, 262144, 500_000)
#: How `hf-ckpt plan` is told of each setup.
SETUPS = {
    "lora": "--lora 16 --lora-target q_proj --lora-target v_proj",
    "fsdp": "--gpus 8 --fsdp --master",
}
EIGHT = "mlp(8)+norm(8)+attention(8)"
SIXTEEN = "mlp(16)+norm(16)+attention(16)"
BUDGET = f"budget=auto+{SIXTEEN}+offload"
POLICIES = (
    "full",
    "full+offload",
    "full+head(64)+mlp(8)+offload",
    f"full+head(64)+{EIGHT}+offload",
    f"full+head(128)+{SIXTEEN}+offload",
    BUDGET,
)
PIECES = (1, 2, 4, 8, 16)
INSIDE_LENGTH = LENGTHS[0]


@dataclass(frozen=True, slots=True)
class Kept:
    """What was found, in files of a folder; ``again`` makes all of it anew, ``only`` nothing that is not there."""

    folder: Path
    again: bool = False
    only: bool = False

    def of(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gave, or gives now; None where nothing may be made."""
        file = self.folder / f"{''.join(c if c.isalnum() else '-' for c in name)}.json"
        if self.again or not (file.exists() or self.only):
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(make(), indent=1), encoding="utf-8")
            print(name, flush=True)
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def planned(setup: str) -> dict[str, dict[str, Any]]:
    """What `hf-ckpt plan` says: by length and policy, the bytes at the peak and whether they fit."""
    from click.testing import CliRunner
    from transformers import LlamaConfig

    from hf_ckpt.cli import command

    from .models import LLAMA_8B

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        config = LlamaConfig(**LLAMA_8B, max_position_embeddings=max(LENGTHS), architectures=["LlamaForCausalLM"])
        config.save_pretrained(folder)
        for length in LENGTHS:
            at = f"--gpu {CARD} {SETUPS[setup]} --attention flash_attention_2 --length {length} --json"
            asked = [word for policy in POLICIES for word in ("--policy", policy)]
            done = CliRunner(catch_exceptions=False).invoke(
                command, ["plan", "--model", folder, *shlex.split(at), *asked]
            )
            forecasts = json.loads(done.stdout)["forecasts"]
            found[str(length)] = {forecast["policy"]: forecast for forecast in forecasts}
    return found


def run(found: Rig, scenario: str, *arguments: str) -> Any:
    """What a scenario returned on the card. Raises SystemExit with its last words where it failed."""
    ended = found.run(CARD, ["-m", "tests.gpu_sim.run_scenario", scenario, *arguments])
    if ended.returncode:
        raise SystemExit(f"{scenario} {arguments} ended with {ended.returncode}:\n{ended.stderr[-4000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def in_pieces(pieces: int) -> dict[str, str]:
    """The policies of the second table with so many pieces: the MLP alone, and all parts that can be cut."""
    if pieces == 1:
        return dict.fromkeys(("mlp", "all"), "full+head(64)")
    parts = {"mlp": f"mlp({pieces})", "all": f"mlp({pieces})+norm({pieces})+attention({pieces})"}
    return {name: f"full+head(64)+{cut}" for name, cut in parts.items()}


def rows_of(found: Rig, kept: Kept, setup: str) -> dict[str, list[Any]]:
    """What the trainings of a setup took, by policy: those that are known, the shortest first."""
    rows: dict[str, list[Any]] = {policy: [] for policy in POLICIES}
    for policy in POLICIES:
        for length in map(str, LENGTHS):
            make = partial(run, found, "long_sequences", setup, policy, length)
            row = kept.of(f"{setup} {policy} {length}", make)
            rows[policy] += [row] if row else []
    return rows


def main() -> None:
    """Run what is missing, and write the page."""
    found = rig()
    if found.missing():
        raise SystemExit(found.missing())
    kept = Kept(found.folder / PLACE / "long", again="--again" in sys.argv, only="--kept" in sys.argv)
    plans = {setup: kept.of(f"plan {setup}", partial(planned, setup)) for setup in SETUPS}
    cut = {pieces: in_pieces(pieces) for pieces in PIECES}
    asked = list(dict.fromkeys(policy for policies in cut.values() for policy in policies.values()))
    inside = kept.of("inside", partial(run, found, "inside_layer", str(INSIDE_LENGTH), *asked))
    gradients = kept.of("gradients", partial(differences, asked))
    rows = {setup: rows_of(found, kept, setup) for setup in SETUPS}
    PAGE.write_text(page(rows, plans, cut, inside, gradients), encoding="utf-8")


if __name__ == "__main__":
    main()
