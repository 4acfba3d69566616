"""``python -m cluster_cli`` is ``cluster-cli``."""

from cluster_cli.main import main

main()
