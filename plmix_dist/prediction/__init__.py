"""What a mixture predicts: functions of log-worths, of rows, and over whole stores; estimators offer them as methods.

- choices: choices from offered sets, pairs, expected ranks, the first k places; items by name; tables for people
- most_probable: the most probable ranking of a mixture, by a best-first search
- given_rows: the same predictions given what a row has ranked so far
- posteriors: memberships, likelihoods and predictions as functions of each row
- calibration: how often what was predicted came true
- memberships: memberships of a whole store, written to Zarr or Parquet
"""
