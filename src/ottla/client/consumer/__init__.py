"""The consumer: what is subscribed and where reading stands, fetching ahead, and membership in a group."""
