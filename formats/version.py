"""The program's version, written into every artifact's ``created_by``."""

__version__ = "0.1.0"
