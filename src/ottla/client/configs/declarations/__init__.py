"""The settings of clients, as plain tuples; `ottla.client.configs.settings` builds tables of them.

A row is: name, type, default, valid values, importance, effect, documentation (see `ottla.config.settings.Setting`).
"""
