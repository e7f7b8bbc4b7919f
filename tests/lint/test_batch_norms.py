"""The table of models with a BatchNorm is what the installed libraries have, and what their runs show."""

from __future__ import annotations

import re
from importlib.metadata import distributions

import batch_norms
import pytest
from hf_ckpt.lint.model.known_models.batch_norms import FAMILIES, TORCHVISION, TRANSFORMERS
from hf_ckpt.lint.model.known_models.timm_models import _FAMILIES, _OTHER_NORM

HINT = "run `python -m tests.lint.batch_norms`"


def installed(library: str) -> None:
    """Skip without the release of ``library`` that the table was made from."""
    made = re.search(rf"{library} (\d[\w.+]*\d)", batch_norms.TABLE.read_text("utf-8"))
    assert made is not None
    here = {found.metadata["Name"]: found.version for found in distributions()}.get(library)
    if here != made[1]:
        pytest.skip(f"the table is that of {library} {made[1]}")


def test_the_table_of_transformers_is_up_to_date():
    installed("transformers")
    families = batch_norms.of_transformers()
    assert {name: layer for family in families for name, layer in family.items()} == TRANSFORMERS, HINT
    assert all(name.startswith(FAMILIES) for name in TRANSFORMERS)


def test_the_table_of_torchvision_is_up_to_date():
    installed("torchvision")
    assert batch_norms.of_torchvision() == TORCHVISION, HINT


@pytest.mark.slow
@pytest.mark.parametrize("name", {layer: name for name, layer in TRANSFORMERS.items()}.values())
def test_checkpointed_layers_of_transformers_have_the_norm(name):
    """The model that the class builds by default, on the meta device, has what its source says."""
    installed("transformers")
    import torch
    import transformers
    from torch.nn.modules.batchnorm import _BatchNorm
    from transformers.modeling_layers import GradientCheckpointingLayer

    kind = getattr(transformers, name)
    with torch.device("meta"):
        model = kind(kind.config_class())
    assert kind.supports_gradient_checkpointing
    layers = [module for module in model.modules() if type(module).__name__ == TRANSFORMERS[name]]
    assert layers
    for layer in layers:
        assert isinstance(layer, GradientCheckpointingLayer)
        assert any(isinstance(part, _BatchNorm) and part.track_running_stats for part in layer.modules())


@pytest.mark.slow
def test_families_of_timm_have_the_norm():
    """The shortest name of each family that the pattern knows, on the meta device."""
    timm = pytest.importorskip("timm", reason="timm is not installed")
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    shortest: dict[str, str] = {}
    for name in sorted(timm.list_models(), key=len):
        family = _FAMILIES.match(name)
        if family is not None and not _OTHER_NORM.search(name):
            shortest.setdefault(family[0].rstrip("0123456789"), name)
    for name in shortest.values():
        with torch.device("meta"):
            model = timm.create_model(name)
        model.set_grad_checkpointing()
        assert any(isinstance(part, _BatchNorm) and part.track_running_stats for part in model.modules()), name


def test_parts_of_torchvision_run_twice():
    installed("torchvision")
    import torch
    from torch.utils.checkpoint import checkpoint

    models = batch_norms.torchvision_models()
    resnet, x = models.resnet18().train(), torch.randn(2, 64, 8, 8, requires_grad=True)
    checkpoint(resnet.layer1, x, use_reentrant=False).sum().backward()  # noqa: CKPT106
    assert int(resnet.layer1[0].bn1.num_batches_tracked) == 2
    densenet = models.densenet121(memory_efficient=True).train()  # noqa: CKPT106
    densenet(torch.randn(2, 3, 32, 32)).sum().backward()
    assert int(densenet.features.denseblock1.denselayer2.norm1.num_batches_tracked) == 2
    assert int(densenet.features.denseblock1.denselayer2.norm2.num_batches_tracked) == 1
