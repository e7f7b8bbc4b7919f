import pytest
from hf_ckpt.lint.project.library_versions import project_ranges, versions_of


def ranges(folder, text="", **files):
    for name, content in files.items():
        path = folder / name.replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return versions_of(text, str(folder / "train.py"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('[project]\ndependencies = ["torch>=2.4", "transformers[torch] >= 4.57, < 6 ; python_version > \'3\'"]', None),
        ('dependencies = [\n  "torch>=2.4",\n  "transformers>=4.57,<6",\n]', None),
        ('[tool.poetry.dependencies]\ntorch = ">=2.4"\ntransformers = {version = ">=4.57,<6", extras = ["x"]}', None),
        ('transformers = "^5.1"', {"transformers": ">=5.1,<6"}),
        ('transformers = "~5.1"', {"transformers": ">=5.1,<5.2"}),
        ('accelerate = "^0.30"', {"accelerate": ">=0.30,<0.31"}),
        ('torch = "2.4.1"', {"torch": "==2.4.1"}),
        ('transformers = "*"', {}),
        ('dependencies = ["transformers", "transformers-stream-generator>=1", "pytorch-lightning>=2"]', {}),
        ('description = "transformers are > 9000"', {}),
    ],
)
def test_pyproject(tmp_path, content, expected):
    if expected is None:
        expected = {"torch": ">=2.4", "transformers": ">=4.57,<6"}
    assert ranges(tmp_path, pyproject_DOT_toml=content) == expected


def test_requirements_and_conda(tmp_path):
    text = "# torch==1\ntorch==2.4.1+cu121 --hash=x\ntransformers~=5.2\npeft\ntrl>=0.9 # why\n"
    assert ranges(tmp_path, requirements_DOT_txt=text) == {
        "torch": "==2.4.1+cu121",
        "transformers": "~=5.2",
        "trl": ">=0.9",
    }
    assert ranges(tmp_path / "conda", environment_DOT_yml="dependencies:\n  - torch>=2.5\n")["torch"] == ">=2.5"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_requirements_with_a_byte_order_mark(tmp_path, encoding):
    (tmp_path / "requirements.txt").write_bytes("torch==2.4\r\npeft>=0.18\r\n".encode(encoding))
    assert ranges(tmp_path) == {"torch": "==2.4", "peft": ">=0.18"}


LOCK = """
[[package]]
name = "transformers"
version = "5.23.0"
source = { registry = "x" }

[[package]]
name = "torch"
description = "y"
version = "2.13.0"
"""


def test_a_lock_file_says_what_runs(tmp_path):
    files = {"pyproject_DOT_toml": 'dependencies = ["transformers>=4.40"]', "uv_DOT_lock": LOCK}
    assert ranges(tmp_path, **files) == {"transformers": "==5.23.0", "torch": "==2.13.0"}


def test_a_script_header_says_it_best(tmp_path):
    header = '# /// script\n# dependencies = [\n#   "transformers>=5.23",\n# ]\n# ///\nimport torch\n'
    assert ranges(tmp_path, header, uv_DOT_lock=LOCK) == {"transformers": ">=5.23", "torch": "==2.13.0"}


def test_the_nearest_folder_that_says_any_holds_up_to_the_repository(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==2.4\n")
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inner = tmp_path / "repo" / "src"
    inner.mkdir()
    assert versions_of("", str(inner / "a.py")) == {}
    (tmp_path / "repo" / "requirements.txt").write_text("torch==2.6\n")
    project_ranges.cache_clear()
    assert versions_of("", str(inner / "a.py")) == {"torch": "==2.6"}


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ("torch>=2.5,<3", {"torch": ">=2.5,<3"}),
        ("pytorch=2.1", {"torch": "==2.1.*"}),
        ("pytorch::pytorch=2.1.0=py3.11_cuda12.1_0", {"torch": "==2.1.0"}),
        ("conda-forge::transformers 4.51.*", {"transformers": "==4.51.*"}),
        ("transformers==4.51.3", {"transformers": "==4.51.3"}),
        ("pytorch-cuda=12.1", {}),
        ("peft", {}),
    ],
)
def test_conda_names_and_ranges(tmp_path, dependency, expected):
    assert (
        ranges(tmp_path, environment_DOT_yml=f"name: x\ndependencies:\n  - python=3.11\n  - {dependency}\n") == expected
    )


def test_what_a_conda_environment_gives_to_pip(tmp_path):
    text = "dependencies:\n  - pytorch=2.1\n  - pip\n  - pip:\n    - transformers==4.51.3\n    - -r more.txt\n"
    assert ranges(tmp_path, environment_DOT_yml=text) == {"torch": "==2.1.*", "transformers": "==4.51.3"}


def test_setup_config(tmp_path):
    text = (
        "[options]\ninstall_requires =\n    torch>=2.1\n    numpy\n[options.extras_require]\ntrain = peft<0.12; trl\n"
    )
    text = text.replace("peft<0.12; trl", "\n    peft<0.12\n    trl")
    assert ranges(tmp_path, setup_DOT_cfg=text) == {"torch": ">=2.1", "peft": "<0.12"}


def test_setup_script_is_read_and_not_run(tmp_path):
    text = """
import sys
from setuptools import setup

REQUIRED = ["torch>=2.1", "numpy"]
raise SystemExit("run")
setup(name="x", install_requires=REQUIRED, extras_require={"train": ["transformers>=4.40,<4.46"]})
"""
    assert ranges(tmp_path, setup_DOT_py=text) == {"torch": ">=2.1", "transformers": ">=4.40,<4.46"}


@pytest.mark.parametrize(
    "name", ["pyproject_DOT_toml", "setup_DOT_py", "setup_DOT_cfg", "environment_DOT_yml", "uv_DOT_lock"]
)
def test_a_broken_file_says_nothing(tmp_path, name):
    assert ranges(tmp_path, **{name: '[[package]]\nname = "torch"\n  - = (\'torch>=2 [\n'}) == {}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("~4", ">=4,<5"),
        ("4.51.*", "==4.51.*"),
        (">=4.40, <5", ">=4.40,<5"),
        ("^4.40 || ^5", None),
    ],
)
def test_ranges_of_poetry(tmp_path, said, expected):
    text = f'[tool.poetry.dependencies]\ntransformers = "{said}"\n'
    assert ranges(tmp_path, pyproject_DOT_toml=text).get("transformers") == expected
