from ottla.records._json import JsonColumn as JsonColumn
from ottla.records._json import JsonReader as JsonReader
