"""Source files: found by path, glob or URL, hashed, and cut into slices that workers read independently."""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from plmix_dist.errors import IngestError, PlmixError, SettingsError
from plmix_dist.rankings import Unranked
from plmix_dist.settings import shown
from plmix_dist.settings.checks import near_path
from plmix_dist.store.access import RemoteFiles

Container = Literal["text", "parquet", "memory", "jsonl", "json", "excel"]
# Bytes of text per slice, and so per partition: about a hundred thousand rankings, so that a large file has enough
# slices for several workers. Slices are read as streams.
_SLICE_BYTES = 1 << 23
_READ_BYTES = 1 << 20
LONGEST_LINE = 10_000_000
# What is removed around names and fields. Other white space, such as U+0085 from a bad encoding, may be part of a name.
BLANKS = " \t"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class SourceFile:
    """One file or URL, and its size in bytes; or a folder whose files are one source together."""

    url: str
    size: int
    members: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The files that it is made of."""
        return self.members or (self.url,)

    @property
    def name(self) -> str:
        """The file name without its folder and without `.gz`."""
        return self.url.rsplit("/", 1)[-1].removesuffix(self.compression)

    @property
    def compression(self) -> str:
        """The suffix of a compressed file, or an empty string."""
        return next((suffix for suffix in _COMPRESSED if self.url.endswith(suffix)), "")


class Condition(NamedTuple):
    """A condition on the cell of a column: whether it is equal to a value or not, capitals aside."""

    place: int
    equal: bool
    value: str

    def holds(self, cell: str) -> bool:
        """Whether a cell meets the condition."""
        return (cell.strip().casefold() == self.value) == self.equal


@dataclass(frozen=True)
class Header:
    """What is known of a file before its rows are read.

    The rows begin at byte `body_offset`, line `body_line`. A table has `columns`, a `delimiter` between its fields and
    the column of each role; `divider` is the sign between the items of an ordering (None: blanks). `guesses` say in
    sentences for the user how the table was understood where the file does not say it.
    """

    body_offset: int = 0
    body_line: int = 1
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    roles: dict[str, int] = field(default_factory=dict)
    has_names: bool = True  # whether the first line named the columns
    divider: str | None = None
    ignored: tuple[int, ...] = ()  # columns that hold nothing about rankings, such as line numbers
    guesses: tuple[str, ...] = ()
    item_names: tuple[str, ...] | None = None
    item_labels: tuple[str, ...] | None = None  # the items in the rows, if these differ from their names
    unranked: Unranked | None = None
    complete: bool = False  # whether every row must list all items
    n_rows: int | None = None  # counts that the rows must match
    total_weight: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    container: Container = "text"
    first_rank: int = 1  # of a table of ranks, the number of the best
    left_out: tuple[str, ...] = ()  # columns that the format does not use
    where: tuple[Condition, ...] = ()  # the rows that are read

    @property
    def unit(self) -> str:
        """What messages count: lines of text, or rows of a table with types."""
        return "line" if self.container in ("text", "jsonl") else "row"


@dataclass(frozen=True)
class Slice:
    """A run of lines (bytes `start` to `stop`), or of row groups, that one worker reads."""

    file: SourceFile
    header: Header
    start: int = 0
    stop: int | None = None
    first_line: int = 1


def find_sources(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths and URLs with globs expanded, in the order given; the matches of a glob are sorted."""
    found: list[str] = []
    for source in sources:
        if not isinstance(source, str | os.PathLike):
            raise SettingsError(
                "a source must be a path, a URL, several of these, or an integer array of shape (rankings, places), "
                f"but is {shown(source)}; lists of rankings go straight into PlackettLuceMixture.fit"
            )
        text = os.fspath(source)
        try:
            matches = _expand(text)
        except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
            raise IngestError(f"{text} cannot be found: {error}; check the path or URL") from error
        if not matches:
            raise IngestError(f"no file matches {text!r}{near_path(text) or '; check the path, or quote the glob'}")
        found.extend(matches)
    return found


