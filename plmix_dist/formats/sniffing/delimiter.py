"""The delimiter of a table: the sign that divides its first lines into the same number of fields."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from plmix_dist.errors import IngestError
from plmix_dist.formats.sniffing.sample import split_fields

if TYPE_CHECKING:
    from plmix_dist.formats.sniffing.sample import Sample

# In this order: a semicolon or a tab in every line is hardly ever part of the text.
DELIMITERS = ("\t", ";", ",")
_NAMES = {"\t": "a tab", ";": "a semicolon", ",": "a comma"}
_STEADY = 0.9
_COMMA_AND_BLANK = re.compile(r"[^,]+(?:, [^,]+)+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


def sniff_delimiter(sample: Sample, default: str) -> str:
    r"""The delimiter of a table; `default` if its lines have one field only.

    Examples
    --------
    >>> from plmix_dist.formats.sniffing.sample import Sample
    >>> sniff_delimiter(Sample("a.csv", ("first;second", "tea;mate"), 0, 1, 13, 2), ",")
    ';'
    >>> sniff_delimiter(Sample("a.csv", ("tea > mate", "mate > tea"), 0, 1, 13, 2), ",")
    ','
    """
    counts = {sign: [_n_fields(line, sign) for line in sample.lines] for sign in DELIMITERS}
    steady = [sign for sign in DELIMITERS if _share_of_commonest(counts[sign]) >= _STEADY]
    # A sign that the first line lacks is part of the text: the first line names the columns, or is like the others.
    steady = [sign for sign in steady if counts[sign][0] > 1] or steady
    if len(steady) == 1:
        return steady[0]
    if len(steady) > 1:
        return _among(steady, sample)
    half = len(sample.lines) / 2
    frequent = [sign for sign in DELIMITERS if sum(n > 1 for n in counts[sign]) > half]
    return default if default in frequent or not frequent else frequent[0]


def _among(steady: list[str], sample: Sample) -> str:
    """Of several signs that divide all lines alike, the one that leaves decimal commas, or names like `Lee, Ann`."""
    if steady[-1] == ",":
        sign = steady[0]
        commas = [
            field for line in sample.lines for field in split_fields(line, sign) if "," in field and line
        ]
        if len(steady) == 2 and all(_DECIMAL_COMMA.fullmatch(field) for field in commas):
            return sign
        blank_after_sign = all(re.search(rf"{sign}\S", line) is None for line in sample.lines)
        if len(steady) == 2 and not blank_after_sign and all(map(_COMMA_AND_BLANK.fullmatch, commas)):
            return sign
    names = " or ".join(_NAMES[sign] for sign in steady)
    options = " or ".join(f"--delimiter {_option(sign)}" for sign in steady)
    raise IngestError(f"{sample.url}: the fields may be divided by {names}; say {options}")


def _option(sign: str) -> str:
    return "$'\\t'" if sign == "\t" else f"'{sign}'"


def _n_fields(line: str, sign: str) -> int:
    try:
        return len(split_fields(line, sign))
    except IngestError:
        return 1


def _share_of_commonest(counts: list[int]) -> float:
    """The share of lines with the commonest number of fields; 0 if that is 1."""
    commonest, times = Counter(counts).most_common(1)[0]
    return times / len(counts) if commonest > 1 else 0.0
