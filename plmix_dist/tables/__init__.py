"""Every table of rankings or ratings, from text, Parquet, JSON, Excel, frames and lists: one road to a block.

A source (text.py, parquet.py, json_records.py, excel.py; sources.py finds files and cuts them) gives the first rows as
a Table, and all rows as batches of columns (both in format.py). registry.py opens sources, also in memory, and asks
each format whether the table is its own; sniff.py and places.py have what they look at. The format (by_row.py: wide,
ranks, orderings; slates.py: choices, results; long, lists, ratings, battles, best_worst; preflib is not a table) turns
batches into RawRows (rows.py), and encode.py these into blocks. A row is read, or reported with its reason. cells.py,
frames.py and python_rows.py read arrays, lists and frames of item numbers or names; write.py is what all exports
share; notation.py is `tea > {mate milk}`.
"""
