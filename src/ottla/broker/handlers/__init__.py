"""One module per API. Each opens with the versions served and what each added, and exposes `handle`."""
