"""The verb that prints a shell's completion script: completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from plmix_dist.cli import plmix
from plmix_dist.cli.options import examples, talking
from plmix_dist.cli.output import show
from plmix_dist.cli.streams import print_result

if TYPE_CHECKING:
    from plmix_dist.cli.options import Talk

_VARIABLE = "_PLMIX_COMPLETE"


@plmix.command(epilog=examples("plmix completion bash"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@talking
def completion(shell: str, *, talk: Talk) -> None:
    """Print the script that completes verbs, options, their values and paths in SHELL.

    Put its output where your shell reads it when it starts: bash, `plmix completion bash >> ~/.bashrc`; zsh, `plmix
    completion zsh >> ~/.zshrc`; fish, `plmix completion fish > ~/.config/fish/completions/plmix.fish`. Then open a new
    shell.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(plmix, {}, "plmix", _VARIABLE).source()
    if talk.as_json:
        show([], {"shell": shell, "script": script}, **vars(talk))
    elif not talk.quiet:
        print_result(script)
