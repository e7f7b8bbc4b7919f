"""Ways to put a model back before the backward pass: managers of one's own, callbacks of a stack, hooks, closures."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

START = """
import contextlib
import functools
from contextlib import ExitStack, contextmanager
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

HELPERS
def main(loader):
    base = AutoModelForCausalLM.from_pretrained("base")
    model = get_peft_model(base, LoraConfig(lora_dropout=0.1), adapter_name="policy")
    model.add_adapter("reference", LoraConfig())
    model.set_adapter("policy")
    model.gradient_checkpointing_enable()
    model.train()
    for batch in loader:
        policy = model(**batch).logits.sum()
STEPS
        loss = policy - reference
        loss.backward()
"""
USED = """\
        with torch.no_grad(), adapter(model, "reference"):
            reference = model(**batch).logits.sum()
"""
#: By the way: a helper, and what the step does with it.
WAYS = {
    "gen_tryfinally": (
        """\
@contextmanager
def adapter(model, name):
    before = model.active_adapter
    model.set_adapter(name)
    try:
        yield model
    finally:
        model.set_adapter(before)
""",
        USED,
    ),
    "gen_plain": (
        """\
@contextmanager
def adapter(model, name):
    before = model.active_adapters
    model.set_adapter(name)
    yield
    model.set_adapter(before[0])
""",
        USED,
    ),
    "gen_method": (
        """\
@contextmanager
def adapter(model, name):
    before = model.active_adapters()[0]
    model.set_adapter(name)
    try:
        yield
    finally:
        model.set_adapter(before)
""",
        USED,
    ),
    "gen_getattr": (
        """\
@contextmanager
def adapter(model, name):
    before = getattr(model, "active_adapter", "policy")
    model.set_adapter(name)
    try:
        yield
    finally:
        model.set_adapter(before)
""",
        USED,
    ),
    "cls": (
        """\
class adapter:
    def __init__(self, model, name):
        self.model, self.name = model, name

    def __enter__(self):
        self.before = self.model.active_adapter
        self.model.set_adapter(self.name)
        return self.model

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
""",
        USED,
    ),
    "cls_contextdecorator": (
        """\
class adapter(contextlib.ContextDecorator):
    def __init__(self, model, name):
        self.model, self.name = model, name
        self.before = model.active_adapter

    def __enter__(self):
        self.model.set_adapter(self.name)

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
        return False
""",
        USED,
    ),
    "decorated": (
        """\
class adapter(contextlib.ContextDecorator):
    def __init__(self, model, name):
        self.model, self.name = model, name
        self.before = model.active_adapter

    def __enter__(self):
        self.model.set_adapter(self.name)

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
        return False
""",
        """\
        @torch.no_grad()
        @adapter(model, "reference")
        def run():
            return model(**batch).logits.sum()
        reference = run()""",
    ),
    "gen_decorated": (
        """\
@contextmanager
def adapter(model, name):
    before = model.active_adapter
    model.set_adapter(name)
    try:
        yield model
    finally:
        model.set_adapter(before)
""",
        """\
        @torch.no_grad()
        @adapter(model, "reference")
        def run():
            return model(**batch).logits.sum()
        reference = run()""",
    ),
    "tryfinally": (
        "",
        """\
        before = model.active_adapter
        model.set_adapter("reference")
        try:
            with torch.no_grad():
                reference = model(**batch).logits.sum()
        finally:
            model.set_adapter(before)""",
    ),
    "stack_callback": (
        "",
        """\
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.callback(model.set_adapter, "policy")
            model.set_adapter("reference")
            reference = model(**batch).logits.sum()""",
    ),
    "stack_callback_before": (
        "",
        """\
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.callback(model.set_adapter, model.active_adapter)
            model.set_adapter("reference")
            reference = model(**batch).logits.sum()""",
    ),
    "stack_callback_lambda": (
        "",
        """\
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            before = model.active_adapter
            model.set_adapter("reference")
            stack.callback(lambda: model.set_adapter(before))
            reference = model(**batch).logits.sum()""",
    ),
    "stack_enter": (
        """\
@contextmanager
def adapter(model, name):
    before = model.active_adapter
    model.set_adapter(name)
    try:
        yield model
    finally:
        model.set_adapter(before)
""",
        """\
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(adapter(model, "reference"))
            reference = model(**batch).logits.sum()""",
    ),
    "stack_enter_cls": (
        """\
