"""What people fine-tune with, small: each case makes a model in training mode and a call of it that returns a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import AlbertConfig, AutoModelForCausalLM, AutoModelForMaskedLM, LlamaConfig, MixtralConfig

from tests.engine.foreign_functions import FORMS, with_fused_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

Gradients = list[torch.Tensor]

WIDTH, LAYERS, ROWS, LENGTH, VOCABULARY = 64, 4, 2, 64, 97
SIZES = {
    "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCABULARY, "use_cache": False,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A model, and a step of it that returns this rank's gradients."""

    model: nn.Module
    step: Callable[[], Gradients]


@dataclass(frozen=True)
class Case:
    """A case by its name in the table.

    ``needs`` are packages that it imports; ``ranks`` the processes of a process group that it runs in, 0 without one.
    """

    name: str
    build: Callable[[], Program]
    needs: tuple[str, ...] = ()
    ranks: int = 0


def _training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Program:
    def step() -> Gradients:
        model.zero_grad()
        loss().backward()
        found = (p.grad for p in model.parameters() if p.grad is not None)
        return [(g.to_local() if hasattr(g, "to_local") else g).clone() for g in found]

    return Program(model.train(), step)


def _llama(**changes: Any) -> nn.Module:
    return AutoModelForCausalLM.from_config(LlamaConfig(**(SIZES | changes)))


def _ids() -> torch.Tensor:
    return torch.arange(ROWS * LENGTH).reshape(ROWS, LENGTH) % VOCABULARY


def _on_text(model: nn.Module) -> Program:
    ids = _ids()
    return _training(model, lambda: model(input_ids=ids, labels=ids).loss)


def _with_lora(model: nn.Module, **options: Any) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    asked = {"r": 4, "lora_dropout": 0.05, "target_modules": "all-linear", "init_lora_weights": False} | options
    return get_peft_model(model, LoraConfig(**asked))


def _each_linear(model: nn.Module, change: Callable[[nn.Linear], nn.Module]) -> None:
    for parent in list(model.model.layers.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, change(child))


def nf4() -> Program:
    import bitsandbytes as bnb

    def packed(linear: nn.Linear) -> nn.Module:
        new = bnb.nn.Linear4bit(
            linear.in_features, linear.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4"
        )
        new.weight = bnb.nn.Params4bit(linear.weight.data, requires_grad=False, quant_type="nf4", module=new)
        return new.to("cpu")

    model = _llama().to(torch.bfloat16)
    _each_linear(model, packed)
    return _on_text(_with_lora(model))


def int8() -> Program:
    import bitsandbytes as bnb

    def packed(linear: nn.Linear) -> nn.Module:
        new = bnb.nn.Linear8bitLt(linear.in_features, linear.out_features, bias=False, has_fp16_weights=False)
        new.weight = bnb.nn.Int8Params(linear.weight.data, requires_grad=False, has_fp16_weights=False)
        return new.to("cpu")

    model = _llama().to(torch.bfloat16)
    _each_linear(model, packed)
    return _on_text(_with_lora(model))


def torchao() -> Program:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = _llama()
    quantize_(model.model.layers, Int8WeightOnlyConfig())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for layer in model.model.layers:
        _add_lora(layer.self_attn, "q_proj")
        _add_lora(layer.mlp, "down_proj")
    return _on_text(model)


class _Lora(nn.Module):
    """LoRA by hand: PEFT's own dispatch reads the version of torchao that is installed."""

    def __init__(self, base: nn.Module, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base, self.dropout = base, nn.Dropout(0.05)
        self.a, self.b = nn.Linear(inputs, 4, bias=False), nn.Linear(4, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x) + self.b(self.a(self.dropout(x)))
        return y


def _add_lora(parent: nn.Module, name: str) -> None:
    base = getattr(parent, name)
    setattr(parent, name, _Lora(base, base.in_features, base.out_features))


def _zero(stage: int) -> Program:
    import deepspeed

    # It compiles for minutes, and only makes all-reduces on a CPU faster (build_shm_op, in deepspeed/comm/torch.py).
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    model = _llama()
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=list(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": ROWS,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.0, "torch_adam": True}},
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
        },
    )
    ids = _ids()

    def step() -> Gradients:
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        gradients = [deepspeed.utils.safe_get_full_grad(p).clone() for p in model.parameters()]
        engine.step()
        return gradients

    engine.train()  # it returns nothing
    return Program(engine, step)


def zero2() -> Program:
    return _zero(2)


def zero3() -> Program:
    return _zero(3)


def tensor_parallel() -> Program:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = _llama(num_key_value_heads=4)
    split = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")} | {"o_proj": RowwiseParallel()}
    plan = {f"self_attn.{name}": style for name, style in split.items()} | {
        "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel(),
    }  # fmt: skip
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    return _on_text(model)


def fsdp1() -> Program:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = _llama()
    policy = ModuleWrapPolicy({type(model.model.layers[0])})
    cpu = torch.device("cpu")
    return _on_text(FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=cpu))


