"""The alarms for Prometheus, run by its own `promtool`: each goes off for its reason, none in a sound cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from support.programs import promtool_executable

PROJECT: Final = Path(__file__).resolve().parents[2]
RULES: Final = PROJECT / "docker" / "prometheus-rules.yml"
pytestmark = [pytest.mark.spec("R1", "U3"), pytest.mark.needs_promtool]

#: Of broker `a`, which is the controller, and of `b`: a value each for three hours, a sample a minute.
SOUND: Final = {
    "up": (1, 1),
    "kafka_controller_kafkacontroller_activecontrollercount": (1, 0),
    "kafka_controller_kafkacontroller_offlinepartitionscount": (0, 0),
    "kafka_controller_kafkacontroller_topicsineligibletodeletecount": (0, 0),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": (0, 0),
    "kafka_controller_controllerstats_uncleanleaderelections_total": (0, 0),
    "kafka_server_replicamanager_underminisrpartitioncount": (0, 0),
    "kafka_server_replicamanager_atminisrpartitioncount": (0, 0),
    "kafka_server_replicamanager_underreplicatedpartitions": (0, 0),
    "kafka_server_replicamanager_leadercount": (50, 50),
    "kafka_log_logmanager_offlinelogdirectorycount": (0, 0),
    "ottla_coordinator_append_failures_total": (0, 0),
    "ottla_reassigning_partitions": (0, 0),
    "ottla_log_directory_usable_bytes": (600, 600),
    "ottla_log_directory_total_bytes": (1000, 1000),
    "ottla_lost_records_total": (0, 0),
    "ottla_event_loop_lag_seconds": (0.01, 0.01),
    "ottla_connections_refused_total": (0, 0),
    "ottla_ready": (1, 1),
    # Of one coordinator.
    "ottla_consumergroup_lag_seconds": (5, None),
    "kafka_consumergroup_current_offset": (100, None),
    "kafka_topic_partition_current_offset": (100, 100),
    "ottla_metrics_left_out": (0, 0),
    "ottla_group_rebalance_causes_total": (3, 3),
}
#: Once more at each of them: a counter that grows by one after an hour.
ONE_MORE: Final = "0x60 1x120"


class Case(NamedTuple):
    """What is other than in a sound cluster at broker `a`, in promtool's notation, and the alarms that follow."""

    series: dict[str, str]
    alarms: set[str]
    at: str = "2h"


_CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"
_REPLICAS: Final = "kafka_server_replicamanager_"
CASES: Final = {
    "sound": Case({}, set()),
    "no-controller": Case({_CONTROLLER: "0x180"}, {"OttlaNoController"}),
    "unsettled": Case({_CONTROLLER: "0 1 " * 90}, {"OttlaControllerUnsettled"}, "121m"),
    "silent": Case({"up": "0x180"}, {"OttlaBrokerSilent"}),
    "offline": Case({"kafka_controller_kafkacontroller_offlinepartitionscount": "3x180"}, {"OttlaOfflinePartitions"}),
    "under-min-isr": Case({f"{_REPLICAS}underminisrpartitioncount": "3x180"}, {"OttlaUnderMinIsr"}),
    "offsets": Case({"ottla_coordinator_append_failures_total": ONE_MORE}, {"OttlaOffsetsNotWritten"}, "63m"),
    "failed-directory": Case({"kafka_log_logmanager_offlinelogdirectorycount": "1x180"}, {"OttlaFailedLogDirectory"}),
    "full": Case({"ottla_log_directory_usable_bytes": "40x180"}, {"OttlaDiskFull", "OttlaDiskFilling"}),
    "scarce": Case({"ottla_log_directory_usable_bytes": "140x180"}, {"OttlaDiskFilling"}),
    "filling": Case({"ottla_log_directory_usable_bytes": "600-1x180"}, {"OttlaDiskFilling"}),
    "at-min-isr": Case({f"{_REPLICAS}atminisrpartitioncount": "3x180"}, {"OttlaAtMinIsr"}),
    "under-replicated": Case({f"{_REPLICAS}underreplicatedpartitions": "3x180"}, {"OttlaUnderReplicated"}),
    "moving": Case(
        {f"{_REPLICAS}underreplicatedpartitions": "3x180", "ottla_reassigning_partitions": "200-1x180"}, set()
    ),
    "stuck": Case({"ottla_reassigning_partitions": "7x180"}, {"OttlaReassignmentStuck"}, "130m"),
    "deletion": Case(
        {"kafka_controller_kafkacontroller_topicsineligibletodeletecount": "1x180"}, {"OttlaDeletionStuck"}
    ),
    "not-preferred": Case(
        {"kafka_controller_kafkacontroller_preferredreplicaimbalancecount": "11x180"}, {"OttlaLeadersNotPreferred"}
    ),
    "unclean": Case(
        {"kafka_controller_controllerstats_uncleanleaderelections_total": ONE_MORE}, {"OttlaUncleanElection"}, "63m"
    ),
    "lost": Case({"ottla_lost_records_total": ONE_MORE}, {"OttlaLostRecords"}, "63m"),
    "busy": Case({"ottla_event_loop_lag_seconds": "0.7x180"}, {"OttlaEventLoopBusy"}),
    "not-ready": Case({"ottla_ready": "0x180"}, {"OttlaNotReady"}),
    "behind": Case({"ottla_consumergroup_lag_seconds": "0+15x180"}, {"OttlaGroupBehind"}),
    "behind-unknown": Case(
        {"ottla_consumergroup_lag_seconds": "_x180", "kafka_topic_partition_current_offset": "150x180"},
        {"OttlaGroupBehind"},
    ),
    "busy-unknown": Case(
        {
            "ottla_consumergroup_lag_seconds": "_x180",
            "kafka_consumergroup_current_offset": "100+1x180",
            "kafka_topic_partition_current_offset": "150+1x180",
        },
        set(),
    ),
    "left-out": Case({"ottla_metrics_left_out": "2x180"}, {"OttlaMetricsLeftOut"}),
    "unsettled-group": Case({"ottla_group_rebalance_causes_total": "0+1x180"}, {"OttlaGroupUnsettled"}),
    "refused": Case({"ottla_connections_refused_total": ONE_MORE}, {"OttlaConnectionsRefused"}, "63m"),
}


def check_with_promtool(*arguments: str) -> str:
    """What promtool says; AssertionError where it finds something wrong."""
    promtool = promtool_executable()
    assert promtool is not None
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def series(case: Case) -> list[dict[str, str]]:
    given = []
    for name, values in SOUND.items():
        directory = ',log_directory="/data"' if name.startswith("ottla_log_directory") else ""
        for instance, value in zip("ab", values, strict=True):
            if value is None:
                continue
            told = case.series.get(name) if instance == "a" else None
            labels = f'job="ottla",instance="{instance}"{directory}'
            given.append({"series": f"{name}{{{labels}}}", "values": told or f"{value}x180"})
    return given


def test_promtool_reads_every_rule() -> None:
    assert f"{len(rules())} rules found" in check_with_promtool("check", "rules", str(RULES))


def test_every_alarm_goes_off_in_some_case() -> None:
    assert set().union(*(case.alarms for case in CASES.values())) == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_alarms_go_off_for_what_they_are_about_and_no_others(case: Case, tmp_path: Path) -> None:
    asked = [
        {
            "expr": f'count(ALERTS{{alertstate="firing",alertname="{rule["alert"]}"}}) or vector(0)',
            "eval_time": case.at,
            "exp_samples": [{"labels": "{}", "value": int(rule["alert"] in case.alarms)}],
        }
        for rule in rules()
    ]
    test = {"interval": "1m", "input_series": series(case), "promql_expr_test": asked}
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    check_with_promtool("test", "rules", str(path))
