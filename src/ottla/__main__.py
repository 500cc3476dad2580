"""`python -m ottla`: the command line."""

from ottla.cli.entry import main

main()
