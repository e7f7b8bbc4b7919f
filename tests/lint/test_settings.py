import pytest
from hf_ckpt.lint.project.settings import Settings, SettingsError, describe, find_settings, load_settings


def write(path, text):
    path.write_text(text)
    return str(path)


def test_everything_is_read(tmp_path):
    path = write(
        tmp_path / "pyproject.toml",
        """
[tool.ckpt-lint]
select = ["CKPT1"]
ignore = ["CKPT101"]
exclude = ["vendored/**"]
force-exclude = true
per-file-ignores = {"tests/**" = ["CKPT4"]}
versions = {transformers = ">=5.23"}
""",
    )
    assert load_settings(path) == Settings(
        select=("CKPT1",),
        ignore=("CKPT101",),
        per_file_ignores=(("tests/**", ("CKPT4",)),),
        exclude=("vendored/**",),
        force_exclude=True,
        versions=(("transformers", ">=5.23"),),
        root=str(tmp_path),
        origin=path,
    )


def test_a_file_of_our_own_needs_no_tool_table(tmp_path):
    assert load_settings(write(tmp_path / "ckpt-lint.toml", 'ignore = ["CKPT4"]')).ignore == ("CKPT4",)


def test_the_nearest_file_with_our_section_wins(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(tmp_path / "pyproject.toml", '[tool.ckpt-lint]\nignore = ["CKPT4"]')
    write(tmp_path / "a" / "pyproject.toml", '[project]\nname = "x"\ndependencies = ["ckpt-lint"]\n[tool.ruff]\n')
    known: dict[str, Settings] = {}
    assert find_settings(str(inner), known).ignore == ("CKPT4",)
    assert find_settings(str(inner), known).root == str(tmp_path)
    assert str(inner) in known


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.ckpt-lint]\nselct = ["CKPT1"]', ["unknown key `selct`", "did you mean `select`?"]),
        ('[tool.ckpt-lint]\nselect = "CKPT1"', ["`select`", "must be a list of strings"]),
        ("[tool.ckpt-lint]\nforce-exclude = 1", ["`force-exclude`", "true or false"]),
        ('[tool.ckpt-lint]\nper-file-ignores = ["x"]', ["`per-file-ignores`", "a table of lists"]),
        ("[tool.ckpt-lint]\nversions = {torch = 2}", ["`versions`", "version ranges"]),
        ('[tool.ckpt-lint]\nversions = {trl = "1.16"}', ["`versions.trl`", '"1.16"', 'such as ">=4.40,<5"']),
        ('[tool.ckpt-lint]\nversions = {trl = "newest"}', ["`versions.trl`", '"newest"']),
        ('[tool.ckpt-lint]\nversions = {torch = ">=2", trl = "1.16,<2"}', ["`versions.trl`", '"1.16,<2"']),
        ('[tool.ckpt-lint]\nversions = {trl = "^1.16"}', ["`versions.trl`", '"^1.16"']),
        ("[tool.ckpt-lint", ["not valid TOML"]),
    ],
)
def test_bad_settings_get_one_clear_sentence(tmp_path, text, words):
    path = write(tmp_path / "pyproject.toml", text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    assert str(caught.value).startswith(path)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    "spec", [">=4.40", "==4.40.*", " ~= 4.40, != 4.41.0 ,<5", "==2.4.1+cu121", ">=5.0rc1", "*", ""]
)
def test_version_ranges(tmp_path, spec):
    path = write(tmp_path / "pyproject.toml", f'[tool.ckpt-lint]\nversions = {{torch = "{spec}"}}')
    assert load_settings(path).versions == (("torch", spec),)


def test_settings_are_described_in_words():
    text = describe(Settings(select=("CKPT1",), versions=(("torch", ">=2.4"),)), {"torch": "==2", "trl": "==1.1"})
    assert "select: CKPT1" in text
    assert "versions: torch>=2.4, trl==1.1" in text
    assert "the newest" in describe(Settings(), {})