def find(url: str) -> SourceFile:
    """An existing file with its size."""
    try:
        if "://" not in url:
            return SourceFile(url, Path(url).stat().st_size)
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(url)
        return SourceFile(url, int(RemoteFiles(filesystem, "").call("info", path)["size"]))
    except (OSError, ImportError, ValueError, TypeError) as error:
        raise IngestError(f"{url} cannot be read: {error}") from error


def file_digest(url: str) -> str:
    """SHA-256 of a file, without unpacking it."""
    digest = hashlib.sha256()
    with reading(url, decompress=False) as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def source_digest(file: SourceFile) -> str:
    """SHA-256 of a file, or of the digests of all files that are one source."""
    digests = [file_digest(part) for part in file.parts]
    return digests[0] if not file.members else hashlib.sha256("".join(digests).encode()).hexdigest()


def open_bytes(url: str, *, decompress: bool = True) -> IO[bytes]:
    """A file or URL opened for reading; unpacked if it has the suffix of a compressed file."""
    if "://" not in url:
        # A pipe would wait for a writer forever.
        if Path(url).exists() and not Path(url).is_file():
            raise IngestError(f"{url} is not a plain file; copy its contents to a file first")
        if not (decompress and url.endswith(_COMPRESSED)):
            return open(url, "rb")
    import fsspec

    try:
        found = fsspec.open(url, "rb", compression="infer" if decompress else None)
        packed = RemoteFiles(found.fs, "").open(found.path) if "://" in url else found.fs.open(found.path)
        opened: IO[bytes] = fsspec.core.compr[found.compression](packed, mode="r")
    except (ValueError, ImportError) as error:  # what unpacks or reaches it is not installed
        raise IngestError(f"{url} cannot be opened: {error}") from error
    return opened


@contextlib.contextmanager
def reading(url: str, *, decompress: bool = True) -> Iterator[IO[bytes]]:
    """A file or URL opened for reading, as `open_bytes` does. Errors of reading and unpacking name the file."""
    try:
        with open_bytes(url, decompress=decompress) as file:
            yield file
    # What unpacks .zst is imported only if such a file is read.
    except (
        EOFError,
        OSError,
        zlib.error,
        lzma.LZMAError,
        getattr(sys.modules.get("zstandard"), "ZstdError", EOFError),
    ) as error:
        if isinstance(error, PlmixError):
            raise
        if isinstance(error, TimeoutError):
            raise IngestError(f"{url} cannot be read: {error}; check the network, and run this again") from error
        if isinstance(error, OSError) and error.errno:
            raise IngestError(f"{url} cannot be read: {error.strerror}; check the path and its permissions") from error
        raise IngestError(f"{url} cannot be read to its end: {error}; it may be cut short or damaged") from error


@contextlib.contextmanager
def naming(url: str) -> Iterator[None]:
    """Put the name of a source before errors that do not begin with it, or with that of a file beside it."""
    try:
        yield
    except IngestError as error:
        if str(error).startswith(url[: url.rfind("/") + 1] or url):
            raise
        raise IngestError(f"{url}: {error}") from None


def decode(raw: bytes, url: str, line: int) -> str:
    """The text of a line; an error that names file and line if it is not UTF-8."""
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise IngestError(
            f"{url}, line {line}: not UTF-8 text (byte {error.object[error.start]:#04x}); save the file as UTF-8 "
            "(Excel: CSV UTF-8), or convert it, such as with iconv -f LATIN1 -t UTF-8"
        ) from None


def read_line(stream: IO[bytes], url: str) -> bytes:
    """The next line of a stream. Few compressed bytes may hold a line of any length, so it has a bound."""
    raw = stream.readline(LONGEST_LINE + 1)
    if len(raw) > LONGEST_LINE:
        raise IngestError(f"{url}: a line is longer than {LONGEST_LINE:,} bytes; this seems not to be a table of lines")
    return raw


def whole_file(file: SourceFile, header: Header, *_: Any) -> list[Slice]:
    """One slice: all rows of a file."""
    return [Slice(file, header, header.body_offset, None, header.body_line)]


