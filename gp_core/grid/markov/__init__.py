"""The solver for rough kernels: nested dissection of the lattice of coefficients.

A smooth kernel has few modes, and tiles of them are the fastest way (gp_core.grid.tiles). A rough one has as many modes
as there are coefficients, but two neighbouring lines of them nearly separate what lies on their two sides: the lattice
is cut in two again and again, and eliminated from the smallest parts to the whole.
"""
