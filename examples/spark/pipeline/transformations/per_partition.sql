-- How many readings each partition has had.
CREATE MATERIALIZED VIEW per_partition AS
SELECT partition, count(*) AS readings FROM readings GROUP BY partition
