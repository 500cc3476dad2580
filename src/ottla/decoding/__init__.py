"""Keys and values that have a schema, Avro and Protobuf, and the schema registry that has it; no Spark."""
