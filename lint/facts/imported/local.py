"""What a module of the project is, and which are read. Imports nothing: a file that is clean at a glance asks too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

#: Characters of one module, and of all that one file imports: what a run is made of is small, a library is not.
MAX_TEXT, MAX_TOTAL = 60_000, 150_000
#: Imports followed one after the other, packages not counted: what builds the model, the model, its layers.
MAX_HOPS = 3
#: Shorter modules are always read: constants and options have no words to know them by.
ALWAYS = 4_000
#: Without one of these a short module that another one imports holds functions; options alone have none of both.
_HOLDS_OPTIONS = (
    *("def register", "dataclass", "NamedTuple", "BaseModel", "SimpleNamespace", "Enum"),
    *("Config:", "Config(", "Options:", "Options(", "Settings:", "Settings("),
)
_HOLDS_CODE = ("def ", "class ")
#: Without one of these a longer module decides nothing about checkpointing.
_RELEVANT = (
    *("checkpoint", "torch.nn", "nn.Module", "import nn", ", nn\n", "TrainingArguments", "use_reentrant"),
    *("from_pretrained", "get_peft_model", "prepare_model_for_kbit_training"),
)


class LocalModule(NamedTuple):
    """A module of the project."""

    filename: str
    text: str


if TYPE_CHECKING:
    #: Gives the module that a name (with leading dots for a relative import) means in the checked file; None for
    #: everything that is not part of the project.
    FindModule: TypeAlias = Callable[[str], LocalModule | None]


def is_worth_reading(module: LocalModule, read: int = 0, hops: int = 0) -> bool:
    """Whether a module of the project is read.

    Args:
        module: The module.
        read: How many characters of other modules have been read before it.
        hops: How many modules, packages not counted, are between it and the checked file.
    """
    text = module.text
    if len(text) > MAX_TEXT or read + len(text) > MAX_TOTAL:
        return False
    return _is_short(module, hops) or any(word in text for word in _RELEVANT)


def _is_short(module: LocalModule, hops: int) -> bool:
    """Whether it is read for being short: behind another module only what holds what the program is set to.

    A package hands on what it takes from its modules, a registry what they enter.
    """
    text = module.text
    if len(text) > ALWAYS:
        return False
    if hops == 0 or is_package(module) or any(word in text for word in _HOLDS_OPTIONS):
        return True
    return not any(word in text for word in _HOLDS_CODE)


def package_of(name: str, module: LocalModule) -> str:
    """The package that relative imports in ``module``, which is imported as ``name``, start from."""
    return name if is_package(module) else name.rpartition(".")[0]


def is_package(module: LocalModule) -> bool:
    """Whether it is the file of a package, which hands on what it takes from its modules."""
    return module.filename.endswith("__init__.py")
