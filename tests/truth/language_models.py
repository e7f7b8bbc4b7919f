"""Programs that fine-tune a transformers model: in a loop of one's own or by the Trainer, with or without PEFT."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING

from .ingredients import Choice

if TYPE_CHECKING:
    from random import Random


MODELS = (
    Choice("llama", (
        "config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, "
        "num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)\n"
        "model = LlamaForCausalLM(config)"
    ), "from transformers import LlamaConfig, LlamaForCausalLM"),
    Choice("llama through auto", (
        "config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, "
        "num_attention_heads=4, num_key_value_heads=2, attention_dropout=0.1)\n"
        "model = AutoModelForCausalLM.from_config(config)"
    ), "from transformers import AutoModelForCausalLM, LlamaConfig"),
    Choice("gpt2", (
        "config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, "
        "eos_token_id=2)\nmodel = GPT2LMHeadModel(config)"
    ), "from transformers import GPT2Config, GPT2LMHeadModel"),
)  # fmt: skip

ADAPTERS = (
    Choice("whole model", ""),
    Choice("whole model ", ""),
    Choice("lora", 'model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))',
           "from peft import LoraConfig, get_peft_model"),
    Choice("lora with dropout", (
        'model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_dropout=0.1, '
        'target_modules="all-linear"))'
    ), "from peft import LoraConfig, get_peft_model"),
    Choice("lora and input gradients", (
        'model.enable_input_require_grads()\n'
        'model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear"))'
    ), "from peft import LoraConfig, get_peft_model"),
    Choice("frozen embeddings", "model.get_input_embeddings().requires_grad_(False)"),
    Choice("lora on chosen layers", (
        'model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, target_modules="all-linear", '
        'modules_to_save=["lm_head"]))'
    ), "from peft import LoraConfig, get_peft_model"),
    Choice("frozen in a loop", (
        'for name, parameter in model.named_parameters():\n    if "embed" in name or "wte" in name:\n'
        "        parameter.requires_grad = False"
    )),
    Choice("frozen but head", "model.requires_grad_(False)\nmodel.lm_head.requires_grad_(True)"),
)  # fmt: skip

SWITCHES = (
    Choice("enabled", "model.gradient_checkpointing_enable()"),
    Choice("enabled non-reentrant", (
        'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'
    )),
    Choice("enabled reentrant", (
        'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})'
    )),
    Choice("enabled reentrant by a variable", (
        'options = dict(use_reentrant=True)\nmodel.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)'
    )),
    Choice("wrong keyword", "model.gradient_checkpointing_enable(use_reentrant=False)"),
    Choice("no call", "model.gradient_checkpointing_enable"),
    Choice("flag assigned", "model.gradient_checkpointing = True"),
    Choice("config assigned", "model.config.gradient_checkpointing = True"),
    Choice("enabled and disabled", "model.gradient_checkpointing_enable()\nmodel.gradient_checkpointing_disable()"),
    Choice("string for a bool", (
        'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": "false"})'
    )),
    Choice("without random state", (
        'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False, '
        '"preserve_rng_state": False})'
    )),
    Choice("behind an option", (
        "parser = argparse.ArgumentParser()\nparser.add_argument('--checkpoint', action='store_true')\n"
        "args = parser.parse_args()\nif args.checkpoint:\n    model.gradient_checkpointing_enable()"
    ), "import argparse"),
    Choice("on the inner model", "model.base_model.gradient_checkpointing_enable()"),
    Choice("inputs need gradients", "model.gradient_checkpointing_enable()\nmodel.enable_input_require_grads()"),
)  # fmt: skip

MODES = (Choice("train", "model.train()"), Choice("as built", ""), Choice("eval", "model.eval()"))

STEPS = (
    Choice("plain", "loss = model(input_ids=ids, labels=ids).loss\nloss.backward()\noptimizer.step()\noptimizer.zero_grad()"),
    Choice("plain ", "optimizer.zero_grad()\noutputs = model(ids, labels=ids)\noutputs.loss.backward()\noptimizer.step()"),
    Choice("cache asked for", (
        "loss = model(input_ids=ids, labels=ids, use_cache=True).loss\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad()"
    )),
    Choice("generates between", (
        "loss = model(input_ids=ids, labels=ids).loss\n"
        "if step == 0:\n    model.generate(ids[:, :4], max_new_tokens=8, do_sample=False, pad_token_id=0)\n"
        "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
    )),
    Choice("loss made to need a gradient", (
        "loss = model(input_ids=ids, labels=ids).loss\nloss.requires_grad_(True)\nloss.backward()\noptimizer.step()\n"
        "optimizer.zero_grad()"
    )),
    Choice("evaluates between steps", (
        "loss = model(input_ids=ids, labels=ids).loss\nloss.backward()\noptimizer.step()\noptimizer.zero_grad()\n"
        "model.eval()\nwith torch.no_grad():\n    model(input_ids=ids)"
    )),
    Choice("clipped", (
        "loss = model(input_ids=ids, labels=ids).loss\nloss.backward()\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()\noptimizer.zero_grad()"
    )),
    Choice("under autocast", (
        'with torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = model(input_ids=ids, labels=ids).loss\n'
        "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
    )),
    Choice("weights changed before backward", (
        "loss = model(input_ids=ids, labels=ids).loss\n"
        "with torch.no_grad():\n    for p in model.parameters():\n        p.mul_(0.9)\n"
        "loss.backward()\noptimizer.step()\noptimizer.zero_grad()"
    )),
)  # fmt: skip

ARGUMENTS = (
    Choice("switch", "gradient_checkpointing=True"),
    Choice("switch non-reentrant", (
        'gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}'
    )),
    Choice("switch reentrant", 'gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}'),
    Choice("options without switch", 'gradient_checkpointing_kwargs={"use_reentrant": False}'),
    Choice("no switch", ""),
)  # fmt: skip


def write(choose: Random) -> tuple[str, tuple[str, ...]]:
    """A program and the names of its ingredients."""
    return _trainer(choose) if choose.random() < 0.3 else _loop(choose)


def _loop(choose: Random) -> tuple[str, tuple[str, ...]]:
    model, adapter = choose.choice(MODELS), choose.choice(ADAPTERS)
    switch, mode = choose.choice(SWITCHES), choose.choice(MODES)
    step = choose.choices(STEPS, [4, 4] + [1] * (len(STEPS) - 2))[0]
    prepared = choose.sample((adapter, switch, mode), 3)
    text = _LOOP.format(
        imports=_imports(model, adapter, switch),
        model=indent(model.code, "    ").strip(),
        prepared=indent("\n".join(part.code for part in prepared if part.code), "    ").strip(),
        step=indent(step.code, " " * 8).strip(),
    )
    return text, ("transformers", model.name, step.name, *(part.name for part in prepared))


def _trainer(choose: Random) -> tuple[str, tuple[str, ...]]:
    model, adapter, arguments = choose.choice(MODELS), choose.choice(ADAPTERS), choose.choice(ARGUMENTS)
    switch = choose.choice((Choice("left to the Trainer", ""), *(one for one in SWITCHES if not one.needs)))
    late = choose.choice(("", "", "", "args.gradient_checkpointing = True"))
    prepared = choose.sample((adapter, switch), 2)
    text = _TRAINER.format(
        imports=_imports(model, adapter),
        model=indent(model.code, "    ").strip(),
        prepared=indent("\n".join(part.code for part in prepared if part.code), "    ").strip(),
        arguments=f", {arguments.code}" if arguments.code else "",
        late=late,
    )
    names = (part.name for part in prepared)
    return text, ("Trainer", model.name, arguments.name, late or "arguments left alone", *names)


def _imports(*parts: Choice) -> str:
    return "\n".join(part.needs for part in parts if part.needs)


_LOOP = """
import torch
{imports}


def main():
    torch.manual_seed(0)
    {model}
    {prepared}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(2):
        ids = torch.randint(3, 60, (2, 8))
        {step}


if __name__ == "__main__":
    main()
"""

_TRAINER = """
import tempfile

import torch
from transformers import Trainer, TrainingArguments
{imports}


def main():
    torch.manual_seed(0)
    {model}
    {prepared}
    ids = torch.randint(3, 60, (4, 8))
    dataset = [{{"input_ids": row, "labels": row}} for row in ids]
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, optim="sgd"{arguments})
    {late}
    trainer = Trainer(model=model, args=args, train_dataset=dataset)
    trainer.train()


if __name__ == "__main__":
    main()
"""
