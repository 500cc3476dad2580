"""The declarations of all settings, as plain tuples: see `ottla.config.settings` for their fields."""
