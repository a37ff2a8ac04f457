"""Classifiers: kernel nearest neighbour, logistic regression and its relatives, Gaussian processes."""
