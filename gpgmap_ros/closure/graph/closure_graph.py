"""Submaps, the closures between them, which closures are used, and the poses that follow.

Which closures are used is decided anew whenever one comes or goes: outlier rejection selects those that odometry allows
and that agree in pairs, the pose graph is solved with these, and what the robust solution pulls apart is taken out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from gp_core.arrays import Array
from gpgmap_ros.closure.acceptance import REJECTED_BY_REQUEST, graph_objection
from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.graph.drift import MIN_PATH, Drift, estimate_tilt_std
from gpgmap_ros.closure.graph.g2o import format_g2o
from gpgmap_ros.closure.graph.graph_paths import Edge
from gpgmap_ros.closure.graph.joint_evidence import sequence_of
from gpgmap_ros.closure.graph.keyframes import SubmapNode, consecutive_nodes
from gpgmap_ros.closure.graph.odometry_chain import OdometryChain
from gpgmap_ros.closure.graph.outlier_rejection import OutlierRejection
from gpgmap_ros.closure.graph.pairwise_consistency import OdometryPoses
from gpgmap_ros.closure.graph.pose_graph import PoseGraph
from gpgmap_ros.closure.graph.problem import NotDetermined, SolverMissing
from gpgmap_ros.closure.rows import Rows
from gpgmap_ros.closure.types import LoopClosure, Pair
from gpgmap_ros.geometry import inverse

WARM_START = 200
"""Submaps from which on a new closure lets the solution go on from the one before, instead of from the odometry: a few
steps, however long the drive is. Poses are then the same up to the tolerance of the solver, below a millimetre."""


class ClosureGraph:
    """The pose graph of a LoopCloser with the decisions about its closures.

    nodes: the submaps by id, in order; drives: ids of the submaps of each drive
    closures: every comparison by its pair, as the registration left it; rejected: pairs, in order
    by_submap: pairs by the later submap
    paths: metres from the start of the drive to each submap; more than those driven where the odometry stated that it
        errs by more than its drift (`Drift.equivalent_path`)
    solver_error: why poses are not corrected although there are closures; empty where they are
    revision: grows when poses of earlier submaps, or decisions about earlier closures, may have changed
    """

    def __init__(self, config: ClosureConfig) -> None:
        self.nodes: dict[int, SubmapNode] = {}
        self.drives: dict[int, list[int]] = {}
        self.closures: dict[Pair, LoopClosure] = {}
        self.by_submap: dict[int, list[Pair]] = {}
        self.paths: dict[int, float] = {}
        self.rejected: dict[Pair, None] = {}
        self.solver_error = ""
        self.revision = 0
        self.drift = Drift.from_config(config)
        self._config = config
        self._row_of: dict[int, int] = {}
        self._anchors: dict[int, int] = {}
        self.rebuild()

    # ------------------------------------------------ what comes in

    def insert_node(self, node: SubmapNode) -> None:
        """Take in a submap without computing anything: `rebuild` comes after the last one."""
        before = self.last_node(node.drive)
        self.nodes[node.id] = node
        self.drives.setdefault(node.drive, []).append(node.id)
        self.paths[node.id] = 0.0
        if before is not None:
            path = self.drift.equivalent_path(node.driven - before.driven, before.drift_variance)
            self.paths[node.id] = self.paths[before.id] + path

    def insert_closures(self, closures: Iterable[LoopClosure]) -> None:
        """Take in comparisons without computing anything: `rebuild` comes after the last one."""
        for closure in closures:
            self.closures[closure.pair] = closure
            self.by_submap.setdefault(closure.b, []).append(closure.pair)

    def add_node(self, node: SubmapNode) -> SubmapNode | None:
        """A new submap, at the odometry from the corrected pose of the one before it; returns that one."""
        before = self.last_node(node.drive)
        correction = np.eye(4) if before is None else self.correction(before.id)
        self.insert_node(node)
        self._place(node, correction @ node.T_odom_submap)
        self._join(node, before)
        self._anchors[node.id] = node.id if before is None else self._anchors[before.id]
        odometry = self._outliers.odometry
        odometry.poses[node.id] = node.T_odom_submap
        odometry.distances[node.id] = self.paths[node.id]
        odometry.drives[node.id] = node.drive
        odometry.sizes[node.id] = node.size
        return before

    def add_closures(self, closures: list[LoopClosure]) -> bool:
        """Comparisons of the newest submap; whether the graph was solved anew."""
        self.insert_closures(closures)
        votes = [self._outliers.add(closure) for closure in closures]
        votes += [self._outliers.admit(id) for id in dict.fromkeys(closure.b for closure in closures)]
        if any(votes):
            self._solve(self._outliers.select(), anew=len(self.nodes) < WARM_START)
        return any(votes)

    def reject(self, pair: Pair) -> bool:
        """Take a closure out for good; whether the graph was solved anew."""
        self.rejected[pair] = None
        self.revision += 1
        if self._outliers.has_supported:  # perhaps by this one
            removed = self._outliers.takes_part(pair)
            self.rebuild()
            return removed
        removed = self._outliers.remove(pair)
        if removed:
            self._solve(self._outliers.select())
        return removed

    def rebuild(self) -> None:
        """Decide about all closures together, and solve."""
        odometry = OdometryPoses(
            {id: node.T_odom_submap for id, node in self.nodes.items()},
            dict(self.paths),
            {id: node.drive for id, node in self.nodes.items()},
            {id: node.size for id, node in self.nodes.items()},
        )
        self._poses = Rows(np.zeros((0, 4, 4)))
        self._graph = PoseGraph(self._config.solver)
        for before, node in consecutive_nodes(self.nodes.values()):
            self._place(node, node.T_odom_submap)
            self._join(node, before)
        self._outliers = OutlierRejection(odometry, self.drift, self._config.accept_probability)
        left = [closure for pair, closure in self.closures.items() if pair not in self.rejected]
        for group in sequence_of(left):  # as they came: what waited for what is then the same
            for closure in group:
                self._outliers.add(closure)
            self._outliers.admit(group[0].b)
        self._solve(self._outliers.select())

    # ------------------------------------------------ what is known

    def last_node(self, drive: int) -> SubmapNode | None:
        """The newest submap of a drive."""
        ids = self.drives.get(drive)
        return self.nodes[ids[-1]] if ids else None

    @property
    def poses(self) -> Array:
        """(N, 4, 4) T_map_submap in the order of the nodes; not a copy."""
        return self._poses.values

    def pose(self, id: int) -> Array:
        """(4, 4) T_map_submap; not a copy."""
        return np.asarray(self._poses.values[self._row_of[id]])

    def poses_of(self, nodes: list[SubmapNode]) -> Array:
        """(K, 4, 4) T_map_submap of these nodes."""
        return np.asarray(self._poses.values[[self._row_of[node.id] for node in nodes]])

    def anchor(self, id: int) -> int:
        """The submap that holds this one in place: two with the same anchor are in one frame."""
        return self._anchors[id]

    def correction(self, id: int) -> Array:
        """(4, 4) T_map_odom at one submap: takes its pose by odometry to the corrected one."""
        return np.asarray(self.pose(id) @ inverse(self.nodes[id].T_odom_submap))

    def is_accepted(self, pair: Pair) -> bool:
        """Whether a closure has passed every gate."""
        passed = pair not in self.rejected and pair not in self._outliers.objections
        return passed and self._outliers.takes_part(pair)

    def is_credible(self, pair: Pair) -> bool:
        """Whether its registration, or its neighbours, speak for a closure, whatever others say."""
        return self.closures[pair].registered or self._outliers.takes_part(pair)

    def decision(self, pair: Pair) -> LoopClosure:
        """A comparison with what is decided about it now."""
        closure = self.closures[pair]
        reason = closure.reason
        if pair in self.rejected:
            reason = REJECTED_BY_REQUEST
        elif self.is_credible(pair):
            reason = self._outliers.objections.get(pair, self._outliers.reason(pair) or reason)
        return replace(closure, accepted=self.is_accepted(pair), reason=reason)

    def covariances(self) -> dict[int, Array]:
        """(6, 6) of each pose; SolverMissing where there is no solver."""
        return self._accepted_graph().covariances(dict(zip(self.nodes, self.poses, strict=True)))

    def g2o(self) -> str:
        """The graph as it is solved now, in g2o's format."""
        graph = self._accepted_graph()
        edges = [*graph.odometry, *graph.closures.values()]
        poses = dict(zip(self.nodes, self.poses, strict=True))
        return format_g2o(poses, edges, sorted(set(self._anchors.values())))

    def path_between(self, before: SubmapNode | None, node: SubmapNode) -> float:
        """Metres from the submap before it in its drive, as in `paths`; 0 where there is none."""
        return 0.0 if before is None else self.paths[node.id] - self.paths[before.id]

    def path_edges(self) -> Iterator[Edge]:
        """Metres between submaps, along odometry and accepted closures.

        A closure counts as the path after which odometry would be as uncertain.
        """
        for before, node in consecutive_nodes(self.nodes.values()):
            if before is not None:
                yield before.id, node.id, self.path_between(before, node)
        for pair, closure in self.closures.items():
            if self.is_accepted(pair):
                variance = float(np.linalg.eigvalsh(closure.covariance[:3, :3])[-1])
                yield (*pair, variance / self.drift.position_std**2)

    # ------------------------------------------------ solving

    def _place(self, node: SubmapNode, T_map_submap: Array) -> None:
        self._row_of[node.id] = len(self._poses)
        self._poses.append(T_map_submap)

    def _join(self, node: SubmapNode, before: SubmapNode | None) -> None:
        """Put a submap into the pose graph."""
        if before is None:
            self._graph.add_drive(node.id, node.T_odom_submap)
        else:
            T = inverse(before.T_odom_submap) @ node.T_odom_submap
            chain = OdometryChain.of([before, node])
            covariance = chain.covariance(
                before.T_odom_submap, node.T_odom_submap, self.drift, self._variance_factor(before, node)
            )
            self._graph.add_odometry(before.id, node.id, T, covariance)

    def _variance_factor(self, before: SubmapNode, node: SubmapNode) -> float:
        """How much more the odometry varies than by its drift, from the middle of one submap to that of the next."""
        lengths = [max(item.length, MIN_PATH) for item in (before, node)]
        stated = [before.drift_variance, node.drift_variance]
        paths = map(self.drift.equivalent_path, lengths, stated)
        return sum(paths) / sum(lengths)

    def _solve(self, pairs: list[Pair], anew: bool = True) -> None:
        """Corrected poses; closures that the robust solution lets go are taken out, and it is solved without them.

        anew: start from the odometry, and not from the poses as they are
        """
        self.solver_error = ""
        self.revision += 1
        if not self.nodes:
            return
        graph = self._graph
        found = np.array([self.closures[pair].T_a_b for pair in pairs])
        graph.tilt_std = estimate_tilt_std(self.drift.tilt_std, found)
        numbers = dict(zip(graph.replace_closures(self.closures[pair] for pair in pairs), pairs, strict=True))
        anchors = dict(graph.anchors)
        start = None if anew or anchors != self._anchors else dict(zip(self.nodes, self.poses, strict=True))
        try:
            solution = graph.solve(start) if pairs else None
            while solution is not None and solution.outliers:
                for number in solution.outliers:
                    objection = graph_objection(solution.closure_errors[number])
                    self._outliers.objections[numbers[number]] = objection
                    graph.reject(number)
                solution = graph.solve(start) if graph.closures else None
        except (SolverMissing, NotDetermined) as error:
            self.solver_error = str(error).splitlines()[0]
            solution = None
        poses = solution.poses if solution is not None else graph.start
        self._poses = Rows(np.array([poses[id] for id in self.nodes]).reshape(-1, 4, 4))
        self._anchors = dict(graph.anchors)

    def _accepted_graph(self) -> PoseGraph:
        """The pose graph with the closures that are accepted now."""
        self._graph.replace_closures(
            closure for pair, closure in self.closures.items() if self.is_accepted(pair)
        )
        return self._graph
