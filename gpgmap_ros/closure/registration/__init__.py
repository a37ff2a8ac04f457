"""The relative pose of two maps, its covariance and its probability.

registration_map  a map prepared: heights, slopes, how far each cell can be trusted (map_check: of one from a file)
prior             where to look, if something is known
search            candidate poses from all yaws and shifts, by FFT (correlation)
refinement        Gauss-Newton on heights (cell_comparison: both maps at one cell, for all loops)
overlay           both maps at a pose
verification      evidence from slopes and variances that took no part in the fit
self_similarity   how alike different places of this ground are
probability       from evidence, self-similarity and rivals
covariance        sandwich estimate with the residuals' own autocovariance
pipeline          these in order: `register`
se3               on request: refined by GICP on the maps' points
"""
