"""The broker's metrics: plain integers that its parts count anyway, read when somebody scrapes them."""
