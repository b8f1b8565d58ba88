"""Mutations for the fuzz targets: of bytes, of text, of the files of a folder, of the fields of a block."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from plmix_dist.rankings import RankingBlock

# What tools write, what people mistype, and what parsers trip over.
WORDS = (
    *(b"99999999999999999999", b"1e999", b"1.7e308", b"-1", b"nan", b"1_000", b"0x10", b"=cmd()"),
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", "é".encode(), b" ", b"\t", b"\r\n", b"\n\n"),
    *(b'"', b"{", b"}", b"|", b",", b"#", b": "),
)
COUNTS = (0, 1, 2, 5, 7, 100, 255)
REALS = (0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e100, 1e101, 1.7e308, 1e-320, 5e-324)


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes with one to three changes: bits flipped, cut, runs removed, doubled or moved, words inserted."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice((flipped, cut, removed, doubled, with_word, overwritten))(rng, data)
    return data


def mutated_text(rng: random.Random, data: bytes) -> bytes:
    """Text with changed lines or fields, or changed like any other bytes."""
    if rng.random() < 0.4:
        return mutated_bytes(rng, data)
    lines = data.split(b"\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(6)
    if change == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif change == 1:
        lines.insert(other, lines[one])
    elif change == 2:
        del lines[one]
    elif change == 3:
        lines[one] = with_word(rng, lines[one])
    elif change == 4:
        fields = lines[one].split(b",")
        fields[rng.randrange(len(fields))] = rng.choice(WORDS)
        lines[one] = b",".join(fields)
    else:
        lines[one] = b",".join(reversed(lines[one].split(b",")))
    return b"\n".join(lines)


def flipped(rng: random.Random, data: bytes) -> bytes:
    if not data:
        return data
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def removed(rng: random.Random, data: bytes) -> bytes:
    place = rng.randint(0, len(data))
    return data[:place] + data[place + rng.randint(1, 20) :]


def doubled(rng: random.Random, data: bytes) -> bytes:
    place = rng.randint(0, len(data))
    return data[:place] + data[max(0, place - rng.randint(1, 40)) :]


def with_word(rng: random.Random, data: bytes) -> bytes:
    place = rng.randint(0, len(data))
    return data[:place] + rng.choice(WORDS) + data[place:]


def overwritten(rng: random.Random, data: bytes) -> bytes:
    place, size = rng.randint(0, len(data)), rng.randint(1, 8)
    return data[:place] + rng.randbytes(size) + data[place + size :]


def mutate_folder(rng: random.Random, folder: Path) -> str:
    """Change, cut, delete or replace one file of a folder, whatever it is; says what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = rng.choice(files)
    change = rng.choice(
        ("bytes", "bytes", "bytes", "delete", "folder", "pipe", "link", "empty", "other", "swap", "move", "extra")
    )
    other = rng.choice(files)
    if change == "bytes":
        path.write_bytes(mutated_bytes(rng, path.read_bytes()))
    elif change == "empty":
        path.write_bytes(b"")
    elif change == "other":
        path.write_bytes(other.read_bytes())
    elif change == "swap":
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)
    elif change == "extra":
        path.with_name(path.name + ".extra").write_bytes(rng.randbytes(20))
    elif change == "move":
        path.rename(path.with_name(path.name + ".moved"))
    else:
        path.unlink()
        if change == "folder":
            path.mkdir()
        elif change == "pipe":
            os.mkfifo(path)
        elif change == "link":
            path.symlink_to("/etc/passwd" if rng.random() < 0.5 else path)
    if rng.random() < 0.05:
        shutil.rmtree(path.parent, ignore_errors=True)
        change = "rmtree"
    return f"{change} {path.relative_to(folder)}"


def mutated_block(rng: random.Random, block: RankingBlock) -> RankingBlock:
    """A block with one or two fields of other types, lengths or ranges."""
    changes: dict[str, Any] = {}
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(("items", "n_listed", "n_ordered", "below", "n_items", "tied", "weights", "ids", "groups"))
        with np.errstate(all="ignore"):
            changes[name] = _mutated_column(rng, name, getattr(block, name), block)
    return block.replace(**changes)


def _mutated_column(rng: random.Random, name: str, column: Any, block: RankingBlock) -> Any:
    if name == "n_items":
        return rng.choice((0, 1, 2, -1, 10**12, 2.5, "5", None, True, block.n_items, np.int64(block.n_items), 300))
    rows = len(block.items) if name in ("items", "tied") else block.n_rankings
    values = np.zeros(rows, np.float64) if column is None or rng.random() < 0.2 else column
    change = rng.randrange(8)
    if change == 0:
        return values.astype(rng.choice((np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int64, np.float64,
                                         np.bool_, object, "S3", ">u2", ">u4", np.complex128)))  # fmt: skip
    if change == 1:
        return values[: rng.randint(0, len(values))]
    if change == 2:
        return np.concatenate([values, values[: rng.randint(0, len(values))]])
    if change == 3:
        return rng.choice((None, values.tolist(), values.reshape(1, -1), "text", 7, np.zeros(()), values[::-1]))
    copy = values.copy()
    if len(copy) and copy.dtype.kind in "uif":
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(copy))
            copy[place] = rng.choice(COUNTS if copy.dtype.kind == "u" else REALS)
    elif len(copy) and copy.dtype == np.bool_:
        copy[rng.randrange(len(copy))] ^= True
    if name in ("items", "n_listed", "n_ordered") and rng.random() < 0.3:
        copy = copy.astype(np.uint32)
        copy[rng.randrange(len(copy))] = rng.choice((2**31, 2**32 - 1, 65_535, 70_000))
    return copy
