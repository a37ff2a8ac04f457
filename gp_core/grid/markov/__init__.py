"""The solver for rough kernels: strips of rows that are eliminated one after the other, as a Markov chain.

A smooth kernel has few modes, and tiles of them are the fastest way (gp_core.grid.tiles). A rough one has as many modes
as there are coefficients, but its rows are nearly independent of all but the last few: what is known of two or three
rows screens everything beyond them.
"""
