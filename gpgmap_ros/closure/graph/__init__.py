"""Pose graph of the submaps: which closures are used, and the poses that follow.

keyframes             the nodes: what is remembered of a submap
drift                 covariance of odometry by the distance driven
pairwise_consistency  which closures agree with each other
outlier_rejection     which closures are used
pose_graph            odometry and closures in, corrected poses out (g2o: as text for other programs)
closure_graph         nodes, closures and decisions, kept up to date: what a LoopCloser works on
graph_paths           shortest paths between submaps
trajectory_correction poses of the robot, corrected
lie                   SE(3) in batches: exponential, logarithm, adjoint, and the derivative of the logarithm
robust                kernels that bound what a wrong edge can do
problem               poses, edges and covariances as arrays; the interface of a solver
elimination           Cholesky factor of a block-sparse matrix, and the diagonal of its inverse
sparse_solver         Levenberg-Marquardt on numpy and scipy: the default
gtsam_solver          the same problem solved by GTSAM, where it is installed
solvers               chooses one of them by name
"""
