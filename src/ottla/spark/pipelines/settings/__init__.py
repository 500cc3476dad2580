"""The settings of a pipeline: one TOML file, checked by name, type and sense before Spark is started."""
