"""Settings: a row for each in `settings.tsv`, and the parsing of what a user sets."""
