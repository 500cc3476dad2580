"""The values of `${…}` in a pipeline's file, and how they are kept out of everything that is shown.

`${env:NAME}` is a variable of the environment, `${file:PATH}` the text of a file without the line end, `${here}` the
folder of the pipeline's file; `$${` is `${`. Values of the first two count as secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.errors import PipelineSettingsError

#: Bytes of a file with a secret; more is another kind of file.
MAX_SECRET_BYTES: Final = 64 * 1024
HIDDEN: Final = "***"

_REFERENCE: Final = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?:(?P<scheme>[A-Za-z]\w*):(?P<rest>[^{}]*)|(?P<here>here))\}")


class References:
    """Replaces what a file's strings refer to. `folder` is absolute; `secrets` are the values found so far."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._secrets: dict[str, None] = {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """All values that came from the environment or from files."""
        return tuple(self._secrets)

    def resolve(self, text: str, where: str) -> str:
        """The text with its references replaced; `where` names it in errors. Raises PipelineSettingsError."""

        def replaced(found: re.Match[str]) -> str:
            if found["escaped"]:
                return "${"
            if found["here"]:
                return str(self._folder)
            value = self._look_up(found["scheme"], found["rest"], where)
            self._secrets[value] = None
            return value

        return _REFERENCE.sub(replaced, text)

    def is_secret(self, text: str) -> bool:
        """Whether a raw text has a reference whose value must not be shown."""
        return any(found["scheme"] for found in _REFERENCE.finditer(text))

    def _look_up(self, scheme: str, rest: str, where: str) -> str:
        if scheme == "env":
            value = self._environment.get(rest)
            if value is None:
                raise PipelineSettingsError(f"{where}: the environment has no variable {rest}; set it")
            if not value:
                raise PipelineSettingsError(f"{where}: the variable {rest} of the environment is empty; set it")
            return value
        if scheme == "file":
            return self._read(rest, where)
        raise PipelineSettingsError(
            f"{where}: ${{{scheme}:{rest}}} is not known; give ${{env:NAME}} or ${{file:PATH}}, $${{ for a plain ${{"
        )

    def _read(self, path: str, where: str) -> str:
        try:
            with (self._folder / path).open("rb") as file:
                content = file.read(MAX_SECRET_BYTES + 1)
            value = content.decode("utf-8-sig").rstrip("\r\n")
        except OSError as problem:
            raise PipelineSettingsError(f"{where}: the file {path} cannot be read ({problem.strerror})") from None
        except UnicodeDecodeError:
            raise PipelineSettingsError(f"{where}: the file {path} is not text in UTF-8") from None
        if len(content) > MAX_SECRET_BYTES:
            raise PipelineSettingsError(f"{where}: the file {path} has more than {MAX_SECRET_BYTES >> 10} KiB")
        if not value:
            raise PipelineSettingsError(f"{where}: the file {path} is empty")
        return value


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced by `***`, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
