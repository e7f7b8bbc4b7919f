"""Rooms stay rooms: small folders, and no circles of imports, those for types counted."""

from .structure import (
    circles,
    files_by_folder,
    modules_beside_lint,
    outside_the_standard_library,
    rules_that_read_syntax,
    rules_that_walk_syntax,
)


def test_few_files_stand_at_the_root_of_lint():
    assert files_by_folder("lint")["lint"] <= 5


def test_no_imports_run_in_circles():
    assert circles("lint") == []
    assert circles("hf_ckpt") == []


def test_the_linter_takes_from_the_runtime_only_what_needs_python_alone():
    assert modules_beside_lint() == {"__version__", "pages", "whole_file"}
    assert outside_the_standard_library("pages") == outside_the_standard_library("whole_file") == set()


def test_no_folder_of_the_runtime_is_a_heap():
    assert {name: count for name, count in files_by_folder("hf_ckpt").items() if count > 20} == {}


def test_rules_ask_the_run_and_read_no_syntax():
    assert rules_that_walk_syntax() == []
    assert rules_that_read_syntax() == []
