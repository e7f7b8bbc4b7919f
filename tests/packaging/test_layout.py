"""The folders of the repository and the packages that pyproject.toml lists are the same."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

from .conftest import REMAPPED, ROOT


def folder_of(package: str) -> Path:
    for name, folder in REMAPPED.items():
        if package == name or package.startswith(f"{name}."):
            return Path(folder, *package[len(name) :].strip(".").split("."))
    return Path(*package.split("."))


def modules_on_disk() -> set[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "hf_ckpt", "lint", "callbacks"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {Path(name) for name in listed.splitlines() if name.endswith(".py") and (ROOT / name).is_file()}


def test_every_package_folder_is_listed_and_every_listed_one_exists(setuptools_config):
    listed = {folder_of(package) for package in setuptools_config["packages"]}
    assert listed == {module.parent for module in modules_on_disk()}


def test_every_listed_package_is_a_regular_one(setuptools_config):
    # A folder without `__init__.py` would be a namespace package, which any other distribution could extend.
    for package in setuptools_config["packages"]:
        assert (ROOT / folder_of(package) / "__init__.py").is_file(), package


def test_there_is_no_other_top_level_folder():
    command = ["git", "ls-files", "--cached", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    folders = {name.split("/")[0] for name in listed if "/" in name and not name.startswith(".")}
    assert folders <= {"hf_ckpt", "lint", "callbacks", "tests", "examples"}


def test_the_wheel_holds_every_module_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        inside = {Path(name) for name in wheel.namelist()}
    code = {path for path in inside if not path.parts[0].endswith(".dist-info")}
    expected = {_installed(module) for module in modules_on_disk()}
    assert code == expected | {Path("hf_ckpt/py.typed")}
    assert any(path.name == "LICENSE" for path in inside)


def test_the_sdist_holds_every_module(distributions):
    with tarfile.open(distributions[0]) as sdist:
        inside = {Path(*Path(name).parts[1:]) for name in sdist.getnames()}
    assert modules_on_disk() <= inside
    assert {Path("README.md"), Path("LICENSE"), Path("pyproject.toml")} <= inside


def _installed(module: Path) -> Path:
    for name, folder in REMAPPED.items():
        if module.parts[0] == folder:
            return Path(*name.split("."), *module.parts[1:])
    return module
