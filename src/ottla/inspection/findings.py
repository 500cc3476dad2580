"""Findings of a check of log directories: what is wrong, where, which records it affects, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ottla.inspection.walk import Patch


class Severity(StrEnum):
    """How bad a finding is."""

    #: Something is lost or would be read wrong.
    DAMAGE = "damage"
    #: Nothing is lost, but something is not as it should be; brokers repair it themselves when they start.
    WARNING = "warning"
    #: Worth knowing.
    NOTICE = "notice"


class RemedyKind(StrEnum):
    """What a repair does about a finding."""

    #: Write the right bytes in place.
    PATCH = "patch"
    #: Take a damaged range out of a log file and keep it beside it.
    CUT = "cut"
    #: Make the indexes of a segment anew from its log file.
    INDEXES = "rebuild indexes"
    #: Make the leader epochs anew from the logs.
    EPOCHS = "rebuild leader epochs"
    #: Keep the entries of a checkpoint that can be read.
    SALVAGE = "keep what can be read"
    #: Rename the file, so that brokers make it anew from what else there is.
    ASIDE = "move aside"
    #: Write the file as it must have been.
    REPLACE = "write anew"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The repair of a finding. `position` and `length` are of a range of `path`, `content` is for REPLACE.

    `keep`: whether what a CUT takes out is worth to be kept.
    """

    kind: RemedyKind
    path: str
    position: int = 0
    length: int = 0
    patches: tuple[Patch, ...] = ()
    content: bytes = b""
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    `message` says what is wrong, `meaning` what follows from it. `position` and `length` are of a range of the file,
    -1 where the file as a whole is meant. `first_offset` and `last_offset` are those of the records concerned, None
    where there are none; only `last_offset` is None where everything from the first on is.
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
    """What a check went over, for the last line of its report."""

    partitions: int = 0
    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    findings: dict[Severity, int] = field(default_factory=dict)

    def count(self, finding: Finding) -> None:
        """Count a finding."""
        self.findings[finding.severity] = self.findings.get(finding.severity, 0) + 1

    @property
    def damaged(self) -> bool:
        """Whether anything is damaged."""
        return self.findings.get(Severity.DAMAGE, 0) > 0
