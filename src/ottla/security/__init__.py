"""Security: TLS contexts and key stores from Kafka's settings, SASL exchanges, names of principals."""
