"""The export of what is live, for a check where the store cannot be reached: in CI (V2).

One JSON object in each line: what the file is, the sources of jobs and processes, the instances, and at the end how
many there are. The secrets of links to awakeables are left out; journals and states are not: keep the file as safe as
the store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec

from hark.model.activation import CLAIM_COLUMNS, Claim, JournalRow, WaitRow
from hark.model.errors import InvalidInput
from hark.model.reasons import reason
from hark.model.version import VERSION

_FORMAT: Final = 1
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Source = tuple[str, int, str]
T = TypeVar("T")
_FLAGS: Final = {
    field.name for row in (Claim, JournalRow, WaitRow) for field in msgspec.structs.fields(row) if field.type is bool
}


class LiveWriter:
    """Writes instances into an export."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def line(self, value: Any) -> None:
        self._file.write(_encode(value) + b"\n")

    def add(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            columns = [getattr(claim, name) for name in CLAIM_COLUMNS]
            journal = [
                (line.seq, line.entry, line.kind, line.name, _without_secret(line), line.error)
                for line in claim.journal
            ]
            waits = [tuple(getattr(wait, name) for name in WaitRow.__struct_fields__) for wait in claim.waits]
            self.line({"instance": columns, "journal": journal, "waits": waits})
            self.count += 1


def _without_secret(line: JournalRow) -> str | None:
    """The value of a line; of the creation of an awakeable, it is the secret of its link."""
    return '""' if line.kind == "awakeable" else line.value


@contextmanager
def write(path: Path, sources: Sequence[Source]) -> Iterator[LiveWriter]:
    """Write an export. It gets its name when it is complete; if something fails, an older file stays as it was."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            writer = LiveWriter(file)
            writer.line({"hark": "live", "format": _FORMAT, "version": VERSION, "columns": CLAIM_COLUMNS})
            for name, version, source in sources:
                writer.line({"name": name, "version": version, "source": source})
            yield writer
            writer.line({"end": writer.count})
        part.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {reason(error)}.") from error
    finally:
        with suppress(OSError):
            part.unlink()


class LiveExport:
    """An export that is being read."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        self.total = _count(path, file)
        head = self._parse(file.readline())
        if head.get("hark") != "live":
            raise InvalidInput(f"{path} is not an export of `hark export --live`.")
        if head.get("format") != _FORMAT or head.get("columns") != list(CLAIM_COLUMNS):
            raise InvalidInput(
                f"{path} was written by Hark {head.get('version')}, and this is {VERSION}: use the same version "
                "for the export and for the check."
            )
        self.sources: list[Source] = []
        self._first = self._parse(file.readline())
        while "source" in self._first:
            self.sources.append(self._source(self._first))
            self._first = self._parse(file.readline())

    def _source(self, line: Any) -> Source:
        try:
            source: Source = msgspec.convert((line["name"], line["version"], line["source"]), Source)
        except (KeyError, msgspec.ValidationError) as error:
            raise self.damaged(error) from error
        return source

    def claims(self) -> Iterator[Claim]:
        line, count = self._first, 0
        while "end" not in line:
            yield self._claim(line)
            count += 1
            line = self._parse(self._file.readline())
        if count != line["end"] or self._file.read(1):
            raise self.damaged(ValueError(f"it ends after {count} instances, and its last line says {self.total}"))

    def _claim(self, line: Any) -> Claim:
        try:
            claim = _typed(Claim, CLAIM_COLUMNS, line["instance"])
            claim.journal = [_typed(JournalRow, JournalRow.__struct_fields__, row) for row in line["journal"]]
            claim.waits = [_typed(WaitRow, WaitRow.__struct_fields__, row) for row in line["waits"]]
        except (TypeError, ValueError, KeyError, msgspec.ValidationError) as error:
            raise self.damaged(error) from error
        return claim

    def damaged(self, error: BaseException) -> InvalidInput:
        """The error of an export with something that no export has."""
        return InvalidInput(f"{self._path} is damaged: {reason(error)}. Export it again.")

    def _parse(self, line: bytes) -> Any:
        try:
            value = _decode(line)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"{self._path} is not an export of `hark export --live`, or it is damaged: {error}."
            ) from error
        return value if isinstance(value, dict) else {}


def _typed(made: type[T], names: Sequence[str], values: Sequence[Any]) -> T:
    """The object of these values, which were written in the order of the names. A store may have 0 and 1 for bool."""
    fields = {
        name: bool(value) if name in _FLAGS and value in (0, 1) else value
        for name, value in zip(names, values, strict=True)
    }
    return msgspec.convert(fields, made)


def _count(path: Path, file: IO[bytes]) -> int:
    """The number of instances, which is in the last line."""
    file.seek(max(os.fstat(file.fileno()).st_size - 100, 0))
    last = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    file.seek(0)
    try:
        return int(_decode(last)["end"])
    except (msgspec.DecodeError, TypeError, KeyError, ValueError) as error:
        raise InvalidInput(
            f"{path} is not a complete export of `hark export --live`: its last line does not say how many instances "
            "it has. Export it again."
        ) from error


@contextmanager
def read(path: Path) -> Iterator[LiveExport]:
    """Open an export.

    Raises:
        InvalidInput: It cannot be read, or is not a complete export of this version of Hark.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {reason(error)}.") from error
    with file:
        yield LiveExport(path, file)
