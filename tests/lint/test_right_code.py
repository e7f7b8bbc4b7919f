"""Right code that looks wrong, in several spellings of each kind; below each kind the mistake that it looks like."""

from __future__ import annotations

import re
import textwrap
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(NamedTuple):
    """Programs that are right, and those that are not, where `# error: CODE` is."""

    right: dict[str, str]
    wrong: dict[str, str]
    versions: Mapping[str, str] = MappingProxyType({})


_HEAD = """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
"""
_ERROR = re.compile(r"# error: (CKPT\d{3})$")

NORMS_THAT_KEEP_NOTHING = Kind(
    right={
        "lists, in which a reentrant checkpoint sees no tensor": """
            class Layer(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(2 * width)
                    self.conv = nn.Conv2d(2 * width, width, 1)
                def bottleneck(self, features):
                    return self.conv(self.norm(torch.cat(features, 1)))
                def forward(self, features):
                    known = [features] if isinstance(features, torch.Tensor) else features
                    return checkpoint(self.bottleneck, known, use_reentrant=True)
        """,
        "a branch for an entry that the list does not have": """
            class Net(nn.Module):
                def __init__(self, kinds):
                    super().__init__()
                    self.layers = nn.ModuleList()
                    for kind, width in kinds:
                        if kind == "linear":
                            self.layers.append(nn.Sequential(nn.Linear(width, width), nn.GELU()))
                        elif kind == "norm":
                            self.layers.append(nn.Sequential(nn.BatchNorm1d(width), nn.GELU()))
                def forward(self, x):
                    for layer in self.layers:
                        x = checkpoint(layer, x, use_reentrant=False)
                    return x
            net = Net([("linear", 8), ("none", 8)])
        """,
        "momentum zero, by position": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.stage = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, 1e-5, 0.0))
                def forward(self, x):
                    return checkpoint(self.stage, x, use_reentrant=False)
        """,
        "momentum zero, by a constant": """
            BN_MOMENTUM = 0
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(8, momentum=BN_MOMENTUM)
                def run(self, x):
                    return self.norm(x)
                def forward(self, x):
                    return checkpoint(self.run, x, use_reentrant=False)
        """,
        "momentum set to zero afterwards": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(8)
                    self.norm.momentum = 0.0
                def forward(self, x):
                    return checkpoint(self.norm, x, use_reentrant=False)
        """,
        "built in forward": """
            def block(x):
                return nn.BatchNorm1d(x.shape[1], affine=False)(x) * 2
            def forward(x):
                return checkpoint(block, x, use_reentrant=False)
        """,
        "built by a helper that forward calls": """
            def normed(x):
                norm = nn.BatchNorm1d(x.shape[1], affine=False)
                return norm(x)
            class Block(nn.Module):
                def forward(self, x):
                    return normed(x).relu()
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.blocks = nn.ModuleList([Block() for _ in range(2)])
                def forward(self, x):
                    for block in self.blocks:
                        x = checkpoint(block, x, use_reentrant=False)
                    return x
        """,
        "built by a lambda": """
            class Block(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.norm = lambda x: nn.InstanceNorm1d(dim, track_running_stats=True)(x)
                def forward(self, x):
                    return self.norm(x)
            block = Block(8)
            def forward(x):
                return checkpoint(block, x, use_reentrant=False)
        """,
    },
    wrong={
        "lists, in which the other variant sees tensors": """
            class Layer(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(2 * width)
                    self.conv = nn.Conv2d(2 * width, width, 1)
                def bottleneck(self, features):
                    return self.conv(self.norm(torch.cat(features, 1)))
                def forward(self, features):
                    known = [features] if isinstance(features, torch.Tensor) else features
                    return checkpoint(self.bottleneck, known, use_reentrant=False)  # error: CKPT106
        """,
        "a branch for an entry that the list has": """
            class Net(nn.Module):
                def __init__(self, kinds):
                    super().__init__()
                    self.layers = nn.ModuleList()
                    for kind, width in kinds:
                        if kind == "linear":
                            self.layers.append(nn.Sequential(nn.Linear(width, width), nn.GELU()))
                        elif kind == "norm":
                            self.layers.append(nn.Sequential(nn.BatchNorm1d(width), nn.GELU()))
                def forward(self, x):
                    for layer in self.layers:
                        x = checkpoint(layer, x, use_reentrant=False)  # error: CKPT106
                    return x
            net = Net([("linear", 8), ("norm", 8)])
        """,
        "a branch for an entry that another module may add": """
            from plan import more
            class Net(nn.Module):
                def __init__(self, kinds):
                    super().__init__()
                    self.layers = nn.ModuleList()
                    for kind, width in kinds:
                        if kind == "linear":
                            self.layers.append(nn.Sequential(nn.Linear(width, width), nn.GELU()))
                        elif kind == "norm":
                            self.layers.append(nn.Sequential(nn.BatchNorm1d(width), nn.GELU()))
                def forward(self, x):
                    for layer in self.layers:
                        x = checkpoint(layer, x, use_reentrant=False)  # error: CKPT106
                    return x
            net = Net([("linear", 8), ("none", 8), *more])
        """,
        "momentum as usual": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.stage = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, momentum=0.01))
                def forward(self, x):
                    return checkpoint(self.stage, x, use_reentrant=False)  # error: CKPT106
        """,
        "built once, outside": """
            norm = nn.BatchNorm1d(8)
            def block(x):
                return norm(x)
            def forward(x):
                return checkpoint(block, x, use_reentrant=False)  # error: CKPT106
        """,
    },
)

GUARDS_THAT_DATA_NEVER_PASSES = Kind(
    right={
        "pictures of a loader": """
            class Stem(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.stem = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8))
                def forward(self, x):
                    if x.requires_grad:
                        return checkpoint(self.stem, x, use_reentrant=False)
                    return self.stem(x)
            def train(loader, device):
                stem = Stem().to(device)
                for images, labels in loader:
                    images = images.to(device, non_blocking=True)
                    stem(images).sum().backward()
        """,
        "a batch as a dict": """
            class Stem(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(8)
                def forward(self, x):
                    if not x.requires_grad:
                        return self.norm(x)
                    return checkpoint(self.norm, x, use_reentrant=False)
            def train(loader):
                stem = Stem()
                for step, batch in enumerate(loader):
                    stem(batch["pixels"]).sum().backward()
        """,
        "a layer that takes pictures": """
            class Stem(nn.Module):
                def __init__(self, with_cp=False):
                    super().__init__()
                    self.with_cp = with_cp
                    self.conv1 = nn.Conv2d(3, 64, 7, stride=2)
                    self.norm1 = nn.BatchNorm2d(64)
                def forward(self, x):
                    def _inner(x):
                        return self.norm1(self.conv1(x)).relu()
                    if self.with_cp and x.requires_grad:
                        return checkpoint(_inner, x, use_reentrant=False)
                    return _inner(x)
        """,
    },
    wrong={
        "what another layer computed": """
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.BatchNorm2d(8)
                def forward(self, x):
                    if x.requires_grad:
                        return checkpoint(self.norm, x, use_reentrant=False)  # error: CKPT106
                    return self.norm(x)
            def train(loader):
                stem, block = nn.Conv2d(3, 8, 3), Block()
                for images in loader:
                    block(stem(images)).sum().backward()
        """,
    },
)

VERSION_BRANCHES = Kind(
    right={
        "packaging, keywords in the old branch": """
            from packaging import version
            def forward(block, x, mask):
                if version.parse(torch.__version__) >= version.parse("1.11"):
                    return checkpoint(block, x, use_reentrant=False, mask=mask)
                return checkpoint(block, x, mask=mask)
        """,
        "a flag of the module": """
            from packaging.version import Version
            NEW_TORCH = Version(torch.__version__) >= Version("1.11.0")
            def forward(block, x, mask):
                if NEW_TORCH:
                    return checkpoint(block, x, use_reentrant=False, mask=mask)
                else:
                    return checkpoint(block, x, mask=mask)
        """,
        "a tuple of numbers": """
            TORCH_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
            def forward(block, x, mask):
                if TORCH_VERSION < (1, 11):
                    return checkpoint(block, x, mask=mask)
                return checkpoint(block, x, use_reentrant=False, mask=mask)
        """,
        "a helper with an operator": """
            from diffusers.utils import is_torch_version
            def forward(block, x, mask):
                kwargs = {"use_reentrant": False} if is_torch_version(">=", "1.11.0") else {}
                x = checkpoint(block, x, mask=mask, **kwargs)
                if is_torch_version("<", "1.11"):
                    return checkpoint(block, x, mask=mask)
                return checkpoint(block, x, use_reentrant=False, mask=mask)
        """,
        "a helper with its direction in its name": """
            from transformers.utils import is_torch_greater_or_equal
            def forward(block, x, mask):
                if is_torch_greater_or_equal("2.4"):
                    return checkpoint(block, x, use_reentrant=False, mask=mask)
                return checkpoint(block, x, mask=mask)
        """,
        "the signature": """
            import inspect
            def forward(block, x, mask):
                if "use_reentrant" in inspect.signature(checkpoint).parameters:
                    return checkpoint(block, x, use_reentrant=False, mask=mask)
                return checkpoint(block, x, mask=mask)
        """,
        "an exception": """
            def forward(block, x, mask):
                try:
                    return checkpoint(block, x, use_reentrant=False, mask=mask)
                except TypeError:
                    return checkpoint(block, x, mask=mask)
        """,
        "the first number": """
            def forward(block, x, mask):
                if torch.__version__.startswith("1."):
                    return checkpoint(block, x, mask=mask)
                return checkpoint(block, x, use_reentrant=False, mask=mask)
        """,
    },
    wrong={
        "the branch for new releases": """
            from packaging import version
            def forward(block, x, mask):
                if version.parse(torch.__version__) >= version.parse("1.11"):
                    return checkpoint(block, x, mask, use_reentrant=True, keep=mask)  # error: CKPT301
                return checkpoint(block, x, mask)
        """,
    },
)

OLD_TORCH = Kind(
    right={
        "a call": """
            def forward(block, x):
                return checkpoint(block, x)
        """,
        "a partial": """
            from functools import partial
            run = partial(checkpoint, preserve_rng_state=True)
            def forward(block, x):
                return run(block, x)
        """,
        "segments": """
            from torch.utils.checkpoint import checkpoint_sequential
            def forward(blocks, x):
                return checkpoint_sequential(blocks, 2, x)
        """,
        "the module": """
            import torch.utils.checkpoint as cp
            def forward(block, x):
                return cp.checkpoint(block, x)
        """,
        "torch's wrapper with a keyword that is dropped": """
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
            def wrap(block):
                return checkpoint_wrapper(block, offload_to_cpu=False)
        """,
        "what never runs": """
            from packaging import version
            def forward(block, x, mask):
                if version.parse(torch.__version__) >= version.parse("2.0"):
                    return checkpoint(block, x, mask=mask, use_reentrant=True)
                return checkpoint(block, x, mask)
        """,
    },
    wrong={},
    versions={"torch": "==1.9.0"},
)

NOT_QUANTIZED = Kind(
    right={
        "loaded as it is": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B", torch_dtype=torch.bfloat16)
            model = prepare_model_for_kbit_training(model)
            for batch in []:
                model(**batch).loss.backward()
        """,
        "switched off": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained("base", load_in_4bit=False, quantization_config=None)
            model = prepare_model_for_kbit_training(model)
            for batch in []:
                model(**batch).loss.backward()
        """,
        "a flag of the user": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoModelForCausalLM, BitsAndBytesConfig
            def main(args, batches):
                bnb = BitsAndBytesConfig(load_in_4bit=True) if args.qlora else None
                model = AutoModelForCausalLM.from_pretrained("base", quantization_config=bnb)
                model = prepare_model_for_kbit_training(model)
                for batch in batches:
                    model(**batch).loss.backward()
        """,
        "built from a configuration": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoConfig, AutoModelForCausalLM
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained("base"))
            model = prepare_model_for_kbit_training(model)
            for batch in []:
                model(**batch).loss.backward()
        """,
    },
    wrong={
        "by a configuration": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoModelForCausalLM, BitsAndBytesConfig
            bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
            model = AutoModelForCausalLM.from_pretrained("base", quantization_config=bnb)
            model = prepare_model_for_kbit_training(model)  # error: CKPT103
            for batch in []:
                model(**batch).loss.backward()
        """,
        "stored so": """
            from peft import prepare_model_for_kbit_training
            from transformers import AutoModelForCausalLM
            model = AutoModelForCausalLM.from_pretrained("TheBloke/Llama-2-7B-GPTQ", device_map="auto")
            model = prepare_model_for_kbit_training(model)  # error: CKPT103
            for batch in []:
                model(**batch).loss.backward()
        """,
    },
)

