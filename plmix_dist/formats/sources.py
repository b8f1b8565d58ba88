"""Source files: found by path, glob or URL, hashed, and cut into slices that workers read independently."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import lzma
import os
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from plmix_dist.errors import IngestError, PlmixError, SettingsError
from plmix_dist.store.near_names import near_path
from plmix_dist.values import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plmix_dist.rankings import Unranked

# Bytes of text per slice, and so per partition: about a hundred thousand rankings, so that a large file has enough
# slices for several workers. Slices are read as streams.
SLICE_BYTES = 1 << 23
_READ_BYTES = 1 << 20
# What is removed around names and fields. Other white space, such as U+0085 from a bad encoding, may be part of a name.
BLANKS = " \t"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class SourceFile:
    """One file or URL, and its size in bytes.

    Examples
    --------
    >>> SourceFile("data/votes.csv.gz", size=100).name
    'votes.csv'
    """

    url: str
    size: int

    @property
    def name(self) -> str:
        """The file name without its folder and without `.gz`."""
        name = self.url.rsplit("/", 1)[-1]
        return name.removesuffix(self.compression)

    @property
    def compression(self) -> str:
        """The suffix of a compressed file, or an empty string."""
        return next((suffix for suffix in _COMPRESSED if self.url.endswith(suffix)), "")


@dataclass(frozen=True)
class Header:
    """What a file says before its rows.

    Parameters
    ----------
    body_offset, body_line
        The byte and the line where the rows begin.
    columns, delimiter
        Names of the columns of a table, and the sign between its fields.
    roles
        The number of the column of each role.
    has_names
        Whether the first line named the columns.
    divider
        The sign between the items of orderings; None if blanks divide them.
    ignored
        Columns that hold nothing about rankings, such as line numbers.
    guesses
        How the table was understood where the file does not say it, in sentences for the user.
    item_names, item_labels
        Names of all items, and their labels in the rows if these differ.
    unranked
        What unlisted items mean.
    complete
        Whether every row must list all items.
    n_rows, total_weight
        Counts that the rows must match.
    metadata
        Whatever else the format needs.

    Examples
    --------
    >>> Header(body_offset=15, body_line=2, columns=("count", "ordering")).columns
    ('count', 'ordering')
    """

    body_offset: int = 0
    body_line: int = 1
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    roles: dict[str, int] = field(default_factory=dict)
    has_names: bool = True
    divider: str | None = None
    ignored: tuple[int, ...] = ()
    guesses: tuple[str, ...] = ()
    item_names: tuple[str, ...] | None = None
    item_labels: tuple[str, ...] | None = None
    unranked: Unranked | None = None
    complete: bool = False
    n_rows: int | None = None
    total_weight: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slice:
    """A run of lines (bytes `start` to `stop`), or of row groups, that one worker reads.

    Examples
    --------
    >>> Slice(SourceFile("a.csv", 100), Header(), start=15, stop=None, first_line=2).start
    15
    """

    file: SourceFile
    header: Header
    start: int
    stop: int | None
    first_line: int = 1


def find_sources(sources: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths and URLs with globs expanded, in the order given; the matches of a glob are sorted.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.csv", "a.csv"):
    ...     (folder / name).touch()
    >>> [Path(path).name for path in find_sources([folder / "*.csv"])]
    ['a.csv', 'b.csv']
    """
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
            raise IngestError(
                f"no file matches {text!r}{near_path(text) or '; check the path, or quote the glob'}"
            )
        found.extend(matches)
    return found


def find(url: str) -> SourceFile:
    """An existing file with its size.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text("tea")
    >>> find(str(path)).size
    3
    """
    try:
        if "://" not in url:
            return SourceFile(url, Path(url).stat().st_size)
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(url)
        return SourceFile(url, int(filesystem.size(path)))
    except (OSError, ImportError, ValueError, TypeError) as error:
        raise IngestError(f"{url} cannot be read: {error}") from error


def file_digest(url: str) -> str:
    """SHA-256 of a file, without unpacking it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> path.touch()
    >>> file_digest(str(path))[:8]
    'e3b0c442'
    """
    digest = hashlib.sha256()
    with reading(url, decompress=False) as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def open_bytes(url: str, *, decompress: bool = True) -> IO[bytes]:
    """A file or URL opened for reading; unpacked if its suffix says that it is compressed.

    Examples
    --------
    >>> import gzip, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv.gz"
    >>> _ = path.write_bytes(gzip.compress(b"tea"))
    >>> with open_bytes(str(path)) as file:
    ...     file.read()
    b'tea'
    """
    if "://" not in url:
        _refuse_others(Path(url))
        if not (decompress and url.endswith(_COMPRESSED)):
            return open(url, "rb")
    import fsspec

    try:
        opened: IO[bytes] = fsspec.open(url, "rb", compression="infer" if decompress else None).open()
    except (ValueError, ImportError) as error:  # what unpacks or reaches it is not installed
        raise IngestError(f"{url} cannot be opened: {error}") from error
    return opened


