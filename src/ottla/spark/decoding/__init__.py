"""Values of records to typed columns, in the task that reads them: `valueFormat` and its options.

options = parse_decoding_options({"valueFormat": "json", "valueSchema": "id BIGINT, name STRING"})
made = decoder(options)
made.fields                 # the columns that stand in the place of `value`
made.decode(batch.column("value"))
"""

from __future__ import annotations

from ottla.spark.decoding.decoder import ValueDecoder, decoder, decoder_of
from ottla.spark.decoding.options import DECODING_OPTIONS, DecodingOptions, parse_decoding_options

__all__ = ["DECODING_OPTIONS", "DecodingOptions", "ValueDecoder", "decoder", "decoder_of", "parse_decoding_options"]
