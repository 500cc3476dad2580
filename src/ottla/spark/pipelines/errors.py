"""Errors that prevent or end a pipeline, each in one sentence with the cure."""

from __future__ import annotations

from ottla.spark.errors import SparkRefusal


class PipelineError(SparkRefusal):
    """A pipeline cannot start or continue; the message names the cause and the cure."""


class PipelineSettingsError(PipelineError, ValueError):
    """A setting is missing, unknown or senseless; the message names it."""


class CheckpointMismatchError(PipelineError):
    """The table has batches of this pipeline that this checkpoint did not write."""


class SupersededError(PipelineError):
    """Another driver committed this batch, or a later one: this one must end."""
