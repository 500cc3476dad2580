from ottla.records._building import RecordsBuilder as RecordsBuilder
from ottla.records._building import SourceColumns as SourceColumns
from ottla.records._building import Strings as Strings
from ottla.records._building import append_pairs as append_pairs
from ottla.records._building import murmur2 as murmur2
from ottla.records._building import partitions_for_keys as partitions_for_keys
from ottla.records._building import rows_by_partition as rows_by_partition
