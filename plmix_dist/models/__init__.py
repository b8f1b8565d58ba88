"""The estimators, after scikit-learn's conventions. Each has its settings and `fit`; the drivers are in fitting/.

- base: MixtureEstimator, what all share: likelihoods, criteria, tables, samples, saving and loading
- predictions: Predictions, what a fitted mixture predicts of persons, choices, places and rankings
- keywords: what many methods take, declared once
- plackett_luce: PlackettLuceMixture, fitted by EM
- spectral: SpectralPlackettLuce, the spectral start alone
- bayesian: BayesianPlackettLuceMixture, draws from the posterior
- diagnostics: R-hat and effective sample sizes of draws, draws for ArviZ
- predictive_density: log-likelihoods of persons over draws, WAIC and leave-one-out
- selection: MixtureSelection, the choice of the number of components
"""
