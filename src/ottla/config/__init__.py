"""Settings: one declaration for each, and the parsing of what a user gives."""
