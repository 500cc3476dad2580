"""The command line: the only part that reads environment variables and sets exit codes."""
