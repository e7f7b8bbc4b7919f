"""Adapters that are saved through torch's checkpoint wrappers, and wrappers that are taken off before."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

ADAPTED = """\
import functools
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, CheckpointWrapper, apply_activation_checkpointing, checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer


def build(name):
    base = AutoModelForCausalLM.from_pretrained(name)
    base.config.use_cache = False
    return get_peft_model(base, LoraConfig(r=8, target_modules=["q_proj"], task_type="CAUSAL_LM"))


def wrap_layers(model):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))


def fit(model, batches):
    model.train()
    opt = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
    for ids in batches:
        model(input_ids=ids, labels=ids).loss.backward()
        opt.step()
        opt.zero_grad()

"""
FOUND = {
    "too late": """
def unwrap_layers(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, name, child._checkpoint_wrapped_module)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    model.save_pretrained("out")
    unwrap_layers(model)
    torch.save(model.state_dict(), "m.pt")
""",
    "after the last epoch": """
def unwrap_layers(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, name, child._checkpoint_wrapped_module)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    for epoch in range(3):
        fit(model, batches)
        model.save_pretrained(f"out/{epoch}")
    unwrap_layers(model)
    model.save_pretrained("out")
""",
    "and put around again": """
def unwrap_layers(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, name, child._checkpoint_wrapped_module)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    unwrap_layers(model)
    wrap_layers(model)
    model.save_pretrained("out")
""",
    "with the tokenizer": """
def main(name, batches):
    tok = AutoTokenizer.from_pretrained(name)
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    tok.save_pretrained("out")
    model.save_pretrained("out")
""",
    "only counted": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    print(sum(isinstance(m, CheckpointWrapper) for m in model.modules()), "wrapped")
    print([n.replace("_checkpoint_wrapped_module.", "") for n, _ in model.named_parameters()])
    fit(model, batches)
    model.save_pretrained("out")
""",
    "every second layer": """
def main(name, batches):
    model = build(name)
    inner = model.base_model.model.model
    inner.layers = torch.nn.ModuleList(checkpoint_wrapper(l) if i % 2 == 0 else l for i, l in enumerate(inner.layers))
    fit(model, batches)
    model.save_pretrained("out")
""",
    "the longest list": """
def main(name, batches):
    model = build(name)
    stacks = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    layers = max(stacks, key=len)
    for i in range(len(layers)):
        layers[i] = checkpoint_wrapper(layers[i])
    fit(model, batches)
    model.save_pretrained("out")
""",
    "its tensors alone": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    torch.save(get_peft_model_state_dict(model), "adapter.bin")
""",
    "the whole state dict": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    model.save_pretrained("out", state_dict=model.state_dict())
""",
    "a Trainer": """
def main(name, rows):
    model = build(name)
    wrap_layers(model)
    args = TrainingArguments("out", gradient_checkpointing=False)
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train()
""",
    "a Trainer of its own": """
class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kw):
        out = model(**inputs)
        return (out.loss, out) if return_outputs else out.loss


def main(name, rows):
    model = build(name)
    wrap_layers(model)
    args = TrainingArguments("out", gradient_checkpointing=False)
    trainer = MyTrainer(model, args, train_dataset=rows)
    trainer.train()
""",
    "a Trainer that saves behind": """
def main(name, rows):
    model = build(name)
    wrap_layers(model)
    args = TrainingArguments("out", gradient_checkpointing=False, save_strategy="no")
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train()
    trainer.save_model("out")
""",
    "unwrapped by accelerate": """
def main(name, batches):
    acc = Accelerator()
    model = build(name)
    wrap_layers(model)
    model = acc.prepare(model)
    fit(model, batches)
    acc.unwrap_model(model).save_pretrained("out")
""",
    "another part is replaced": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    model.base_model.model.model.norm = model.base_model.model.model.norm.float()
    fit(model, batches)
    model.save_pretrained("out")
""",
}
TAKEN_OFF = {
    "by name": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    for parent in list(model.modules()):
        for key, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, key, getattr(child, "_checkpoint_wrapped_module"))
    model.save_pretrained("out")
""",
    "in the dict of children": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    for parent in model.modules():
        for key, child in parent._modules.items():
            if hasattr(child, "_checkpoint_wrapped_module"):
                parent._modules[key] = child._checkpoint_wrapped_module
    model.save_pretrained("out")
""",
    "item by item": """
def main(name, batches):
    model = build(name)
    layers = model.base_model.model.model.layers
    for i, layer in enumerate(layers):
        layers[i] = checkpoint_wrapper(layer)
    fit(model, batches)
    for i in range(len(layers)):
        layers[i] = layers[i]._checkpoint_wrapped_module
    model.save_pretrained("out")
""",
    "in a new list": """
def main(name, batches):
    model = build(name)
    inner = model.base_model.model.model
    inner.layers = torch.nn.ModuleList(checkpoint_wrapper(l) for l in inner.layers)
    fit(model, batches)
    inner.layers = torch.nn.ModuleList([l._checkpoint_wrapped_module for l in inner.layers])
    model.save_pretrained("out")
""",
    "the layers that were kept": """
def main(name, batches):
    model = build(name)
    layers = model.base_model.model.model.layers
    originals = list(layers)
    for i, layer in enumerate(originals):
        layers[i] = checkpoint_wrapper(layer)
    fit(model, batches)
    for i, layer in enumerate(originals):
        layers[i] = layer
    model.save_pretrained("out")
