"""Chunks: runs of whole lines of a slice, about a megabyte each, with the number of their first line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from plmix_dist.formats.sources import decode, reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from plmix_dist.formats.sources import Slice

CHUNK_BYTES = 1 << 20
_LINE_FEED = ord("\n")


@dataclass(frozen=True)
class Chunk:
    r"""Whole lines of a file.

    Examples
    --------
    >>> chunk = Chunk("a.csv", first_line=2, data=b"tea,mate\n\nmate,tea")
    >>> chunk.n_lines, list(chunk.lines())
    (3, [(2, 'tea,mate'), (4, 'mate,tea')])
    """

    url: str
    first_line: int
    data: bytes

    @cached_property
    def line_ends(self) -> NDArray[np.int64]:
        """(n_lines,): the byte behind the last of each line, its line feed left out."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == _LINE_FEED)
        return ends if self.data.endswith(b"\n") else np.append(ends, len(self.data))

    @property
    def n_lines(self) -> int:
        """The number of lines, blank ones included."""
        return len(self.line_ends)

    def lines(self) -> Iterator[tuple[int, str]]:
        r"""Number and text of each line, without line ends and blank lines.

        Examples
        --------
        >>> list(Chunk("a.txt", 1, b"tea\r\n").lines())
        [(1, 'tea')]
        """
        for number, raw in enumerate(self.data.split(b"\n"), start=self.first_line):
            text = decode(raw, self.url, number).rstrip("\r\n")
            if text.strip():
                yield number, text


def chunks(part: Slice) -> Iterator[Chunk]:
    r"""The chunks of a slice.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.formats.sources import Header, Slice, find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("tea\n\ncoffee\n")
    >>> [chunk.n_lines for chunk in chunks(Slice(find(str(path)), Header(), start=0, stop=None))]
    [3]
    """
    with reading(part.file.url) as file:
        file.seek(part.start)
        position, number = part.start, part.first_line
        while part.stop is None or position < part.stop:
            data = file.read(CHUNK_BYTES if part.stop is None else min(CHUNK_BYTES, part.stop - position))
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline()
            chunk = Chunk(part.file.url, number, data)
            yield chunk
            position += len(data)
            number += chunk.n_lines


def lines(part: Slice) -> Iterator[tuple[int, str]]:
    r"""Number and text of each line of a slice, without line ends and blank lines.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from plmix_dist.formats.sources import Header, Slice, find
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("tea\n\ncoffee\n")
    >>> list(lines(Slice(find(str(path)), Header(), start=0, stop=None)))
    [(1, 'tea'), (3, 'coffee')]
    """
    for chunk in chunks(part):
        yield from chunk.lines()
