"""YAML and JSON to values with places: the values are those of the libraries' own readers, the places those of the text."""

import json

import pytest
import yaml
from hf_ckpt.lint.configs import yaml_text
from hf_ckpt.lint.configs.document import Document
from hf_ckpt.lint.configs.json_text import read_json
from hf_ckpt.lint.configs.nodes import ConfigError, Mapping, Opaque, Scalar, Sequence
from hf_ckpt.lint.configs.shell.commands import exported, read_commands
from hf_ckpt.lint.configs.yaml_text import comments_in, read_yaml

YAML = [
    "a: 1\nb: [true, off, ~, 1e-4, 1.0e-4, '1']\nc:\n  d: {e: f}\n  g: []\n",
    "a: grün ☃ 😀 # x\nb:\r\n  c: 'x\r\n    y'\r\n",
    "a: |\n  x\n  y\n\nb: >-\n  t\nc: &x {d: 1}\ne: *x\n",
    "base: &base\n  k: 1\n  l: 2\nuse:\n  <<: *base\n  k: 3\nboth:\n  <<: [*base, {l: 4, m: 5}]\n",
    "- a: 1\n  b:\n- c\n\n# tail\n",
    '{"a": [1, {"b": null}]}',
    "a: 1\na: 2\n",
    "day: 2001-01-01\n",
]
JSON = [
    '{"a": [1, 2.5, -3e4, true, null, {"b": {}}], "c": [], "d": "x"}',
    '{\n\t"path": "out\\/x",\n\t"text": "\\ud83d\\ude00 \\u00fc \\"q\\"",\r\n\t"n": [\t1 ,2 ]\n}\n',
    '{"a": 1, "a": 2}',
    " [1, {}] ",
]


def plain(node):
    match node:
        case Mapping():
            return {name: plain(entry.value) for name, entry in node.entries.items()}
        case Sequence():
            return [plain(item) for item in node.items]
        case Scalar():
            return node.value
        case Opaque():
            return None


def scalars(node):
    match node:
        case Mapping():
            for entry in node.entries.values():
                yield entry.key
                yield from scalars(entry.value)
        case Sequence():
            for item in node.items:
                yield from scalars(item)
        case Scalar():
            yield node


@pytest.mark.parametrize("text", YAML)
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_yaml_has_the_values_that_the_libraries_read(text, loader, monkeypatch):
    if not hasattr(yaml, loader):
        pytest.skip("PyYAML without libyaml")
    monkeypatch.setattr(yaml_text, "_LOADER", getattr(yaml, loader))
    assert plain(read_yaml(text)) == yaml.safe_load(text)


@pytest.mark.parametrize("text", JSON)
def test_json_has_the_values_that_the_libraries_read(text):
    assert plain(read_json(text)) == json.loads(text)


@pytest.mark.parametrize("text", JSON)
def test_every_json_scalar_stands_where_it_is_said_to(text):
    assert all(json.loads(text[scalar.begin : scalar.end]) == scalar.value for scalar in scalars(read_json(text)))


@pytest.mark.parametrize("text", YAML)
def test_every_yaml_scalar_stands_where_it_is_said_to(text):
    for scalar in scalars(read_yaml(text)):
        part = text[scalar.begin : scalar.end]
        assert part in ("|", ">") or yaml.safe_load(part) == scalar.value


def test_what_stands_elsewhere_too_is_shared():
    root = read_yaml("a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: 2\nd: {z: 3}\n")
    assert [name for name, entry in root.entries.items() if entry.shared] == ["a", "b"]
    assert {name: entry.shared for name, entry in root.entries["c"].value.entries.items()} == {"x": True, "y": False}
    assert not root.entries["d"].value.shared


def test_a_value_that_only_the_program_knows_is_opaque():
    root = read_yaml("a: !include other.yaml\nb: 1\n")
    assert isinstance(root.entries["a"].value, Opaque)


@pytest.mark.parametrize(
    ("text", "offset"), [("a: b: c", 4), ("a: [1\nb: 2", 7), ("\ta: 1", 0), ("a: *nope\n", 3), ("a: 'x", None)]
)
def test_bad_yaml_says_where(text, offset):
    with pytest.raises(ConfigError) as error:
        read_yaml(text)
    assert offset is None or error.value.offset == offset


