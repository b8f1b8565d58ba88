"""How sure a fit is of its parameters: standard errors from one pass, and a bootstrap that shares its passes.

- information: the parameters as one vector, scores of persons, the observed information over all rows, its inverse
- standard_errors: from the information to covariances, and what the rankings cannot identify
- results: StandardErrors, with intervals, differences and pairwise probabilities; quasi_variances
- fit_check, check_results: whether a mixture reproduces first places and pairs
- bootstrap: the function and its result
- replicates: all replicates as one algorithm, and the passes it asks for
"""
