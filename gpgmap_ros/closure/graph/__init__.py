"""The pose graph's numerics: what is minimised, and who minimises it.

lie            SE(3) in batches: exponential, logarithm, adjoint, and the derivative of the logarithm
robust         kernels that bound what a wrong edge can do
problem        poses, edges and covariances as arrays; residuals and the cost
elimination    Cholesky factor of a block-sparse matrix, and the diagonal of its inverse
sparse_solver  Levenberg-Marquardt on numpy and scipy: the default
gtsam_solver   the same problem solved by GTSAM, where it is installed
solvers        chooses one of them by name
"""
