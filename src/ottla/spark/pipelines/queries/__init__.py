"""From checked settings to a running query: sources, SQL steps, and what each batch is checked for."""
