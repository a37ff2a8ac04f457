"""Which earlier submaps a new one is registered with.

candidate_selection   those that it may share ground with, by odometry and closures
database              the submaps seen so far: query, register with the best (database_file: on disk)
ranking               the most similar ones, in two steps:
screening             of thousands, those that are worth a search
kept_search           a coarse search; what it needs of each submap is kept
coarse_search         all yaws and shifts against many maps at once
candidate_refinement  the best poses of each, fitted coarsely
"""
