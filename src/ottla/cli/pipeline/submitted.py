"""The program that spark-submit runs: `ottla pipeline` with the words that follow it."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from ottla.cli.main import main

    sys.argv = ["ottla", "pipeline", *sys.argv[1:]]
    main()
