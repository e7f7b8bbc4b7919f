"""The configuration files among the examples say what the installed tools understand."""

from __future__ import annotations

import yaml
from accelerate.commands.config.config_args import load_config_from_file
from pre_commit.clientlib import load_config, load_manifest

from .test_scripts import EXAMPLES


def test_accelerate_reads_the_launch_file():
    config = load_config_from_file(str(EXAMPLES / "accelerate_fsdp.yaml"))
    assert str(config.distributed_type) in ("FSDP", "DistributedType.FSDP")
    assert config.fsdp_config["fsdp_version"] == 2
    assert config.fsdp_config["fsdp_activation_checkpointing"] is False


def test_every_fsdp_setting_is_one_of_accelerates():
    from accelerate.commands.launch import launch_command_parser

    known = {option for action in launch_command_parser()._actions for option in action.option_strings}
    settings = yaml.safe_load((EXAMPLES / "accelerate_fsdp.yaml").read_text())["fsdp_config"]
    assert {f"--{name}" for name in settings} <= known


def test_pre_commit_reads_its_configuration_and_knows_the_hook():
    config = load_config(str(EXAMPLES / "pre-commit-config.yaml"))
    manifest = load_manifest(str(EXAMPLES.parent / ".pre-commit-hooks.yaml"))
    assert {hook["id"] for repo in config["repos"] for hook in repo["hooks"]} <= {hook["id"] for hook in manifest}
