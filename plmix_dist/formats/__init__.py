"""Formats of rankings: PrefLib, delimited text, Parquet, arrays. Each is one value in one file."""

from plmix_dist.formats.format import Format, ReadOptions
from plmix_dist.formats.registry import FORMATS, detect, format_named, format_of_target

__all__ = ["FORMATS", "Format", "ReadOptions", "detect", "format_named", "format_of_target"]
