"""What people write around the same code: bases of their own, old calls of `super`, questions before calls, loggers."""

from __future__ import annotations

import ast
import copy

from .spellings import (
    behind_imports,
    expression,
    forwards,
    inner_scopes,
    is_definition,
    methods,
    names_in,
    put_first,
    spelling,
    statements,
)

_SWITCHES = ("gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads")


@spelling
def based_on_an_own_class(tree: ast.Module) -> bool:
    """`class BaseModule(nn.Module)`, of which all modules are derived."""
    hit = False
    for cls in tree.body:
        for base in cls.bases if isinstance(cls, ast.ClassDef) else ():
            if ast.unparse(base) == "nn.Module":
                hit = True
                cls.bases[cls.bases.index(base)] = ast.Name("BaseModule", ast.Load())
    if hit:
        at = behind_imports(tree)
        count = "    def count(self):\n        return sum(p.numel() for p in self.parameters())"
        init = "    def __init__(self):\n        super().__init__()\n        self.built = True"
        tree.body[at:at] = statements(f"class BaseModule(nn.Module):\n{init}\n{count}")
    return hit


@spelling
def super_with_arguments(tree: ast.Module) -> bool:
    """`super(Net, self).__init__()`."""
    hit = False
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in (node for method in methods(cls) for node in ast.walk(method)):
            match node:
                case ast.Call(func=ast.Name("super"), args=[]):
                    hit = True
                    node.args = [ast.Name(cls.name, ast.Load()), ast.Name("self", ast.Load())]
    return hit


@spelling
def tensors_annotated(tree: ast.Module) -> bool:
    """`def forward(self, x: torch.Tensor)`."""
    hit = False
    for forward in forwards(tree):
        for argument in forward.args.args:
            if argument.arg in ("x", "h", "hidden", "hidden_states") and argument.annotation is None:
                hit = True
                argument.annotation = expression("torch.Tensor")
    put_first(tree, statements("import torch"))
    return hit


@spelling
def with_a_logger(tree: ast.Module) -> bool:
    """`logger.debug("...")` behind each assignment of a function."""
    hit = False
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for holder in [*ast.walk(function)]:
            for field in ("body", "orelse"):
                block = getattr(holder, field, None)
                if isinstance(block, list):
                    found: list[ast.stmt] = []
                    for statement in block:
                        found.append(statement)
                        if isinstance(statement, ast.Assign):
                            hit = True
                            found += statements('logger.debug("assigned")')
                    block[:] = found
    put_first(tree, statements("import logging\nlogger = logging.getLogger(__name__)"))
    return hit


@spelling
def asked_before_it_is_switched(tree: ast.Module) -> bool:
    """`if hasattr(model, "gradient_checkpointing_enable"):`."""
    hit = False
    for holder in [*ast.walk(tree)]:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(holder, field, None)
            for at, statement in enumerate(block if isinstance(block, list) else ()):
                match statement:
                    case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as model, attr=name))):
                        if name in _SWITCHES:
                            hit = True
                            asked = [copy.deepcopy(model), ast.Constant(name)]
                            block[at] = ast.If(ast.Call(ast.Name("hasattr", ast.Load()), asked, []), [statement], [])
    return hit


@spelling
def loaded_in_a_function(tree: ast.Module) -> bool:
    """`def load_1(name): model = AutoModel.from_pretrained(name); return model, tokenizer`."""
    made: list[ast.stmt] = []
    for holder in [*ast.walk(tree)]:
        block = getattr(holder, "body", None)
        if not isinstance(block, list) or isinstance(holder, ast.ClassDef):
            continue
        for statement in block:
            match statement:
                case ast.Assign(
                    targets=[ast.Name() as target],
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id=cls), attr=name)),
                ) if name in ("from_pretrained", "from_config") and cls.startswith("Auto"):
                    loaded = ast.unparse(statement.value)
                    used = sorted(names_in([ast.Expr(statement.value)]) - {cls})
                    inner = f"    model = {loaded}\n    tokenizer = object()\n    return model, tokenizer"
                    made += statements(f"def load_{len(made)}({', '.join(used)}):\n{inner}")
                    statement.targets = [ast.Tuple([target, ast.Name("_tokenizer", ast.Store())], ast.Store())]
                    statement.value = expression(f"load_{len(made) - 1}({', '.join(used)})")
    at = behind_imports(tree) if made else 0
    while made and at < len(tree.body) and is_definition(tree.body[at]):
        at += 1
    tree.body[at:at] = made
    return bool(made)


@spelling
def keywords_set_one_by_one(tree: ast.Module) -> bool:
    """`options_1 = {}`, `options_1["use_reentrant"] = False` and `checkpoint(block, x, **options_1)`."""
    count, skipped = 0, inner_scopes(tree)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for holder in [*ast.walk(function)]:
            block = getattr(holder, "body", None)
            if not isinstance(block, list):
                continue
            found: list[ast.stmt] = []
            for statement in block:
                call = getattr(statement, "value", None)
                if isinstance(call, ast.Call) and call not in skipped and isinstance(statement, ast.stmt):
                    words = call.keywords
                    if words and all(it.arg and isinstance(it.value, ast.Constant) for it in words):
                        name = f"options_{count}"
                        count += 1
                        lines = [f"{name}[{it.arg!r}] = {ast.unparse(it.value)}" for it in words]
                        found += statements("\n".join([f"{name} = {{}}", *lines]))
                        call.keywords = [ast.keyword(None, expression(name))]
                found.append(statement)
            block[:] = found
    return count > 0


@spelling
def children_with_names(tree: ast.Module) -> bool:
    """`for _name, block in self.blocks.named_children()`."""
    hit = False
    for loop in ast.walk(tree):
        match loop:
            case ast.For(target=ast.Name() as target, iter=ast.Attribute() as held):
                hit = True
                loop.iter = ast.Call(ast.Attribute(held, "named_children", ast.Load()), [], [])
                loop.target = ast.Tuple([ast.Name("_name", ast.Store()), target], ast.Store())
    return hit
