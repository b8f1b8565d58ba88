"""Fitting: iterative algorithms on passes, each a state and pure functions of it.

algorithm    Algorithm, `run`, the one loop; Together: several algorithms that share passes; states as arrays and JSON
journal      what is finished and what runs, kept in checkpoints
fingerprint  what a fit was made from
point        Point: the parameters during a fit; components that lose all their rankings
fixed_point  a safeguarded, accelerated iteration over points; rules for its end
newton       when to take Newton's step; hessian: second derivatives from a sample
e_step       one iteration of EM as a request; em: EM as an Algorithm, many starts side by side
existence    whether an estimate exists
overview     how much data there is, and a sample of the rows
search       the search for the best optimum on a sample
fit          a whole fit, stage by stage; settings: what it is asked for
resampled    EM on ties whose orders are drawn; covariates: shares that depend on persons; gibbs: chains of draws
starts/      where a fit begins
"""