class adapter:
    def __init__(self, model, name):
        self.model, self.name = model, name

    def __enter__(self):
        self.before = self.model.active_adapter
        self.model.set_adapter(self.name)
        return self.model

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
""",
        """\
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(adapter(model, "reference"))
            reference = model(**batch).logits.sum()""",
    ),
    "stack_close": (
        """\
class adapter:
    def __init__(self, model, name):
        self.model, self.name = model, name

    def __enter__(self):
        self.before = self.model.active_adapter
        self.model.set_adapter(self.name)
        return self.model

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
""",
        """\
        stack = ExitStack()
        stack.enter_context(adapter(model, "reference"))
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        stack.close()""",
    ),
    "stack_push": (
        "",
        """\
        def back(*exc, before=model.active_adapter):
            model.set_adapter(before)
        with torch.no_grad(), ExitStack() as stack:
            stack.push(back)
            model.set_adapter("reference")
            reference = model(**batch).logits.sum()""",
    ),
    "manual_enter": (
        """\
class adapter:
    def __init__(self, model, name):
        self.model, self.name = model, name

    def __enter__(self):
        self.before = self.model.active_adapter
        self.model.set_adapter(self.name)
        return self.model

    def __exit__(self, *exc):
        self.model.set_adapter(self.before)
""",
        """\
        scope = adapter(model, "reference")
        scope.__enter__()
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        scope.__exit__(None, None, None)""",
    ),
    "closing": (
        """\
class Swapped:
    def __init__(self, model, name):
        self.model, self.before = model, model.active_adapter
        model.set_adapter(name)

    def close(self):
        self.model.set_adapter(self.before)
""",
        """\
        with torch.no_grad(), contextlib.closing(Swapped(model, "reference")):
            reference = model(**batch).logits.sum()""",
    ),
    "helper_stack": (
        """\
def push_adapter(model, name, saved):
    saved.append(model.active_adapter)
    model.set_adapter(name)


def pop_adapter(model, saved):
    model.set_adapter(saved.pop())
""",
        """\
        saved = []
        push_adapter(model, "reference", saved)
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        pop_adapter(model, saved)""",
    ),
    "swap_returns": (
        """\
def swap(model, name):
    before = model.active_adapter
    model.set_adapter(name)
    return before