def text_slices(
    file: SourceFile, header: Header, whole: bool = False, key: Callable[[str], object] | None = None
) -> list[Slice]:
    """Cut a text file at line ends into slices of about _SLICE_BYTES, never between lines of one `key`."""
    if whole or file.compression or file.size - header.body_offset <= _SLICE_BYTES:
        return whole_file(file, header)
    slices = []
    start, first_line = header.body_offset, header.body_line
    with reading(file.url) as stream:
        while start < file.size:
            stream.seek(start)
            stop, n_lines = _slice_end(stream, file.url, start, key)
            slices.append(Slice(file, header, start, stop, first_line))
            start, first_line = stop, first_line + n_lines
    return slices


def _slice_end(stream: IO[bytes], url: str, start: int, key: Callable[[str], object] | None) -> tuple[int, int]:
    """The end of a slice from `start`, and its number of lines."""
    position, n_lines = start, 0
    while position - start < _SLICE_BYTES:
        chunk = stream.read(min(_READ_BYTES, _SLICE_BYTES - (position - start)))
        if not chunk:
            return position, n_lines
        position += len(chunk)
        n_lines += chunk.count(b"\n")
    last = read_line(stream, url)
    position += len(last)
    n_lines += last.endswith(b"\n")
    previous: object = None
    while key is not None and (raw := read_line(stream, url)):
        current = key(raw.decode(errors="replace")) if raw.strip() else previous
        if previous is not None and current != previous:
            break
        previous = current
        position += len(raw)
        n_lines += 1
    return position, n_lines


def _expand(text: str) -> list[str]:
    if "://" in text:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(text)
        files = RemoteFiles(filesystem, "")
        if any(mark in text for mark in "*?["):
            return [filesystem.unstrip_protocol(match) for match in sorted(files.call("glob", path))]
        try:
            files.call("info", path)
        except FileNotFoundError:
            return []
        return [text]
    expanded = str(Path(text).expanduser())
    if Path(expanded).is_file():
        return [expanded]
    if Path(expanded).is_dir():  # a data set of many files; "_SUCCESS", ".crc" and the like belong to tools
        found = (path for path in Path(expanded).rglob("*") if path.is_file() and path.name[0] not in "._")
        return sorted(map(str, found))
    return sorted(match for match in glob.glob(expanded, recursive=True) if Path(match).is_file())  # noqa: PTH207


# Covariates of persons from a file: a NumPy array, or comma-separated numbers with or without a header.


def covariates_named(text: str | list[str] | None) -> NDArray[np.float64] | list[str] | None:
    """The covariates in a file, or names of columns that a store has, with commas between them."""
    if not isinstance(text, str):
        return text
    is_file = Path(text).is_file() or "/" in text or text.endswith((".npy", ".csv", ".txt"))
    return _read_covariates(text) if is_file else [name.strip() for name in text.split(",")]


def _read_covariates(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """(n_rankings, n_columns): one line per ranking, from a `.npy` file, or text with commas between the numbers.

    A first line without a number is a header.
    """
    file = Path(path)
    try:
        if file.suffix == ".npy":
            return np.asarray(np.load(file, allow_pickle=False), np.float64)
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, ValueError, TypeError, EOFError, csv.Error) as error:
        raise SettingsError(f"covariates cannot be read from {file}: {error}") from None
    header = int(bool(rows) and not any(is_float(cell) for cell in rows[0]))
    return _table(file, rows[header:], header)


def _table(file: Path, rows: Sequence[Sequence[str]], header: int) -> NDArray[np.float64]:
    """Rows of text as numbers; an error that names the line."""
    for number, row in enumerate(rows, start=header + 1):
        if len(row) != len(rows[0]):
            raise SettingsError(f"{file}: row {number} has {len(row)} values, but the first one has {len(rows[0])}")
        if bad := [cell for cell in row if not is_float(cell)]:
            raise SettingsError(
                f"{file}: row {number} has {bad[0]!r} where a number is expected; write categories as columns of 0 and "
                "1, and leave one category out"
            )
    return np.array([[float(cell) for cell in row] for row in rows], np.float64)


def is_float(cell: str) -> bool:
    """Whether Python reads a cell as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
