"""One module per API. Each begins with the versions served and what each added, and has `handle`."""
