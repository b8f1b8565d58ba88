"""What people see: small HTML and SVG for the report and for notebooks, and the progress of a fit.

- marks: names that cannot steer a page, numbers and durations as text; SVG: bars, intervals, curves
- notebook: what a notebook shows of stores, models, histories and selections
- progress: a fit while it runs: records of its stages, lines for logs, drawn by rich in terminals and notebooks
"""
