from ottla.records._walk import RowColumns as RowColumns
from ottla.records._walk import check_records as check_records
from ottla.records._walk import read_columns as read_columns
from ottla.records._walk import read_records as read_records
from ottla.records._walk import scan_keys as scan_keys
