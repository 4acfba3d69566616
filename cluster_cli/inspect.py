"""placeholder being written"""
import click

@click.command("inspect")
def command() -> None:
    """Being written."""
