"""Where the rows of a batch go: tables, topics, databases, the console."""