@pytest.mark.parametrize(
    ("text", "offset"), [('{"a": 1,}', None), ('{"a" 1}', 5), ("", 0), ("{'a': 1}", 1), ("[1] 2", 4)]
)
def test_bad_json_says_where(text, offset):
    with pytest.raises(ConfigError) as error:
        read_json(text)
    assert offset is None or error.value.offset == offset


def test_deep_and_endless_documents_are_errors_or_values():
    deep = ["[" * 3_000, "[" * 3_000 + "]" * 3_000, "- " * 3_000 + "x"]
    indented = "".join(f"{' ' * depth}a:\n" for depth in range(1_500))
    for read, text in [(read_json, "[" * 100_000), *((read_yaml, text) for text in (*deep, indented))]:
        with pytest.raises(ConfigError):
            read(text)
    assert isinstance(read_yaml("a: &a [*a]\n"), Mapping)
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert Document("bomb.yaml", bomb, read_yaml(bomb)).root.items.keys() >= {"a29"}


def test_several_documents_are_no_configuration():
    assert read_yaml("a: 1\n---\nb: 2\n") is None
    assert read_yaml("# nothing\n") is None


def test_comments_are_told_from_text_with_a_hash():
    text = "# one\na: 'x # no'\nb: y#no # two\nc: |\n  # no\nd: [1, # three\n  2]\n"
    assert [(offset, text[offset : offset + len(said)], said) for offset, said in comments_in(text)] == [
        (0, "# one", "# one"),
        (text.index("# two"), "# two", "# two"),
        (text.index("# three"), "# three", "# three"),
    ]


def words(text):
    return [[word.text for word in command] for command in read_commands(text)]


def test_the_shell_that_launch_scripts_use():
    text = r"""#!/bin/bash
set -e
CONFIG=configs/fsdp.yaml   # the one
export NAME="run $CONFIG"
TWICE=a; TWICE=b
accelerate launch --config_file "${CONFIG}" \
    train.py --name 'a b' --kwargs '{"use_reentrant": false}' \
    --path=$TWICE $(nproc) "$@" && echo done
"""
    assert words(text)[-2:] == [
        [
            *("accelerate", "launch", "--config_file", "configs/fsdp.yaml", "train.py", "--name", "a b", "--kwargs"),
            *('{"use_reentrant": false}', None, None, None),
        ],
        ["echo", "done"],
    ]
    assert all(text[word.begin : word.end].strip() for command in read_commands(text) for word in command)


def test_values_that_no_reader_can_make():
    text = "a: !!bool maybe\nb: !!timestamp soon\nc: !!int ''\nd: !!float x\ne: 1\n"
    assert plain(read_yaml(text)) == {"a": None, "b": None, "c": None, "d": None, "e": 1}
    with pytest.raises(ConfigError, match="digits"):
        read_json(f'{{"a": {"9" * 5000}}}')


def test_what_a_branch_of_a_launch_script_exports_is_known_in_that_branch_only():
    text = """\
export ALWAYS=1 CHANGED=1
if [ "$MODE" = fsdp ]; then export BRANCH=1
  export CHANGED=2
  accelerate launch inside.py
else
  export OTHER=1
fi
[ -n "$DEBUG" ] && export SHORT=1
SIZE=1
case $MODE in
  big) SIZE=8 ;;
esac
accelerate launch --size "$SIZE" outside.py
"""
    commands = read_commands(text)
    inside, outside = (
        number
        for number, command in enumerate(commands)
        if [word.text for word in command][:2] == ["accelerate", "launch"]
    )
    assert {name: word.text for name, word in exported(commands, inside).items()} == {
        "ALWAYS": "1",
        "BRANCH": "1",
        "CHANGED": "2",
    }
    assert {name: word.text for name, word in exported(commands, outside).items()} == {"ALWAYS": "1"}
    assert [word.text for word in commands[outside]][-2:] == [None, "outside.py"]
