"""The nodes of the graph."""

from __future__ import annotations

import numpy as np
from fractal_world import World
from graph_nodes import node, shifted

from gpgmap_ros.closure.graph.keyframes import consecutive_nodes, make_node
from gpgmap_ros.mapping.submaps import Submap


def test_a_node_knows_how_far_its_drive_has_come(world: World) -> None:
    map_, _ = world.map_at((100.0, 100.0), 1, radius=20.0)
    first = make_node(Submap(4, 7, shifted(0.0), map_, 10, 20, 12.0, "distance"), None)
    assert (first.id, first.drive, first.driven, first.length) == (4, 7, 0.0, 12.0)
    assert 20.0 <= first.radius <= 20.0 * np.sqrt(2.0) + 2.0
    # at least what was driven in the one before, and at least the straight line
    near = make_node(Submap(5, 7, shifted(3.0), map_, 20, 30, 4.0, "distance"), first)
    far = make_node(Submap(5, 7, shifted(30.0), map_, 20, 30, 4.0, "distance"), first)
    assert (near.driven, far.driven) == (12.0, 30.0)


def test_each_node_follows_the_one_before_it_in_its_drive() -> None:
    order = [node(0, 1), node(1, 2), node(2, 1), node(3, 2), node(4, 3)]
    pairs = [(before.id if before else None, after.id) for before, after in consecutive_nodes(order)]
    assert pairs == [(None, 0), (None, 1), (0, 2), (1, 3), (None, 4)]
