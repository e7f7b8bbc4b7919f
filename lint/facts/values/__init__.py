"""The value domain: what an expression can be, as far as the source alone says it.

Three-valued throughout: a question about a value is answered True, False or None (not known), and rules stay silent on
None.
"""

from .alternatives import MAX_OPTIONS, Choice, conditional_options, either, join, join_under, one_at, options
from .answers import equals, is_absent, is_given, may_be_none, truth
from .arguments import Arguments
from .code import Call, Class, Function, FunctionNode, Guess, Instance, Loop, Partial, Place, Result, copied
from .containers import Dict, Seq
from .guards import Guard
from .names import Method, Module, Param, Super
from .plain import (
    ABSENT,
    UNKNOWN,
    Absent,
    Attr,
    Computed,
    Const,
    Element,
    Given,
    Ref,
    Template,
    Test,
    Unknown,
    Value,
    one,
    same,
)

__all__ = [
    "ABSENT",
    "MAX_OPTIONS",
    "UNKNOWN",
    "Absent",
    "Arguments",
    "Attr",
    "Call",
    "Choice",
    "Class",
    "Computed",
    "Const",
    "Dict",
    "Element",
    "Function",
    "FunctionNode",
    "Given",
    "Guard",
    "Guess",
    "Instance",
    "Loop",
    "Method",
    "Module",
    "Param",
    "Partial",
    "Place",
    "Ref",
    "Result",
    "Seq",
    "Super",
    "Template",
    "Test",
    "Unknown",
    "Value",
    "conditional_options",
    "copied",
    "either",
    "equals",
    "is_absent",
    "is_given",
    "join",
    "join_under",
    "may_be_none",
    "one",
    "one_at",
    "options",
    "same",
    "truth",
]
