"""Functions that click, Fire, tyro and typer call with the words of the command line that a launch script has."""

import pytest
from started import NET, TRAIN, found

HEAD = f"{NET}import click, fire, tyro, typer\nfrom dataclasses import dataclass\n"
BUILDS = f"    net, lr = Net(reentrant, ckpt), 0.1\n{TRAIN}"
CLICK = f"""{HEAD}
@click.command()
@click.option("--ckpt/--no-ckpt", default=False)
@click.option("--reentrant", is_flag=True)
@click.option("--lr", default=0.1)
def main(ckpt, reentrant, lr):
{BUILDS}
main()
"""
PARAMETERS = "data: str = 'c4', ckpt: bool = False, reentrant: bool = False, lr: float = 0.1"
FIRE = f"{HEAD}def main({PARAMETERS}):\n{BUILDS}\nfire.Fire(main)\n"
TYRO = f"""{HEAD}
@dataclass
class Args:
    ckpt: bool = False
    reentrant: bool = False
    lr: float = 0.1

def main():
    args = tyro.cli(Args)
    ckpt, reentrant = args.ckpt, args.reentrant
{BUILDS}
main()
"""


@pytest.mark.parametrize(
    ("code", "bad", "good"),
    [
        (CLICK, "--ckpt --reentrant --lr 3", "--ckpt --reentrant --no-ckpt"),
        (CLICK, "--ckpt --reentrant $@", "--ckpt $@"),
        (CLICK.replace("is_flag=True", "type=bool, default=True"), "--ckpt", "--ckpt --reentrant false"),
        (CLICK.replace("is_flag=True", "default=True"), "--ckpt --reentrant=yes", "--ckpt --unknown 3"),
        (FIRE, "--ckpt --reentrant", "--ckpt --noreentrant"),
        (FIRE, "data/x True True", "data/x True False"),
        (FIRE, "--ckpt True --reentrant=True", "--ckpt True --reentrant=False"),
        (FIRE.replace("= False", "= True"), "--lr 3", "--lr 3 $@"),
        (FIRE.replace("= False", "= True"), "", "--unknown 3"),
        (TYRO, "--ckpt --reentrant", "--ckpt --no-reentrant"),
        (TYRO.replace("= False", "= True"), "--lr 3", "--lr 3 $@"),
        (FIRE.replace("fire.Fire(", "tyro.cli("), "--ckpt --reentrant", "--ckpt"),
        (FIRE.replace("fire.Fire(", "typer.run("), "--ckpt --reentrant", "--ckpt --no-reentrant"),
    ],
)
def test_the_words_of_a_command_reach_the_function(tmp_path, code, bad, good):
    assert found(tmp_path, {"train.py": code}) == []
    assert found(tmp_path, {"train.py": code, "run.sh": f"python train.py {bad}\n"}) == ["CKPT301"]
    assert found(tmp_path, {"train.py": code, "run.sh": f"python train.py {good}\n"}) == []


@pytest.mark.parametrize("decorator", ["@click.pass_context", "@common_options", "@click.group()"])
def test_what_other_decorators_give_stays_open(tmp_path, decorator):
    code = CLICK.replace("@click.command()", f"{decorator}\n@click.command()").replace("def main(", "def main(ctx, ")
    assert found(tmp_path, {"train.py": code, "run.sh": "python train.py --ckpt --reentrant\n"}) == []
