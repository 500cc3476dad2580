"""`python -m ottla`: the command line."""

from ottla.cli.main import main

main()
