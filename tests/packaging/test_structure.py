"""Lint's rooms stay rooms: a small root, and no circles of imports."""

from .structure import circles, files_by_folder


def test_few_files_stand_at_the_root_of_lint():
    assert files_by_folder("lint")["lint"] <= 5


def test_no_modules_of_lint_import_each_other():
    # A value knows the call that made it, a call its place, a place the values of its conditions: one recursive type.
    values = ["lint.facts.calls", "lint.facts.places", "lint.facts.scopes", "lint.facts.values"]
    assert [group for group in circles("lint") if group != values] == []