UNITS_INSIDE_UNITS = Kind(
    right={
        name: f"""
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
            # Kept until backward: a reentrant checkpoint around a unit gathers nothing again (CKPT401).
            kept = ShardingStrategy.SHARD_GRAD_OP
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.fc = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
                def forward(self, x):
                    return self.fc(x)
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.ModuleList([Block() for _ in range(3)])
                def forward(self, x):
                    for layer in self.layers:
                        x = checkpoint(layer, x, use_reentrant=True)
                    return x
            net = Net()
            {wrap}
            model = FSDP(net)
        """
        for name, wrap in {
            "by position": "for i in range(len(net.layers)): net.layers[i] = FSDP(net.layers[i], sharding_strategy=kept)",
            "enumerated": "for i, layer in enumerate(net.layers): net.layers[i] = FSDP(layer, sharding_strategy=kept)",
            "by name": "for name, layer in net.layers.named_children():"
            " setattr(net.layers, name, FSDP(layer, sharding_strategy=kept))",
            "one by one": "net.layers[0] = FSDP(net.layers[0], sharding_strategy=kept);"
            " net.layers[1] = FSDP(net.layers[1], sharding_strategy=kept)",
        }.items()
    },
    wrong={},
)

BRANCHES_THAT_DO_THE_SAME = Kind(
    right={
        "a default and its value": """
            class Block(nn.Module):
                def forward(self, x, causal=True, dropout=0.0):
                    return x * 2 if causal else x * dropout
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.block = Block()
                def forward(self, x):
                    causal = True
                    if self.training:
                        return checkpoint(self.block, x, use_reentrant=False)
                    return self.block(x, causal)
        """,
        "None in training": """
            class Net(nn.Module):
                def forward(self, x, rope):
                    memory = None if self.training else self.memory
                    for block in self.blocks:
                        if self.training:
                            x = checkpoint(block, x, rope, use_reentrant=False)
                        else:
                            x = block(x, rope, memory)
                    return x
        """,
        "None until somebody asks": """
            class Net(nn.Module):
                def forward(self, x, rope, hook=None, layer_scale=None):
                    for block in self.blocks:
                        if self.gradient_checkpointing and self.training:
                            x = checkpoint(block, x, rope, use_reentrant=False)
                        else:
                            x = block(x, rope, hook=hook, layer_scale=layer_scale)
                    return x
        """,
        "what the block never reads": """
            class Block(nn.Module):
                def forward(self, x, trace, name=""):
                    return x * 2
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.blocks = nn.ModuleList([Block() for _ in range(2)])
                def forward(self, x, names):
                    for block, label in zip(self.blocks, names):
                        if self.training:
                            x = checkpoint(block, x, None, use_reentrant=False)
                        else:
                            x = block(x, None, label)
                    return x
        """,
        "the mean of one number": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.head = nn.Linear(8, 8)
                    self.grad_ckpt = True
                def loss(self, x, y):
                    return F.mse_loss(self.head(x), y)
                def forward(self, x, y):
                    if self.grad_ckpt:
                        return checkpoint(self.loss, x, y, use_reentrant=False)
                    return self.loss(x, y).mean()
        """,
        "an activation of what is positive": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.mlp = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
                    self.relu = nn.ReLU()
                    self.grad_ckpt = True
                def forward(self, x):
                    if self.grad_ckpt and self.training:
                        return checkpoint(self.mlp, x, use_reentrant=False)
                    return self.relu(self.mlp(x))
        """,
        "what one branch leaves out follows behind both": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU())
                    self.norm = nn.LayerNorm(8)
                    self.grad_ckpt = True
                def forward(self, x):
                    if self.grad_ckpt:
                        x = checkpoint(self.mlp, x, use_reentrant=False)
                    else:
                        x = self.norm(self.mlp(x))
                    if self.grad_ckpt:
                        x = self.norm(x)
                    return x
        """,
        "layers chosen by their number": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2) for _ in range(4))
                    self.norm = nn.LayerNorm(8)
                    self.ckpt_layers = (0, 1, 2)
                def forward(self, x):
                    for i, block in enumerate(self.blocks):
                        if i in self.ckpt_layers:
                            x = checkpoint(block, x, use_reentrant=False)
                            continue
                        x = block(x)
                        x = self.norm(x)
                    return x
        """,
        "a switch between two ways to compute the same": """
            class Attn(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.grad_ckpt = True
                def attend(self, q, k, v, fused=True):
                    if fused:
                        return F.scaled_dot_product_attention(q, k, v)
                    return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v
                def forward(self, q, k, v):
                    if self.grad_ckpt:
                        return checkpoint(self.attend, q, k, v, False, use_reentrant=False)
                    return self.attend(q, k, v)
        """,
        "the number of chunks": """
            class Ffn(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                    self.grad_ckpt = True
                def run(self, x, chunks=1):
                    return torch.cat([self.lin(p) for p in x.chunk(chunks)])
                def forward(self, x):
                    if self.grad_ckpt:
                        return checkpoint(self.run, x, use_reentrant=False)
                    return self.run(x, chunks=4)
        """,
        "None that asks for the causal mask": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                    self.grad_ckpt = True
                def attn(self, x, mask=None):
                    q = self.lin(x)
                    return F.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=mask is None)
                def forward(self, x):
                    n = x.shape[-2]
                    mask = torch.ones(n, n, dtype=torch.bool).tril()
                    if self.grad_ckpt:
                        return checkpoint(self.attn, x, None, use_reentrant=False)
                    return self.attn(x, mask)
        """,
        "zeros where the other gives none": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.lin = nn.Linear(8, 8)
                    self.grad_ckpt = True
                def attn(self, x, bias=None):
                    y = self.lin(x)
                    return y if bias is None else y + bias
                def forward(self, x):
                    if self.grad_ckpt:
                        return checkpoint(self.attn, x, None, use_reentrant=False)
                    return self.attn(x, torch.zeros(8))
        """,
        "a norm under two names": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.attn, self.mlp = (nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2))
                    self.norm1 = nn.LayerNorm(8)
                    self.norm2 = self.norm1
                    self.grad_ckpt = True
                def forward(self, x):
                    if self.grad_ckpt:
                        x = x + checkpoint(self.attn, self.norm1(x), use_reentrant=False)
                        x = x + checkpoint(self.mlp, self.norm1(x), use_reentrant=False)
                    else:
                        x = x + self.attn(self.norm1(x))
                        x = x + self.mlp(self.norm2(x))
                    return x
        """,
        "what a switch that is off would read": """
            class Block(nn.Module):
                def forward(self, x, chunked=False, size=None):
                    if not chunked:
                        return x * 2
                    return torch.cat([part * 2 for part in x.split(size)])
            class Net(nn.Module):
                def __init__(self, chunked):
                    super().__init__()
                    self.block, self.chunked = Block(), chunked
                def forward(self, x, size):
                    if self.training and not self.chunked:
                        return checkpoint(self.block, x, use_reentrant=False)
                    return self.block(x, self.chunked, size)
        """,
    },
    wrong={
        "a mask that is needed": """
            class Net(nn.Module):
                def forward(self, x, mask):
                    for block in self.blocks:
                        if self.training:
                            x = checkpoint(block, x, use_reentrant=False)  # error: CKPT128
                        else:
                            x = block(x, mask)
                    return x
        """,
        "an argument that the block reads": """
            class Block(nn.Module):
                def forward(self, x, scale=1.0):
                    return x * scale
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.block = Block()
                def forward(self, x, scale):
                    if self.training:
                        return checkpoint(self.block, x, use_reentrant=False)  # error: CKPT128
                    return self.block(x, scale)
        """,
    },
)

GRAD_MODE_THAT_CHANGES_NOTHING = Kind(
    right={
        name: f"""
            class Layer(nn.Module):
                def __init__(self, conductor):
                    super().__init__()
                    self.fc, self.conductor, self.passes = nn.Linear(8, 8), conductor, 0
                def run(self, x):
{textwrap.indent(textwrap.dedent(body).strip(), " " * 20)}
                def forward(self, x):
                    return checkpoint(self.run, x, use_reentrant=True)
        """
        for name, body in {
            "a copy": """
                if torch.is_grad_enabled():
                    x = x.clone()
                return self.fc(x)
            """,
            "a copy, by an expression": "return self.fc(x.contiguous() if torch.is_grad_enabled() else x)",
            "a count": """
                if not torch.is_grad_enabled():
                    self.passes += 1
                return self.fc(x)
            """,
            "a hook in both": """
                if torch.is_grad_enabled():
                    self.conductor.on_recompute(x)
                else:
                    self.conductor.on_forward(x)
                return self.fc(x)
            """,
            "nothing added": """
                out = self.fc(x)
                if torch.is_grad_enabled() and not out.requires_grad:
                    out = out + 0.0
                return out
            """,
            "a checkpoint of another name": """
                remat = get_remat()
                if torch.is_grad_enabled():
                    y = remat(self.fc, x)
                else:
                    y = self.fc(x)
                return y
            """,
            "the same in two steps": """
                if torch.is_grad_enabled():
                    h = self.fc(x)
                    h = torch.tanh(h)
                    return h
                return torch.tanh(self.fc(x))
            """,
            "a context": """
                if not torch.is_grad_enabled():
                    with torch.no_grad():
                        y = self.fc(x)
                else:
                    y = self.fc(x)
                return y
            """,
        }.items()
    },
    wrong={
        "another function": """
            def run(x, weight):
                if torch.is_grad_enabled():
                    y = torch.tanh(x @ weight)
                else:
                    y = (x @ weight).clamp(-1, 1)
                return y
            def forward(x, weight):
                return checkpoint(run, x, weight, use_reentrant=True)  # error: CKPT132
        """,
        "another scale": """
            def run(x, weight):
                if not torch.is_grad_enabled():
                    return x @ weight
                return (x * 0.5) @ weight
            def forward(x, weight):
                return checkpoint(run, x, weight, use_reentrant=True)  # error: CKPT132
        """,
    },
)

LIBRARIES_THAT_DO_IT_THEMSELVES = Kind(
    right={
        "Unsloth switches in generate": """
            from trl import SFTConfig, SFTTrainer
            from unsloth import FastLanguageModel
            model, tok = FastLanguageModel.from_pretrained(model_name="u/m", load_in_4bit=True)
            trainer = SFTTrainer(model=model, processing_class=tok, args=SFTConfig("o"))
            trainer.train()
            model.generate(input_ids=None, max_new_tokens=16)
        """,
        "Unsloth, by the module": """
            import unsloth
            from trl import SFTConfig, SFTTrainer
            model, tok = unsloth.FastVisionModel.from_pretrained("u/m")
            model = unsloth.FastVisionModel.get_peft_model(model, use_gradient_checkpointing="unsloth")
            trainer = SFTTrainer(model=model, args=SFTConfig("o"))
            trainer.train()
            print(tok.decode(model.generate(max_new_tokens=16)[0]))
        """,
        "trl makes its own arguments of plain ones": """
            from transformers import TrainingArguments
            from trl import SFTTrainer
            args = TrainingArguments("out")
            args.gradient_checkpointing = True
            SFTTrainer(model="m", args=args).train()
        """,
    },
    wrong={
        "a Trainer reads the new name": """
            from transformers import Trainer, TrainingArguments
            args = TrainingArguments("out")
            args.gradient_checkpointing = True  # error: CKPT201
            Trainer(model="m", args=args).train()
        """,
    },
)

KEYWORDS_THAT_WERE_TAKEN_OUT = Kind(
    right={
        "popped from the keyword arguments": """
            def run(fn, *args, **kwargs):
                kwargs.pop("use_reentrant", None)
                return checkpoint(fn, *args, use_reentrant=True, **kwargs)
        """,
        "deleted under a condition": """
            def run(fn, *args, **kwargs):
                if "use_reentrant" in kwargs:
                    del kwargs["use_reentrant"]
                return checkpoint(fn, *args, use_reentrant=False, **kwargs)
        """,
    },
    wrong={
        "popped, and not given": """
            def run(fn, x, preserve):
                kwargs = {"use_reentrant": True, "preserve_rng_state": preserve}
                kwargs.pop("use_reentrant")
                return checkpoint(fn, x, **kwargs)  # error: CKPT101
        """,
    },
)

OBJECTS_THAT_HOLD_WHAT_THEY_WERE_GIVEN = Kind(
    right={
        "two objects of one class": """
            class Residual(nn.Module):
                def __init__(self, fn):
                    super().__init__()
                    self.fn = fn
                def forward(self, x):
                    return self.fn(x) + x
            class Net(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.stem = Residual(nn.Sequential(nn.Conv1d(dim, dim, 1), nn.BatchNorm1d(dim)))
                    self.body = nn.Sequential(Residual(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim))), nn.GELU())
                def forward(self, x):
                    return checkpoint(self.body, self.stem(x), use_reentrant=False)
        """,
        "through a method of the object": """
            class PreNorm(nn.Module):
                def __init__(self, norm, fn):
                    super().__init__()
                    self.norm, self.fn = norm, fn
                def inner(self, x):
                    return self.fn(self.norm(x))
                def forward(self, x):
                    return self.inner(x) + x
            class Net(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.first = PreNorm(nn.BatchNorm1d(dim), nn.Linear(dim, dim))
                    self.second = PreNorm(nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, dim), nn.GELU()))
                def forward(self, x):
                    return checkpoint(self.second, self.first(x), use_reentrant=False)
        """,
    },
    wrong={
        "the one that holds it": """
            class Residual(nn.Module):
                def __init__(self, fn):
                    super().__init__()
                    self.fn = fn
                def forward(self, x):
                    return self.fn(x) + x
            class Net(nn.Module):
                def __init__(self, dim):
                    super().__init__()
                    self.stem = Residual(nn.Sequential(nn.Conv1d(dim, dim, 1), nn.BatchNorm1d(dim)))
                    self.body = Residual(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim)))
                def forward(self, x):
                    return self.body(checkpoint(self.stem, x, use_reentrant=False))  # error: CKPT106
        """,
    },
)

_PAIR = """
import types
from functools import partial
from torch.utils.checkpoint import checkpoint_sequential
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, image, text):
        return self.linear(image), text
    def both(self, image, text):
        return image, text
    def image(self, image):
        return image
    @staticmethod
    def twice(image):
        return image * 2
    @classmethod
    def made(cls, image):
        return image + 1