""",
    "the list that was kept": """
def main(name, batches):
    model = build(name)
    inner = model.base_model.model.model
    plain = inner.layers
    inner.layers = torch.nn.ModuleList(checkpoint_wrapper(l) for l in plain)
    fit(model, batches)
    inner.layers = plain
    model.save_pretrained("out")
""",
    "the only child": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    for path, child in list(model.named_modules()):
        if isinstance(child, CheckpointWrapper):
            parent, _, key = path.rpartition(".")
            setattr(model.get_submodule(parent), key, next(child.children()))
    model.save_pretrained("out")
""",
    "by path": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    for path, child in list(model.named_modules()):
        if isinstance(child, CheckpointWrapper):
            model.set_submodule(path, child._checkpoint_wrapped_module)
    model.save_pretrained("out")
""",
    "child by child": """
def strip(module):
    for key, child in module.named_children():
        strip(child)
        if isinstance(child, CheckpointWrapper):
            module.add_module(key, child._checkpoint_wrapped_module)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    strip(model)
    model.save_pretrained("out")
""",
    "by a function that gives them back": """
def strip(module):
    if isinstance(module, CheckpointWrapper):
        return strip(module._checkpoint_wrapped_module)
    for key, child in module.named_children():
        setattr(module, key, strip(child))
    return module


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    strip(model).save_pretrained("out")
""",
    "in a context manager": """
import contextlib


@contextlib.contextmanager
def unwrapped(model):
    found = [(n, m) for n, m in model.named_modules() if isinstance(m, CheckpointWrapper)]
    for n, m in found:
        model.set_submodule(n, m._checkpoint_wrapped_module)
    yield model
    for n, m in found:
        model.set_submodule(n, m)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    for epoch in range(3):
        fit(model, batches)
        with unwrapped(model) as plain:
            plain.save_pretrained(f"out/{epoch}")
""",
    "and put around again": """
def unwrap_layers(model):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, name, child._checkpoint_wrapped_module)


def main(name, batches):
    model = build(name)
    wrap_layers(model)
    for epoch in range(3):
        fit(model, batches)
        unwrap_layers(model)
        model.save_pretrained(f"out/{epoch}")
        wrap_layers(model)
""",
    "under their own names": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    model.save_pretrained("out", state_dict=dict(model.named_parameters()))
""",
    "those that train, under their own names": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    trained = {key: p for key, p in model.named_parameters() if p.requires_grad}
    torch.save(get_peft_model_state_dict(model, state_dict=trained), "adapter.bin")
""",
    "its tensors, without wrappers": """
def main(name, batches):
    model = build(name)
    layers = model.base_model.model.model.layers
    for i, layer in enumerate(layers):
        layers[i] = checkpoint_wrapper(layer)
    fit(model, batches)
    for i, layer in enumerate(layers):
        layers[i] = layer._checkpoint_wrapped_module
    torch.save(get_peft_model_state_dict(model), "adapter.bin")
""",
    "only the tokenizer is saved": """
def main(name, batches):
    tok = AutoTokenizer.from_pretrained(name)
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    torch.save({k.replace("_checkpoint_wrapped_module.", ""): p for k, p in model.named_parameters() if p.requires_grad}, "lora.pt")
    tok.save_pretrained("out")
""",
    "merged": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    merged = model.merge_and_unload()
    merged.save_pretrained("out")
""",
    "another model": """
def main(name, batches):
    model = build(name)
    wrap_layers(model)
    fit(model, batches)
    weights = {k.replace("_checkpoint_wrapped_module.", ""): v for k, v in model.state_dict().items()}
    fresh = AutoModelForCausalLM.from_pretrained(name)
    fresh = get_peft_model(fresh, LoraConfig(r=8, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    fresh.load_state_dict(weights)
    fresh.save_pretrained("out")
""",
    "saved before": """
def main(name, batches):
    model = build(name)
    model.save_pretrained("init")
    wrap_layers(model)
    fit(model, batches)
    torch.save(model.state_dict(), "model.pt")
""",
    "saved in another branch": """
def main(name, batches, wrap):
    model = build(name)
    if wrap:
        wrap_layers(model)
        fit(model, batches)
        torch.save(model.state_dict(), "model.pt")
    else:
        fit(model, batches)
        model.save_pretrained("out")
""",
    "a Trainer that saves nothing": """
def main(name, rows):
    model = build(name)
    wrap_layers(model)
    args = TrainingArguments("out", save_strategy="no", gradient_checkpointing=False)
    Trainer(model, args, train_dataset=rows).train()
    torch.save(model.state_dict(), "model.pt")
""",
    "before the Trainer saves": """
def main(name, rows):
    model = build(name)
    wrap_layers(model)
    args = TrainingArguments("out", save_strategy="no", gradient_checkpointing=False)
    trainer = Trainer(model, args, train_dataset=rows)
    trainer.train()
    for parent in list(model.modules()):
        for key, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, key, child._checkpoint_wrapped_module)
    trainer.save_model("out")
""",
}


def codes(script):
    return {finding.code for finding in check_source(ADAPTED + script)}


@pytest.mark.parametrize("way", FOUND)
def test_wrappers_are_around_what_is_saved(way):
    assert "CKPT110" in codes(FOUND[way])


@pytest.mark.parametrize("way", TAKEN_OFF)
def test_no_wrapper_is_around_what_is_saved(way):
    assert "CKPT110" not in codes(TAKEN_OFF[way])
