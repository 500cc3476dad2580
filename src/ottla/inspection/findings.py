"""Findings of a check of log directories: what is wrong, where, which records it affects, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ottla.inspection.walk import Patch


class Severity(StrEnum):
    """How bad a finding is."""

    #: Data is lost or would be read incorrectly.
    DAMAGE = "damage"
    #: Nothing is lost, but a file is inconsistent; brokers repair it themselves when they start.
    WARNING = "warning"
    #: For information.
    NOTICE = "notice"


class RemedyKind(StrEnum):
    """How a finding is repaired."""

    #: Write the correct bytes in place.
    PATCH = "patch"
    #: Take a damaged range out of a log file and save it beside it.
    CUT = "cut"
    #: Rebuild the indexes of a segment from its log file.
    INDEXES = "rebuild indexes"
    #: Rebuild the leader epochs from the logs.
    EPOCHS = "rebuild leader epochs"
    #: Keep the readable entries of a checkpoint.
    SALVAGE = "keep what can be read"
    #: Rename the file, so that brokers recreate it from other data.
    ASIDE = "move aside"
    #: Write the file with its original contents, which are known.
    REPLACE = "write anew"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The repair of a finding. `position` and `length` define a range of `path`, `content` is for REPLACE.

    `keep`: whether the range taken out by a CUT should be saved.
    """

    kind: RemedyKind
    path: str
    position: int = 0
    length: int = 0
    patches: tuple[Patch, ...] = ()
    content: bytes = b""
    keep: bool = True


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One finding.

    `message` says what is wrong, `meaning` the consequence. `position` and `length` define a range of the file, -1 for
    the whole file. `first_offset` and `last_offset` are those of the affected records, None if there are none; if only
    `last_offset` is None, everything from the first on is affected.
    """

    severity: Severity
    kind: str
    path: str
    message: str
    meaning: str = ""
    position: int = -1
    length: int = -1
    first_offset: int | None = None
    last_offset: int | None = None
    remedy: Remedy | None = None


@dataclass(slots=True)
class Tally:
    """Counts of what was checked, for the last line of the report."""

    partitions: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    findings: dict[Severity, int] = field(default_factory=dict)

    def count(self, finding: LogFinding) -> None:
        """Count a finding."""
        self.findings[finding.severity] = self.findings.get(finding.severity, 0) + 1

    @property
    def damaged(self) -> bool:
        """Whether anything is damaged."""
        return self.findings.get(Severity.DAMAGE, 0) > 0