def fsdp2() -> Program:
    from torch.distributed.fsdp import fully_shard

    model = _llama()
    for layer in model.model.layers:
        fully_shard(layer)
    return _on_text(fully_shard(model))


def observing_hooks() -> Program:
    model = _llama(attention_dropout=0.1)
    norms: list[float] = []
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda module, args, output: norms.append(float(output.detach().norm())))
    return _on_text(model)


def changing_hooks() -> Program:
    model = _llama(attention_dropout=0.1)
    for layer in model.model.layers:
        layer.mlp.register_forward_hook(lambda module, args, output: 1.5 * output)
    return _on_text(model)


def opaque_function() -> Program:
    return _on_text(with_fused_kernels(_llama(attention_dropout=0.1), FORMS["saves an intermediate"]))


def custom_op() -> Program:
    return _on_text(with_fused_kernels(_llama(attention_dropout=0.1), FORMS["custom op"]))


def flux() -> Program:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=8, num_layers=2, num_single_layers=2, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    image, text = torch.randn(ROWS, LENGTH, 8), torch.randn(ROWS, 16, 32)
    call = {
        "hidden_states": image, "encoder_hidden_states": text, "pooled_projections": torch.randn(ROWS, 32),
        "timestep": torch.tensor([0.3, 0.7]), "img_ids": torch.zeros(LENGTH, 3), "txt_ids": torch.zeros(16, 3),
    }  # fmt: skip
    return _training(model, lambda: model(**call).sample.pow(2).mean())


def wan() -> Program:
    from diffusers import WanTransformer3DModel

    model = WanTransformer3DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=4, text_dim=32, freq_dim=32,
        ffn_dim=128, num_layers=LAYERS, rope_max_seq_len=32,
    )  # fmt: skip
    video, text = torch.randn(ROWS, 4, 4, 8, 8), torch.randn(ROWS, 16, 32)
    time = torch.tensor([10, 500])
    return _training(model, lambda: model(video, time, text).sample.pow(2).mean())


def unet() -> Program:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(32, 64),
        norm_num_groups=8, cross_attention_dim=32, attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    image, text, time = torch.randn(ROWS, 4, 16, 16), torch.randn(ROWS, 8, 32), torch.tensor([10, 500])
    return _training(model, lambda: model(image, time, text).sample.pow(2).mean())


def albert() -> Program:
    config = AlbertConfig(
        hidden_size=WIDTH, embedding_size=32, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, vocab_size=VOCABULARY, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return _on_text(AutoModelForMaskedLM.from_config(config))


class _Block(nn.Module):
    """A block of nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, 4, width // 4).transpose(1, 2)
            for part in self.attn["c_attn"](self.ln_1(x)).split(width, dim=2)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](attended.transpose(1, 2).reshape(rows, length, width))
        y: torch.Tensor = x + self.mlp(self.ln_2(x))
        return y


class _NanoGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.h = nn.ModuleList(_Block() for _ in range(LAYERS))
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        return nn.functional.cross_entropy(self.lm_head(x).flatten(0, 1), ids.flatten())


def nanogpt() -> Program:
    model = _NanoGPT()
    ids = _ids()
    return _training(model, lambda: model(ids))


def moe_lora() -> Program:
    model = AutoModelForCausalLM.from_config(MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2))
    experts = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    return _on_text(_with_lora(model, target_modules=["q_proj", "v_proj"], target_parameters=experts, lora_dropout=0.0))


CASES = (
    Case("NF4 weights, LoRA with dropout", nf4, ("bitsandbytes", "peft")),
    Case("8-bit weights, LoRA with dropout", int8, ("bitsandbytes", "peft")),
    Case("torchao int8 weights, LoRA with dropout", torchao, ("torchao",)),
    Case("DeepSpeed ZeRO-2", zero2, ("deepspeed",), ranks=2),
    Case("DeepSpeed ZeRO-3, one rank", zero3, ("deepspeed",), ranks=1),
    Case("DeepSpeed ZeRO-3, two ranks", zero3, ("deepspeed",), ranks=2),
    Case("tensor parallel (DTensor), two ranks", tensor_parallel, ranks=2),
    Case("FSDP1, two ranks", fsdp1, ranks=2),
    Case("FSDP2, two ranks", fsdp2, ranks=2),
    Case("hooks that observe", observing_hooks),
    Case("hooks that change values", changing_hooks),
    Case("fused norm and SwiGLU, autograd Functions that torch cannot see into", opaque_function),
    Case("a custom op without a fake kernel", custom_op),
    Case("Flux", flux, ("diffusers",)),
    Case("Wan", wan, ("diffusers",)),
    Case("UNet", unet, ("diffusers",)),
    Case("ALBERT", albert),
    Case("nanoGPT", nanogpt),
    Case("Mixtral, LoRA on its experts", moe_lora, ("peft",)),
)
