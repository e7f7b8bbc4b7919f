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


def test_what_bounds_a_library_says_more_than_what_does_not(tmp_path):
    extras = "setup(install_requires=['transformers>=4.31'], extras_require={'hf': ['transformers>=4.51,<5.3']})"
    assert ranges(tmp_path, setup_DOT_py=extras) == {"transformers": ">=4.51,<5.3"}
    turned = "setup(extras_require={'hf': ['transformers==4.38.2']}, install_requires=['transformers', 'torch>=2'])"
    assert ranges(tmp_path / "b", setup_DOT_py=turned) == {"transformers": "==4.38.2", "torch": ">=2"}


METADATA = """Metadata-Version: 2.1
Name: x
Requires-Dist: torch>=2.1
Requires-Dist: transformers (<5.0,>=4.51) ; extra == "hf"

Requires-Dist: peft==0.4
"""


def test_an_unpacked_distribution_says_what_it_requires(tmp_path):
    ranges(tmp_path, **{"x-1.0_DOT_dist-info/METADATA": METADATA})
    inner = tmp_path / "x" / "models"
    inner.mkdir(parents=True)
    assert versions_of("", str(inner / "a.py")) == {"torch": ">=2.1", "transformers": ">=4.51,<5.0"}
    # Where several are installed, none of them speaks for the others.
    ranges(tmp_path, **{"y-1.0_DOT_dist-info/METADATA": METADATA})
    project_ranges.cache_clear()
    assert versions_of("", str(inner / "a.py")) == {}


def test_commands_that_fix_a_version_count_where_nothing_else_does(tmp_path):
    readme = "Run `pip install -q transformers==4.31.0 peft>=0.4 \\\n  'trl<0.8'` first. pip install accelerate\n"
    assert ranges(tmp_path, README_DOT_md=readme) == {"transformers": "==4.31.0", "trl": "<0.8"}
    inner = tmp_path / "inner"
    said = ranges(inner, Dockerfile="RUN pip3 install torch==2.1.0 && pip install trl==0.9\n")
    assert said == {"torch": "==2.1.0", "trl": "<0.8", "transformers": "==4.31.0"}
    assert ranges(inner / "own", requirements_DOT_txt="transformers>=5\n") == {"transformers": ">=5"}


def test_commands_that_differ_fix_nothing(tmp_path):
    readme = "pip install torch==2.5.1 peft==0.14\n\nFor older GPUs:\n\npip install torch==1.8.0 peft==0.14\n"
    assert ranges(tmp_path, README_DOT_md=readme) == {"peft": "==0.14"}


def test_a_notebook_says_what_it_installs(tmp_path):
    exported = "# !pip install -U transformers==4.36.2 accelerate\nimport torch\n"
    assert ranges(tmp_path / "a", exported, requirements_DOT_txt="transformers>=5\n") == {"transformers": "==4.36.2"}
    as_python = "pass  # %pip install 'trl<=0.8'\nprint('!pip install torch==1')\n"
    assert ranges(tmp_path / "b", as_python) == {"trl": "<=0.8"}
    assert ranges(tmp_path / "c", "# run pip install transformers==4.36.2 first\n") == {}
    others = {"Pipfile": '[packages]\ntransformers = "==4.31.0"\n'}
    assert ranges(tmp_path / "d", **others) == {"transformers": "==4.31.0"}
    assert ranges(tmp_path / "e", **{"dev-requirements_DOT_txt": "peft==0.5\n"}) == {"peft": "==0.5"}