def masked(x, *, mask):
    return x * mask
def unpacked(self, pair):
    return self.linear(pair[0]), pair[1]
"""


def _with_pairs(code: str) -> str:
    return _PAIR + textwrap.dedent(code)


CALLS_THAT_TAKE_ONE_VALUE = Kind(
    right={
        name: _with_pairs(code)
        for name, code in {
            "partials by keyword": """
                def run(x, mask):
                    x = checkpoint_sequential([partial(masked, mask=mask)] * 2, 2, x, use_reentrant=False)
                    return checkpoint_sequential([partial(Pair(), text=mask)] * 2, 2, x, use_reentrant=False)
            """,
            "partials by position, and open ones": """
                def run(x, mask, given, options):
                    blocks = [partial(Pair(), mask), partial(masked, **options), partial(Pair().both, *given)]
                    return checkpoint_sequential(blocks, 3, x, use_reentrant=False)
            """,
            "methods": """
                def run(x):
                    blocks = [Pair().image, Pair.twice, Pair().twice, Pair.made, Pair().made]
                    return checkpoint_sequential(blocks, 5, x, use_reentrant=False)
            """,
            "a `__call__` of its own": """
                class Called(Pair):
                    def __call__(self, pair):
                        return super().__call__(*pair)
                def run(pair):
                    return checkpoint_sequential([Called(), Called()], 2, pair, use_reentrant=False)
            """,
            "a base class that is not shown": """
                from blocks import Unpacking
                class Called(Unpacking, Pair):
                    pass
                def run(pair):
                    return checkpoint_sequential([Called(), Called()], 2, pair, use_reentrant=False)
            """,
            "a replaced forward": """
                def run(pair):
                    block = Pair()
                    block.forward = types.MethodType(unpacked, block)
                    return checkpoint_sequential([block, block], 2, pair, use_reentrant=False)
            """,
            "a replaced method": """
                def run(pair):
                    block = Pair()
                    block.both = lambda pair: pair
                    return checkpoint_sequential([block.both, block.both], 2, pair, use_reentrant=False)
            """,
            "a forward replaced in the class": """
                Pair.forward = unpacked
                def run(pair):
                    return checkpoint_sequential(nn.Sequential(Pair(), Pair()), 2, pair, use_reentrant=False)
            """,
            "a forward replaced by setattr": """
                setattr(Pair, "forward", unpacked)
                def run(pair):
                    return checkpoint_sequential(nn.Sequential(Pair(), Pair()), 2, pair, use_reentrant=False)
            """,
            "a hook that unpacks": """
                class Hooked(Pair):
                    def __init__(self):
                        super().__init__()
                        self.register_forward_pre_hook(lambda module, inputs: tuple(inputs[0]))
                def run(pair):
                    return checkpoint_sequential([Hooked(), Hooked()], 2, pair, use_reentrant=False)
            """,
            "a hook of all modules": """
                nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: tuple(inputs[0]))
                def run(pair):
                    return checkpoint_sequential([Pair(), Pair()], 2, pair, use_reentrant=False)
            """,
            "a number as the input": """
                class Row(nn.Module):
                    def __init__(self):
                        super().__init__()
                        self.rows = nn.Parameter(torch.ones(4, 8))
                    def forward(self, index):
                        return self.rows[index]
                def run(blocks, count):
                    x = checkpoint_sequential([Row(), nn.Linear(8, 8)], len([1, 2]), 1, use_reentrant=False)
                    x = checkpoint_sequential([nn.Identity(), Row()], count, 1, use_reentrant=False)
                    return x, checkpoint_sequential(blocks, segments=len(blocks), input=0, use_reentrant=False)
            """,
        }.items()
    },
    wrong={
        name: _with_pairs(code)
        for name, code in {
            "two values": """
                def run(pair):
                    return checkpoint_sequential([Pair(), Pair()], 2, pair, use_reentrant=False)  # error: CKPT310
            """,
            "a method of two values": """
                def run(pair):
                    blocks = [Pair().both, Pair().image]
                    return checkpoint_sequential(blocks, 2, pair, use_reentrant=False)  # error: CKPT310
            """,
            "a partial that leaves one open": """
                def run(x, mask):
                    blocks = [partial(masked, x=mask), partial(masked)]
                    return checkpoint_sequential(blocks, 2, x, use_reentrant=False)  # error: CKPT310
            """,
            "the number of segments as the input": """
                def run(x):
                    blocks = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
                    return checkpoint_sequential(blocks, x, 2, use_reentrant=False)  # error: CKPT310
            """,
            "the input as the number of segments": """
                def run(blocks, x):
                    return checkpoint_sequential(blocks, nn.Linear(8, 8)(x), 2, use_reentrant=False)  # error: CKPT310
            """,
        }.items()
    },
)

KINDS = {
    "calls that take one value": CALLS_THAT_TAKE_ONE_VALUE,
    "objects that hold what they were given": OBJECTS_THAT_HOLD_WHAT_THEY_WERE_GIVEN,
    "keywords that were taken out": KEYWORDS_THAT_WERE_TAKEN_OUT,
    "norms that keep nothing": NORMS_THAT_KEEP_NOTHING,
    "guards that data never passes": GUARDS_THAT_DATA_NEVER_PASSES,
    "version branches": VERSION_BRANCHES,
    "old torch": OLD_TORCH,
    "not quantized": NOT_QUANTIZED,
    "units inside units": UNITS_INSIDE_UNITS,
    "branches that do the same": BRANCHES_THAT_DO_THE_SAME,
    "grad mode that changes nothing": GRAD_MODE_THAT_CHANGES_NOTHING,
    "libraries that do it themselves": LIBRARIES_THAT_DO_IT_THEMSELVES,
}


def program(code: str) -> str:
    return _HEAD + textwrap.dedent(code)


def named(part: str) -> list[object]:
    return [
        pytest.param(kind, code, id=f"{title}: {name}")
        for title, kind in KINDS.items()
        for name, code in getattr(kind, part).items()
    ]


@pytest.mark.parametrize(("kind", "code"), named("right"))
def test_right_code_is_not_reported(kind, code):
    found = check_source(program(code), versions=kind.versions)
    assert [(finding.span.line, finding.code, finding.message) for finding in found] == []


@pytest.mark.parametrize(("kind", "code"), named("wrong"))
def test_the_mistake_that_it_looks_like_is_reported(kind, code):
    text = program(code)
    expected = [(n, m[1]) for n, line in enumerate(text.splitlines(), 1) if (m := _ERROR.search(line))]
    assert expected
    found = check_source(text, versions=kind.versions)
    assert [(finding.span.line, finding.code) for finding in found] == expected