""",
        """\
        before = swap(model, "reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        swap(model, before)""",
    ),
    "reg": (
        """\
def active(model):
    return model.active_adapters()[0]
""",
        """\
        now = active(model)
        model.set_adapter("reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        model.set_adapter(now)""",
    ),
    "state_dict": (
        "",
        """\
        before = {"adapter": model.active_adapter}
        model.set_adapter("reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        model.set_adapter(**{"adapter_name": before["adapter"]})""",
    ),
    "undo_closure": (
        """\
def switch(model, name):
    before = model.active_adapter
    model.set_adapter(name)

    def undo():
        model.set_adapter(before)
    return undo
""",
        """\
        undo = switch(model, "reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        undo()""",
    ),
    "undo_partial": (
        """\
def switch(model, name):
    undo = functools.partial(model.set_adapter, model.active_adapter)
    model.set_adapter(name)
    return undo
""",
        """\
        undo = switch(model, "reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        undo()""",
    ),
    "both_names": (
        """\
@contextmanager
def adapter(model, name, back="policy"):
    model.set_adapter(name)
    try:
        yield
    finally:
        model.set_adapter(back)
""",
        USED,
    ),
    "disable_pair": (
        """\
@contextmanager
def adapter(model, name):
    model.disable_adapter_layers()
    try:
        yield
    finally:
        model.enable_adapter_layers()
""",
        USED,
    ),
    "disable_cls": (
        """\
class adapter:
    def __init__(self, model, name):
        self.model = model

    def __enter__(self):
        self.model.disable_adapter_layers()

    def __exit__(self, *exc):
        self.model.enable_adapter_layers()
""",
        USED,
    ),
    "disable_stack": (
        "",
        """\
        with torch.no_grad(), ExitStack() as stack:
            model.disable_adapter_layers()
            stack.callback(model.enable_adapter_layers)
            reference = model(**batch).logits.sum()""",
    ),
    "eval_gen": (
        """\
@contextmanager
def adapter(model, name):
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)
""",
        USED,
    ),
    "eval_stack": (
        "",
        """\
        with torch.no_grad(), ExitStack() as stack:
            stack.callback(model.train, model.training)
            model.eval()
            reference = model(**batch).logits.sum()""",
    ),
    "eval_each": (
        """\
@contextmanager
def adapter(model, name):
    modes = {m: m.training for m in model.modules()}
    model.eval()
    yield
    for m, mode in modes.items():
        m.train(mode)
""",
        USED,
    ),
    "load_gen": (
        """\
@contextmanager
def adapter(model, name):
    kept = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(torch.load(name))
    try:
        yield
    finally:
        model.load_state_dict(kept)
""",
        USED,
    ),
    "load_copy": (
        """\
@contextmanager
def adapter(model, name):
    kept = [p.detach().clone() for p in model.parameters()]
    model.load_state_dict(torch.load(name))
    yield
    with torch.no_grad():
        for p, k in zip(model.parameters(), kept):
            p.copy_(k)
""",
        USED,
    ),
    "load_stack": (
        "",
        """\
        kept = {k: v.clone() for k, v in model.state_dict().items()}
        with torch.no_grad(), ExitStack() as stack:
            stack.callback(model.load_state_dict, kept)
            model.load_state_dict(torch.load("ref.pt"))
            reference = model(**batch).logits.sum()""",
    ),
    "weights_swap": (
        """\
@contextmanager
def adapter(model, name):
    kept = [p.data for p in model.parameters()]
    for p in model.parameters():
        p.data = p.data.clamp(-1, 1)
    try:
        yield
    finally:
        for p, k in zip(model.parameters(), kept):
            p.data = k
""",
        USED,
    ),
    "weights_stack": (
        """\
def put(model, kept):
    for p, k in zip(model.parameters(), kept):
        p.data = k
""",
        """\
        with torch.no_grad(), ExitStack() as stack:
            kept = [p.data for p in model.parameters()]
            stack.callback(put, model, kept)
            for p in model.parameters():
                p.data = p.data.clamp(-1, 1)
            reference = model(**batch).logits.sum()""",
    ),
    "hook_restores": (
        "",
        """\
        model.set_adapter("reference")
        policy.register_hook(lambda g: model.set_adapter("policy"))
        with torch.no_grad():
            reference = model(**batch).logits.sum()""",
    ),
    "async_dict": (
        """\
class Scope:
    names = {}

    def use(self, model, name):
        self.names[id(model)] = model.active_adapter
        model.set_adapter(name)

    def restore(self, model):
        model.set_adapter(self.names.pop(id(model)))
""",
        """\
        scope = Scope()
        scope.use(model, "reference")
        with torch.no_grad():
            reference = model(**batch).logits.sum()
        scope.restore(model)""",
    ),
}
#: By the way: what takes the change back, and what stands there when it is forgotten.
FORGOTTEN = {
    "gen_tryfinally": ("model.set_adapter(before)", "pass"),
    "gen_plain": ("model.set_adapter(before[0])", "pass"),
    "cls": ("self.model.set_adapter(self.before)", "pass"),
    "tryfinally": ("model.set_adapter(before)", "pass"),
    "stack_callback": ('stack.callback(model.set_adapter, "policy")', "stack.callback(print, 1)"),
    "stack_push": ("model.set_adapter(before)", "print(before)"),
    "swap_returns": ("swap(model, before)", "print(before)"),
    "undo_closure": ("undo()", "print(undo)"),
    "both_names": ("model.set_adapter(back)", "print(back)"),
    "disable_pair": ("model.enable_adapter_layers()", "pass"),
    "disable_stack": ("stack.callback(model.enable_adapter_layers)", "stack.callback(print, 1)"),
    "eval_gen": ("model.train(was)", "print(was)"),
    "load_gen": ("model.load_state_dict(kept)", "print(kept)"),
    "load_copy": ("p.copy_(k)", "print(k)"),
    "weights_swap": ("p.data = k", "print(k)"),
    "weights_stack": ("stack.callback(put, model, kept)", "stack.callback(print, 1)"),
}


def found(way, was="", becomes=""):
    helpers, steps = WAYS[way]
    assert was in helpers + steps
    code = START.replace("HELPERS", helpers).replace("STEPS", steps).replace(was or "HELPERS", becomes)
    return [finding.code for finding in check_source(code)]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_put_back_is_right(way):
    assert found(way) == []


@pytest.mark.parametrize("way", FORGOTTEN)
def test_what_is_not_put_back_is_found(way):
    assert "CKPT114" in found(way, *FORGOTTEN[way])
