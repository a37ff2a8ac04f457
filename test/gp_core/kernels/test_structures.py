"""Kernels on trees and graphs against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gp_core import GaussianProcessRegressor
from gp_core.arrays import take_rows
from gp_core.kernels import EditDistance, FunctionKernel, SetIntersection
from gp_core.kernels.structures import Graph, SubtreeKernel, WeisfeilerLehman

WATER = Graph("OHH", [(0, 1), (0, 2)])
PEROXIDE = Graph("OOHH", [(0, 1), (0, 2), (1, 3)])


@pytest.mark.parametrize(
    ("decay", "expected"), [(1.0, 1.0 + 1.0 + 2.0 * 2.0), (0.5, 0.5 + 0.5 + 0.5 * 1.5**2)]
)
def test_a_tree_shares_all_its_subtrees_with_itself(decay: float, expected: float) -> None:
    tree = ("s", "a", "b")
    assert SubtreeKernel(decay, normalized=False)([tree])[0, 0] == pytest.approx(expected)


def test_children_in_another_order_are_another_subtree() -> None:
    K = SubtreeKernel(1.0, normalized=False)([("s", "a", "b"), ("s", "b", "a")])
    assert K[0, 1] == 2.0, "only the two leaves are shared"


def test_trees_without_a_common_label_share_nothing() -> None:
    assert SubtreeKernel()([("s", "a"), ("t", "b")])[0, 1] == 0.0


def test_normalised_a_tree_compares_to_itself_as_one() -> None:
    K = SubtreeKernel(0.3)([("s", "a", ("t", "b")), ("s", "a", "b"), ("t", "b")])
    np.testing.assert_allclose(np.diagonal(K), 1.0)
    assert (np.linalg.eigvalsh(K) > -1e-12).all()


@pytest.mark.parametrize(("tree", "reason"), [((), "empty tree"), ((("s",), "a"), "label")])
def test_what_is_not_a_tree_is_refused(tree: tuple[object, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SubtreeKernel()([tree])


def test_without_rounds_nodes_with_equal_labels_are_counted() -> None:
    K = WeisfeilerLehman(0, normalized=False)([WATER, PEROXIDE])
    np.testing.assert_array_equal(K, [[1 + 4, 2 + 4], [2 + 4, 4 + 4]])


def test_the_numbering_of_the_nodes_does_not_matter() -> None:
    renumbered = Graph("HOHO", [(1, 3), (0, 1), (2, 3)])
    np.testing.assert_allclose(WeisfeilerLehman(3)([PEROXIDE, renumbered]), 1.0)


def test_rounds_tell_graphs_apart_that_have_the_same_labels() -> None:
    chain, star = Graph("CCCC", [(0, 1), (1, 2), (2, 3)]), Graph("CCCC", [(0, 1), (0, 2), (0, 3)])
    assert WeisfeilerLehman(0)([chain, star])[0, 1] == pytest.approx(1.0)
    assert WeisfeilerLehman(1)([chain, star])[0, 1] < 0.9


def test_the_kind_of_a_bond_matters() -> None:
    single, double = Graph("CO", [(0, 1, "-")]), Graph("CO", [(0, 1, "=")])
    K = WeisfeilerLehman(1, normalized=False)([single, double])
    np.testing.assert_array_equal(K, [[4, 2], [2, 4]])


@pytest.mark.parametrize("edge", [(0, 3), (-1, 0), (0,), (0, 1, "-", 2)])
def test_edges_must_join_nodes_of_the_graph(edge: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="Graph: edge"):
        Graph("OHH", [edge])


def test_a_graph_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one node"):
        WeisfeilerLehman()([Graph("", [])])


def test_a_tree_kernel_combines_with_any_kernel_on_trees() -> None:
    trees = [("s", "a", "b"), ("s", "b", "a"), ("t", "a")]
    same_root = FunctionKernel(lambda x, z: float(x[0] == z[0]))
    expected = SubtreeKernel()(trees) * same_root(trees)
    np.testing.assert_allclose((SubtreeKernel() * same_root)(trees), expected)
    np.testing.assert_allclose((same_root * SubtreeKernel())(trees), expected)
    gp = GaussianProcessRegressor(1.0 * SubtreeKernel() + same_root).fit(trees, [0.0, 1.0, 2.0])
    assert gp.X_train_ == trees, "the data stay as they were given"


def test_every_kernel_of_a_combination_checks_the_data() -> None:
    combined = FunctionKernel(lambda x, z: 1.0) * EditDistance() * SetIntersection()
    with pytest.raises(ValueError, match="must be a set"):
        combined(["rock", "crop"])


def test_two_trees_are_compared_as_they_are_written() -> None:
    tree, other = ("s", "a", "b"), ("s", "b", "b")
    assert SubtreeKernel().compare(tree, other) == SubtreeKernel()([tree], [other])[0, 0]


def test_a_tree_may_be_deeper_than_python_calls() -> None:
    tree = ("leaf",)
    for i in range(5000):
        tree = ("node", i, tree)
    assert SubtreeKernel()([tree])[0, 0] == pytest.approx(1.0)


def test_too_many_shared_subtrees_are_refused() -> None:
    star = ("s", *["a"] * 1100)
    with pytest.raises(ValueError, match="lower decay"):
        SubtreeKernel(1.0)([star])


def test_labels_from_numpy_are_labels_like_others() -> None:
    K = WeisfeilerLehman(1)([Graph(np.array(["O", "H", "H"]), np.array([[0, 1], [0, 2]])), WATER])
    np.testing.assert_allclose(K, 1.0)


def test_a_fit_reads_the_objects_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    counts = WeisfeilerLehman.counts
    monkeypatch.setattr(
        WeisfeilerLehman, "counts", lambda self, graph: calls.append(1) or counts(self, graph)
    )
    GaussianProcessRegressor(1.0 * WeisfeilerLehman(2)).fit([WATER, PEROXIDE], [0.0, 1.0])
    assert len(calls) == 2


def test_chosen_objects_remember_as_well() -> None:
    chosen = take_rows(SubtreeKernel()._check([("s", "a"), ("s", "b"), ("t",)]), np.array([0, 2]))
    assert chosen == [("s", "a"), ("t",)]
    assert chosen.remember("size", len) == chosen.remember("size", lambda _: -1) == 2
