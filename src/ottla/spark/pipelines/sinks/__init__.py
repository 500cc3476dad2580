"""The sinks of a batch's rows: tables, topics, databases, the console."""
