"""The parameter of a function that nobody calls, where it can only be the one model that the file defines."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import all_nodes
from ..origin import origin
from ..values import Class, Guess, Instance, Ref
from .classes import ancestors, is_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Function
    from ..walk import Program

#: What a model is called where there is one.
_MODEL_NAMES = frozenset(("model", "net", "network"))
#: What modules are called that another one is built around.
_HELD_NAMES = _MODEL_NAMES | {"module", "backbone", "encoder", "base", "base_model", "layer", "block", "fn"}
#: What one of several models has in its name, a class or a parameter.
_ROLES = frozenset(
    (
        *("teacher", "student", "discriminator", "critic", "generator", "actor", "policy", "value", "reward"),
        *("reference", "ref", "ema", "disc", "gen"),
    )
)
#: What is called as a part of models, whoever builds them.
_PARTS = ("Backbone", "Block", "Layer", "Head", "Stem", "Embedding", "Attention", "Norm")
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: What every module of torch has.
_OF_MODULES = frozenset(
    (
        *("train", "eval", "training", "parameters", "named_parameters", "modules", "named_modules", "children"),
        *("named_children", "buffers", "named_buffers", "state_dict", "load_state_dict", "zero_grad", "to", "cuda"),
        *("cpu", "half", "float", "double", "bfloat16", "apply", "requires_grad_", "forward", "compile"),
        *("get_submodule", "get_parameter", "register_forward_hook", "register_forward_pre_hook", "__class__"),
    )
)
#: What the outputs of libraries' models have.
_OF_OUTPUTS = frozenset(("loss", "logits", "last_hidden_state", "sample", "hidden_states"))


class _Uses(NamedTuple):
    """How a function uses one of its parameters."""

    attributes: frozenset[str]
    calls: list[ast.Call]


def says_no_class(annotation: ast.expr | None) -> bool:
    """Whether an annotation leaves open which module it is: there is none, or `nn.Module`."""
    return annotation is None or ast.unparse(annotation).strip("'").endswith("Module")


def _is_named_after(name: str, cls: Class) -> bool:
    """Whether a variable has the name of a class: `patch_critic` that of `PatchCritic`."""
    return name.replace("_", "").lower() == cls.name.replace("_", "").lower()


def own_model(program: Program, function: Function, argument: ast.arg) -> Instance | None:
    """The object of a class of the file that ``argument`` of ``function`` is taken for, by its name and its uses.

    Args:
        program: What is being read.
        function: A function that nothing in the program calls.
        argument: A parameter of it, without a default and an annotation of a class.

    Returns:
        One for all parameters that are guessed alike; None unless one class alone fits.
    """
    if function.place.function is not None or origin(function.node) is not None:
        return None
    if program.own_models is None:
        program.own_models = _roots([cls for cls in program.classes if origin(cls.node) is None])
    named = [cls for cls in program.own_models if _is_named_after(argument.arg, cls)]
    if not program.own_models or (not named and argument.arg not in _MODEL_NAMES):
        return None
    if function.owner is not None and not (named and is_plain(function.owner)):
        return None  # A method is for any model, unless it names one.
    if not named and _takes_other_models(program.own_models, function, argument):
        return None
    uses = _uses_of(argument.arg, function)
    fitting = [cls for cls in named or program.own_models if _fits(cls, uses, function)]
    if not named and any(_is_one_of_several(cls) for cls in fitting):
        return None
    if len(fitting) != 1:
        return None
    kind = fitting[0], Guess.NAMED if named else Guess.ONLY
    return program.guessed.setdefault(kind, Instance(kind[0], None, guess=kind[1]))


def _takes_other_models(models: list[Class], function: Function, argument: ast.arg) -> bool:
    """Whether another parameter is a model too, by its name: a teacher, a discriminator, one of ``models``."""
    arguments = function.node.args
    names = [other.arg for other in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return any(
        any(_is_named_after(name, cls) for cls in models) or not _words_of(name).isdisjoint(_ROLES | _MODEL_NAMES)
        for name in names
        if name != argument.arg
    )


def _is_one_of_several(cls: Class) -> bool:
    """Whether ``cls`` is called as what stands beside a model or in it."""
    return cls.name.endswith(_PARTS) or not _words_of(cls.name).isdisjoint(_ROLES)


def _words_of(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(name))


def _roots(classes: list[Class]) -> list[Class]:
    """Models: modules of torch that no other class of the file is built of, and that are not built around a module."""
    modules = [cls for cls in classes if "forward" in {name for owner in _line(cls) for name in owner.body}]
    modules = [cls for cls in modules if _is_plain_module(cls)]
    if not modules:
        return []
    parts = {
        node.id for cls in classes for node in all_nodes(cls.node) if isinstance(node, ast.Name) and node.id != cls.name
    }
    return [cls for cls in modules if cls.name not in parts and not _is_wrapper(cls)]


def _line(cls: Class) -> Iterator[Class]:
    yield cls
    yield from ancestors(cls)


def _is_plain_module(cls: Class) -> bool:
    """Whether the file shows all that objects of ``cls`` have beside what every module of torch has."""
    bases = [base for owner in _line(cls) for base in owner.bases]
    return any(_is_module(base) for base in bases) and all(
        isinstance(base, Class) or _is_module(base) for base in bases
    )


def _is_module(base: object) -> bool:
    return isinstance(base, Ref) and base.name in ("torch.nn.Module", "torch.nn.modules.Module")


def _is_wrapper(cls: Class) -> bool:
    """Whether a constructor takes what the model may be: a loss around it, an average of it."""
    found = (node for owner in _line(cls) for node in all_nodes(owner.node))
    constructors = (node for node in found if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    taken = {argument.arg for node in constructors for argument in (*node.args.args, *node.args.kwonlyargs)}
    return bool(taken & _HELD_NAMES) or cls.name.endswith(("Loss", "Criterion"))


def _uses_of(name: str, function: Function) -> _Uses:
    attributes, calls = set(), []
    for node in all_nodes(function.node):
        match node:
            case ast.Attribute(value=ast.Name(id=used), attr=attribute) if used == name:
                attributes.add(attribute)
            case ast.Call(func=ast.Name(id=used)) if used == name:
                calls.append(node)
            case ast.Call(func=called, args=[ast.Name(id=used), _, given]) if used == name and _is_stateless(called):
                inputs = given.elts if isinstance(given, ast.Tuple) else [given]
                calls.append(ast.Call(node.args[0], inputs, []))
    return _Uses(frozenset(attributes), calls)


def _is_stateless(function: ast.expr) -> bool:
    """`functional_call`, which calls a module with parameters that it is given."""
    return ast.unparse(function).rpartition(".")[2] == "functional_call"


def _fits(cls: Class, uses: _Uses, function: Function) -> bool:
    """Whether an object of ``cls`` has all that is asked of the parameter, and something beside what modules have."""
    members = _members(cls)
    own = uses.attributes - _OF_MODULES
    if not own <= members or not (own or uses.calls):
        return False
    read = {node.attr for node in all_nodes(function.node) if isinstance(node, ast.Attribute)}
    if read & _OF_OUTPUTS and not read & _OF_OUTPUTS <= _words(cls):
        return False
    forward = next(owner.body["forward"] for owner in _line(cls) if "forward" in owner.body)
    node = getattr(forward, "node", None)
    return isinstance(node, ast.FunctionDef) and all(_binds(call, node.args) for call in uses.calls)


def _members(cls: Class) -> frozenset[str]:
    """What the file gives objects of ``cls``: methods, attributes of the class, and what methods store."""
    return frozenset(name for owner in _line(cls) for name in (*_stored_in(owner.node), *owner.body))


@lru_cache(maxsize=64)
def _stored_in(cls: ast.ClassDef) -> frozenset[str]:
    attributes = (node for node in all_nodes(cls) if isinstance(node, ast.Attribute))
    return frozenset(node.attr for node in attributes if isinstance(node.ctx, ast.Store))


def _words(cls: Class) -> frozenset[str]:
    """The names of attributes and arguments, and the texts, in the classes of ``cls``."""
    found: set[str] = set()
    for owner in _line(cls):
        for node in all_nodes(owner.node):
            match node:
                case ast.Attribute(attr=word) | ast.keyword(arg=str(word)) | ast.Constant(value=str(word)):
                    found.add(word)
    return frozenset(found)


def _binds(call: ast.Call, parameters: ast.arguments) -> bool:
    """Whether ``call`` of an object can be bound to the ``parameters`` of its method."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return parameters.vararg is not None
    names = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)][1:]
    required = names[: len(names) - len(parameters.defaults)]
    given = {keyword.arg for keyword in call.keywords}
    known = {*names[len(call.args) :], *(argument.arg for argument in parameters.kwonlyargs)}
    if len(call.args) > len(names) and parameters.vararg is None:
        return False
    if not given <= known and parameters.kwarg is None:
        return False
    return None in given or set(required[len(call.args) :]) <= given
