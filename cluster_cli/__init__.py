"""The command line: arguments, help, printing. The work is done in ``stages``."""
