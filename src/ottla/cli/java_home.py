"""Which Java the commands that run Spark are to use, by the environment."""

from __future__ import annotations

import os


def java_home() -> str | None:
    """JAVA_HOME where it names a Java that Spark can run on, else None: one is looked for then."""
    from ottla.spark.java import JavaNotFound, find_java

    named = os.environ.get("JAVA_HOME")
    try:
        if named:
            find_java(named)
    except JavaNotFound:
        return None
    return named or None
