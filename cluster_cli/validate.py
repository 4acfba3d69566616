"""placeholder being written"""
import click

@click.command("validate")
def command() -> None:
    """Being written."""
