"""placeholder being written"""
import click

@click.command("clean")
def command() -> None:
    """Being written."""
