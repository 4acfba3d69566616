"""``cluster-cli completion``: the script that teaches a shell the commands and options."""

from __future__ import annotations

import click

NAME, VARIABLE = "cluster-cli", "_CLUSTER_CLI_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: eval "$(cluster-cli completion bash)"           in ~/.bashrc
    zsh:  eval "$(cluster-cli completion zsh)"            in ~/.zshrc
    fish: cluster-cli completion fish | source            in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None  # the choices above are the shells click knows
    click.echo(found(ctx.find_root().command, {}, NAME, VARIABLE).source())
