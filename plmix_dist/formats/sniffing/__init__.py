"""Sniffing: the delimiter, the header and the layout of a text table, from its first lines."""

from plmix_dist.formats.sniffing.layout import LABEL_ROLES, Layout, header_reader, sniff

__all__ = ["LABEL_ROLES", "Layout", "header_reader", "sniff"]