def _refuse_others(path: Path) -> None:
    """An error for a folder, a pipe or a device. A pipe would wait for a writer forever."""
    if path.exists() and not path.is_file():
        raise IngestError(f"{path} is not a plain file; copy its contents to a file first")


@contextlib.contextmanager
def reading(url: str, *, decompress: bool = True) -> Iterator[IO[bytes]]:
    """A file or URL opened for reading, as `open_bytes` does. Errors of reading and unpacking name the file.

    Examples
    --------
    >>> with reading("/nowhere/a.csv") as file:
    ...     file.read()
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: /nowhere/a.csv cannot be read: No such file or directory; ...
    """
    with reading_explained(url), open_bytes(url, decompress=decompress) as file:
        yield file


@contextlib.contextmanager
def reading_explained(url: str) -> Iterator[None]:
    """Turn errors of reading and unpacking into an error that names the file.

    Examples
    --------
    >>> with reading_explained("a.csv.gz"):
    ...     raise EOFError("compressed file ended early")
    Traceback (most recent call last):
    ...
    plmix_dist.errors.IngestError: a.csv.gz cannot be read to its end: compressed file ended early; ...
    """
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError, _zstd_error()) as error:
        if isinstance(error, PlmixError):
            raise
        if isinstance(error, OSError) and error.errno:
            raise IngestError(
                f"{url} cannot be read: {error.strerror}; check the path and its permissions"
            ) from error
        raise IngestError(
            f"{url} cannot be read to its end: {error}; it may be cut short or damaged"
        ) from error


def _zstd_error() -> type[Exception]:
    """The error of the library that unpacks .zst, which is imported only if such a file is read."""
    found: type[Exception] = getattr(sys.modules.get("zstandard"), "ZstdError", EOFError)
    return found


def decode(raw: bytes, url: str, line: int) -> str:
    """The text of a line; an error that names file and line if it is not UTF-8.

    Examples
    --------
    >>> decode("thé".encode(), "a.csv", 1)
    'thé'
    """
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise IngestError(
            f"{url}, line {line}: not UTF-8 text (byte {error.object[error.start]:#04x}); save the file as UTF-8 "
            "(Excel: CSV UTF-8), or convert it, such as with iconv -f LATIN1 -t UTF-8"
        ) from None


def text_slices(
    file: SourceFile,
    header: Header,
    key: Callable[[str], object] | None = None,
    slice_bytes: int | None = None,
) -> list[Slice]:
    r"""Cut a text file at line ends into slices of about SLICE_BYTES, never between lines of one `key`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("a 1\na 2\nb 1\n")
    >>> file = find(str(path))
    >>> [(part.start, part.stop) for part in text_slices(file, Header(), slice_bytes=2)]
    [(0, 4), (4, 8), (8, 12)]
    >>> [(part.start, part.stop) for part in text_slices(file, Header(), lambda line: line[0], slice_bytes=2)]
    [(0, 8), (8, 12)]
    """
    target = slice_bytes or SLICE_BYTES
    if file.compression or file.size - header.body_offset <= target:
        return [Slice(file, header, header.body_offset, None, header.body_line)]
    slices = []
    start, first_line = header.body_offset, header.body_line
    with reading(file.url) as stream:
        while start < file.size:
            stream.seek(start)
            stop, n_lines = _slice_end(stream, start, target, key)
            slices.append(Slice(file, header, start, stop, first_line))
            start, first_line = stop, first_line + n_lines
    return slices


def _slice_end(
    stream: IO[bytes], start: int, target: int, key: Callable[[str], object] | None
) -> tuple[int, int]:
    """The end of a slice from `start`, and its number of lines."""
    position, n_lines = start, 0
    while position - start < target:
        chunk = stream.read(min(_READ_BYTES, target - (position - start)))
        if not chunk:
            return position, n_lines
        position += len(chunk)
        n_lines += chunk.count(b"\n")
    last = stream.readline()
    position += len(last)
    n_lines += last.endswith(b"\n")
    if key is None:
        return position, n_lines
    previous: object = None
    while raw := stream.readline():
        if not raw.strip():
            position += len(raw)
            n_lines += 1
            continue
        current = key(raw.decode(errors="replace"))
        if previous is not None and current != previous:
            return position, n_lines
        previous = current
        position += len(raw)
        n_lines += 1
    return position, n_lines


def _expand(text: str) -> list[str]:
    if "://" in text:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(text)
        if any(mark in text for mark in "*?["):
            return [filesystem.unstrip_protocol(match) for match in sorted(filesystem.glob(path))]
        return [text] if filesystem.exists(path) else []
    expanded = str(Path(text).expanduser())
    if Path(expanded).is_file():
        return [expanded]
    if Path(expanded).is_dir():  # a data set of many files; "_SUCCESS", ".crc" and the like belong to tools
        found = (path for path in Path(expanded).rglob("*") if path.is_file() and path.name[0] not in "._")
        return sorted(map(str, found))
    return sorted(match for match in glob.glob(expanded, recursive=True) if Path(match).is_file())  # noqa: PTH207
