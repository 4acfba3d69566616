"""placeholder being written"""
import click

@click.command("init")
def command() -> None:
    """Being written."""
