"""Steps that Spark cannot read, in one sentence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.pipelines.errors import PipelineSettingsError
from ottla.spark.pipelines.queries.start import result_of
from ottla.spark.pipelines.settings.model import PipelineKind, PipelineSettings, StepSettings

pytestmark = pytest.mark.spec("D3")


class RefusingSpark:
    """Answers each SELECT as Spark does one of a column that is not there."""

    def __init__(self) -> None:
        self.set: dict[str, str] = {}
        self.conf: Any = SimpleNamespace(set=self.set.__setitem__)

    def sql(self, text: str) -> Any:
        from pyspark.errors import AnalysisException

        raise AnalysisException(
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] `regio` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n"
            "'Project ['regio]\n+- StreamingRelationV2 ottla, [kafka.sasl.password=hunter2]\n"
        )


def test_a_column_that_is_not_there_is_one_sentence_without_the_plan(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    steps = (StepSettings(name="a", sql="SELECT regio"),)
    settings = PipelineSettings(name="p", kind=PipelineKind.stream, checkpoint=str(tmp_path), steps=steps)
    spark: Any = RefusingSpark()
    with pytest.raises(PipelineSettingsError) as refused:
        result_of(spark, settings, {})
    assert str(refused.value) == (
        "step a: [UNRESOLVED_COLUMN.WITH_SUGGESTION] `regio` cannot be resolved. SQLSTATE: 42703; line 1 pos 7"
    )
    assert spark.set == {"spark.sql.variable.substitute": "false"}, "${env:…} in SQL is not Spark's to replace"
