"""The evidence of the rules holds under other releases of the libraries too, where a rule says that it does.

`$CKPT_LINT_OTHER_LIBRARIES` names a folder with other releases of transformers, peft and accelerate and what they need,
for example of ``pip install --no-deps --target FOLDER transformers==4.57.3 peft==0.17.1 accelerate==1.10.1
huggingface_hub==0.36.0 tokenizers==0.22.1 requests urllib3 idna certifi charset-normalizer``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distributions

import pytest
from hf_ckpt.lint.model.conditions.versions import Versions
from rule_pages import Example, examples

OTHERS = os.environ.get("CKPT_LINT_OTHER_LIBRARIES", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not OTHERS, reason="no other releases are here ($CKPT_LINT_OTHER_LIBRARIES)"),
]

#: `datasets` is for the newest huggingface_hub; transformers does without it.
_HEAD = "import sys; sys.modules['datasets'] = None\n"
#: Evidence that needs `datasets`, or processes of its own.
_APART = ("datasets", "trl", "__main__", "spawn")


def pinned() -> dict[str, str]:
    """The releases that are there, as ranges."""
    return {found.metadata["Name"].lower(): f"=={found.version}" for found in distributions(path=[OTHERS])}


def _parameters() -> list[Example]:
    return [example for example in examples("Evidence") if not any(word in example.code for word in _APART)]


@pytest.mark.parametrize("example", _parameters(), ids=lambda example: example.id)
def test_evidence_holds_where_the_rule_says_so(example: Example, tmp_path) -> None:
    if not Versions(pinned()).admit(example.rule.versions):
        pytest.skip(f"the rule is about {dict(example.rule.versions)}")
    environment = {**os.environ, "PYTHONPATH": OTHERS}
    command = [sys.executable, "-c", _HEAD + example.code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
