"""Kernels on any object: functions, precomputed matrices, trees, graphs, tables of mixed columns."""

import itertools
import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from gp_core import (
    CoregionalizedGaussianProcessRegressor,
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    KernelNearestNeighbors,
    KernelPCA,
    KernelRidge,
    LocalLogisticRegression,
    LocallyWeightedRegression,
    NadarayaWatson,
    RobustGaussianProcessRegressor,
    SparseGaussianProcessClassifier,
    SupportVectorClassifier,
)
from gp_core.kernels import (
    RBF,
    Columns,
    EditDistance,
    Epanechnikov,
    FunctionKernel,
    Graph,
    Linear,
    ObjectKernel,
    Precomputed,
    SubtreeKernel,
    Tricube,
    WeisfeilerLehman,
    Wendland,
    White,
    is_valid_kernel,
)

WORDS = ["rock", "rocks", "rocky", "sand", "sandy", "sands"]
NUMBERS = np.array([1.0, 1.1, 1.3, 3.0, 3.2, 2.9])
LABELS = ["r", "r", "r", "s", "s", "s"]


def lengths(a, b, decay):
    return math.exp(-abs(len(a) - len(b)) / decay)


class Rock:
    def __init__(self, weight):
        self.weight = weight


def weights(a, b, scale):
    return math.exp(-0.5 * ((a.weight - b.weight) / scale) ** 2)


TREES = [
    ("s", ("np", "dog"), ("vp", "barks")),
    ("s", ("np", "cat"), ("vp", "barks")),
    ("s", ("np", "cat"), ("vp", "sleeps")),
    ("s", ("vp", "sleeps")),
    "dog",
    ("np", "dog"),
]
MOLECULES = [
    Graph("OHH", [(0, 1), (0, 2)]),
    Graph("OOHH", [(0, 1), (0, 2), (1, 3)]),
    Graph("CHHHH", [(0, 1), (0, 2), (0, 3), (0, 4)]),
    Graph("CO", [(0, 1, "triple")]),
    Graph("COO", [(0, 1, "double"), (0, 2, "double")]),
    Graph("C", []),
]
ON_OBJECTS = {
    "function": (FunctionKernel(lengths, {"decay": 2.0}), WORDS),
    "class": (FunctionKernel(weights, {"scale": 1.0}), [Rock(w) for w in NUMBERS]),
    "tree": (SubtreeKernel(0.4), TREES),
    "graph": (WeisfeilerLehman(2), MOLECULES),
    "mixed": (
        Columns(EditDistance(1.0), 0) * Columns(RBF([1.0, 2.0]), (1, 2)),
        [[w, n, n**2] for w, n in zip(WORDS, NUMBERS, strict=True)],
    ),
    "own function and numbers": (
        2.0 * Columns(FunctionKernel(lengths, {"decay": 2.0}), 0) * Columns(RBF(1.0), 1),
        [[w, n] for w, n in zip(WORDS, NUMBERS, strict=True)],
    ),
    "function of a column": (
        Columns(FunctionKernel(lengths, {"decay": 2.0}), 1),
        [[n, w] for w, n in zip(WORDS, NUMBERS, strict=True)],
    ),
    "precomputed": (Precomputed(RBF(1.0)(NUMBERS[:, None])), np.arange(6.0)[:, None]),
    "precomputed and words": (
        1.0 * Columns(Precomputed(RBF(1.0)(NUMBERS[:, None])), 1) + Columns(EditDistance(1.0), 0),
        [[w, i] for i, w in enumerate(WORDS)],
    ),
}


@pytest.mark.parametrize("name", ON_OBJECTS)
def test_every_estimator_takes_them(name):
    kernel, objects = ON_OBJECTS[name]
    assert is_valid_kernel(kernel, objects)
    for model in (
        GaussianProcessRegressor(1.0 * kernel + White(0.1), max_iter=5),
        RobustGaussianProcessRegressor(1.0 * kernel, max_iter=2),
        CoregionalizedGaussianProcessRegressor(kernel, max_iter=2),
        KernelRidge(kernel),
        NadarayaWatson(kernel, optimizer=None),
        LocallyWeightedRegression(kernel, degree=0),
    ):
        prediction = model.fit(objects, NUMBERS).predict(objects)
        assert prediction.shape == (6,)
        assert np.isfinite(prediction).all()
    for model in (
        GaussianProcessClassifier(kernel, max_iter=3),
        KernelNearestNeighbors(kernel, n_neighbors=1),
        LocalLogisticRegression(kernel, degree=0, optimizer=None),
        SparseGaussianProcessClassifier(kernel, n_inducing=4, max_iter=2, random_state=0),
        SupportVectorClassifier(kernel),
    ):
        assert set(model.fit(objects, LABELS).predict(objects)) <= set(LABELS)
    assert KernelPCA(1, kernel=kernel).fit(objects).transform(objects[:3]).shape == (3, 1)
    np.testing.assert_allclose(kernel.diag(objects), np.diag(kernel(objects)))
    np.testing.assert_allclose(kernel(objects, objects[:2]), kernel(objects)[:, :2], atol=1e-12)
    assert SVC(kernel="precomputed").fit(kernel(objects), LABELS).predict(kernel(objects)).shape == (6,)


@pytest.mark.parametrize("name", ON_OBJECTS)
def test_gradient_by_theta(name):
    kernel, objects = ON_OBJECTS[name]
    step = 1e-4
    gradient = kernel.gradient_theta(objects)
    for p, e in enumerate(np.eye(kernel.n_theta)):
        up, down = kernel.with_theta(kernel.theta + step * e), kernel.with_theta(kernel.theta - step * e)
        np.testing.assert_allclose(gradient[:, :, p], (up(objects) - down(objects)) / (2.0 * step), atol=1e-6)


def test_a_function_and_its_parameters():
    k = FunctionKernel(lengths, {"decay": 2.0}, (0.1, 10.0))
    assert k.theta_names == ("decay",)
    assert k.values() == {"decay": 2.0}
    assert k.with_theta([0.0]).values() == {"decay": 1.0}
    assert k.with_params(decay=3.0).values() == {"decay": 3.0}
    assert k == FunctionKernel(lengths, {"decay": 2.0}, (0.1, 10.0))
    assert k != FunctionKernel(lengths, {"decay": 3.0}, (0.1, 10.0))
    assert pickle.loads(pickle.dumps(k)) == k
    assert repr(k) == "FunctionKernel(lengths, {'decay': 2.0}, (0.1, 10.0))"
    np.testing.assert_allclose(k(WORDS), [[lengths(a, b, 2.0) for b in WORDS] for a in WORDS])
    assert FunctionKernel(lambda a, b: float(a == b)).n_theta == 0
    learned = GaussianProcessRegressor(1.0 * k).fit(WORDS, [float(len(w)) for w in WORDS])
    assert "decay" in learned.theta_names_
    search = GaussianProcessRegressor(k).set_params(kernel__decay=5.0)
    assert search.kernel.values() == {"decay": 5.0}


def test_a_function_of_vectors_and_of_all_points_at_once():
    X = np.random.default_rng(0).normal(size=(8, 2))
    one = FunctionKernel(
        lambda x, z, size: math.exp(-0.5 * float(np.sum((x - z) ** 2)) / size**2), {"size": 0.7}
    )
    many = FunctionKernel(lambda A, B, size: RBF(size)(A, B), {"size": 0.7}, vectorized=True)
    for k in (one, many):
        np.testing.assert_allclose(k(X), RBF(0.7)(X))
        np.testing.assert_allclose(k.diag(X), 1.0)
        np.testing.assert_allclose((k + Linear())(X), RBF(0.7)(X) + X @ X.T)
        np.testing.assert_allclose(k.gradient_theta(X), RBF(0.7).gradient_theta(X), atol=1e-8)
        gp = GaussianProcessRegressor(k, optimizer=None).fit(X, X[:, 0])
        expected = GaussianProcessRegressor(RBF(0.7), optimizer=None).fit(X, X[:, 0])
        np.testing.assert_allclose(gp.predict(X), expected.predict(X))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (FunctionKernel(lambda a, b: float(len(a) - len(b))), "not symmetric"),
        (FunctionKernel(lambda a, b: -1.0 if a == b else 0.0), "not a valid kernel"),
        (FunctionKernel(lambda a, b: math.nan), "NaN"),
        (FunctionKernel(lambda A, B: np.zeros((2, 3)), vectorized=True), "matrix"),
    ],
)
def test_a_function_that_is_no_kernel_is_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        GaussianProcessRegressor(kernel, optimizer=None).fit(WORDS, NUMBERS)


def test_a_base_to_derive_from():
    @dataclass(frozen=True, repr=False)
    class Shared(ObjectKernel):
        def compare(self, x, z):
            return float(len(set(x) & set(z)))

    np.testing.assert_array_equal(Shared()(["rock", "crop"]), [[4.0, 3.0], [3.0, 4.0]])
    with pytest.raises(NotImplementedError, match="compare"):
        ObjectKernel()(["a"])


def test_precomputed():
    K = RBF(1.0)(NUMBERS[:, None])
    k = Precomputed(K)
    np.testing.assert_array_equal(k([[2], [0]], [[1]]), K[[2, 0]][:, [1]])
    np.testing.assert_array_equal(k([0, 1, 2]), K[:3, :3])
    assert k == Precomputed(K.copy())
    assert hash(k) == hash(Precomputed(K.copy()))
    assert eval(repr(k), {"Precomputed": Precomputed}) == k
    assert (
        repr(Precomputed(np.eye(50))) == "Precomputed(matrix=<50 x 50 matrix>)"
    )  # in every message about it
    train, test = np.array([[0], [1], [3], [4]]), np.array([[2], [5]])
    a = GaussianProcessRegressor(k, optimizer=None).fit(train, NUMBERS[train[:, 0]])
    b = GaussianProcessRegressor(RBF(1.0), optimizer=None).fit(NUMBERS[train], NUMBERS[train[:, 0]])
    np.testing.assert_allclose(a.predict(test), b.predict(NUMBERS[test]))
    for bad, message in (
        ([[1.0, 2.0], [2.0, 1.0]], "positive semi-definite"),
        ([[1.0, 0.5], [0.0, 1.0]], "symmetric"),
        ([1.0], "square"),
    ):
        with pytest.raises(ValueError, match=message):
            Precomputed(bad)
    for index in ([[6]], [[0.5]], [[-1]], [[0, 1]]):
        with pytest.raises(ValueError, match="indices from 0 to 5"):
            k(index)


# -- trees and graphs, against counting by hand ------------------------------------------------------------


def subtrees(tree):
    """Every subtree rooted at the root of a tree: keep the labels of the children, and each child's own or not."""
    label, *children = tree if isinstance(tree, tuple) else (tree,)
    names = [child[0] if isinstance(child, tuple) else child for child in children]
    options = [[None, *subtrees(child)] for child in children]
    return [(label, tuple(names), choice) for choice in itertools.product(*options)]


def nodes(tree):
    children = tree[1:] if isinstance(tree, tuple) else ()
    return [tree, *(node for child in children for node in nodes(child))]


def weight(subtree, decay):
    return decay * math.prod(weight(child, decay) for child in subtree[2] if child is not None)


def shared_subtrees(a, b, decay):
    left = [s for node in nodes(a) for s in subtrees(node)]
    right = [s for node in nodes(b) for s in subtrees(node)]
    return sum(weight(s, decay) for s in left for t in right if s == t)


@pytest.mark.parametrize("decay", [0.3, 1.0])
def test_the_tree_kernel_counts_common_subtrees(decay):
    K = SubtreeKernel(decay, normalized=False)(TREES)
    np.testing.assert_allclose(K, [[shared_subtrees(a, b, decay) for b in TREES] for a in TREES])
    d = np.sqrt(np.diag(K))
    np.testing.assert_allclose(SubtreeKernel(decay)(TREES), K / np.outer(d, d))


labels = st.sampled_from("abc")
trees = st.recursive(
    labels,
    lambda inner: st.builds(lambda label, children: (label, *children), labels, st.lists(inner, max_size=3)),
    max_leaves=6,
)


@given(st.lists(trees, min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_the_tree_kernel_is_valid(found):
    assert is_valid_kernel(SubtreeKernel(0.6), found)


def neighbourhood(graph, i, h):
    if h == 0:
        return repr(graph.labels[i])
    around = []
    for a, b, *label in graph.edges:
        around += [
            (repr(label), neighbourhood(graph, other, h - 1)) for me, other in ((a, b), (b, a)) if me == i
        ]
    return neighbourhood(graph, i, h - 1), tuple(sorted(around, key=repr))


def test_the_graph_kernel_counts_common_neighbourhoods():
    K = WeisfeilerLehman(2, normalized=False)(MOLECULES)
    for i, a in enumerate(MOLECULES):
        for j, b in enumerate(MOLECULES):
            expected = sum(
                neighbourhood(a, p, h) == neighbourhood(b, q, h)
                for h in range(3)
                for p in range(len(a))
                for q in range(len(b))
            )
            assert K[i, j] == expected
    turned = Graph("HOH", [(1, 0), (1, 2)])
    assert WeisfeilerLehman()([turned], MOLECULES[:1])[0, 0] == pytest.approx(1.0)
    single, double = Graph("CO", [(0, 1, "-")]), Graph("CO", [(0, 1, "=")])
    assert WeisfeilerLehman()([single], [double])[0, 0] < 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Graph("CO", [(0, 2)]), "nodes 0 to 1"),
        (lambda: Graph("CO", [("C", "O")]), "nodes 0 to 1"),
        (lambda: Graph("CO", [3]), "nodes 0 to 1"),
        (lambda: FunctionKernel(lambda a, b: "near")(WORDS), "must return a number, got 'near'"),
        (lambda: WeisfeilerLehman()(["CO"]), "must be a Graph"),
        (lambda: WeisfeilerLehman(-1), "iterations"),
        (lambda: SubtreeKernel()([()]), "empty tree"),
        (lambda: FunctionKernel(3.0), "callable"),
        (lambda: Columns(EditDistance(), (0, 1)), "one column"),
        (lambda: Columns(EditDistance(), 0) * RBF(1.0), "choose the columns of each"),
        (lambda: (Columns(EditDistance(), 0) * Columns(RBF(), 1))([["a", 1.0], ["b"]]), "same number"),
        (lambda: (Columns(EditDistance(), 0) * Columns(RBF(), 1))([["a", "x"]]), "must be numbers"),
        (lambda: (Columns(EditDistance(), 0) * Columns(RBF(), 2))([["a", 1.0]]), "column 2 does not exist"),
        (lambda: Wendland(1.0, dimension=1)(np.zeros((2, 2))), r"dimension=2"),
        (lambda: Wendland(1.0, smoothness=3), "0, 1 or 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_mixed_columns_are_the_product_of_their_parts():
    rows = [[w, n] for w, n in zip(WORDS, NUMBERS, strict=True)]
    k = 2.0 * Columns(EditDistance(1.0), 0) * Columns(RBF(0.5), 1) + 1.0
    expected = 2.0 * EditDistance(1.0)(WORDS) * RBF(0.5)(NUMBERS[:, None]) + 1.0
    for table in (rows, np.array(rows, dtype=object)):
        np.testing.assert_allclose(k(table), expected)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"word": WORDS, "size": NUMBERS})
    np.testing.assert_allclose(k(frame), expected)
    gp = GaussianProcessRegressor(k).fit(frame, NUMBERS)
    np.testing.assert_allclose(gp.predict(frame), gp.predict(rows))


# -- compact support ---------------------------------------------------------------------------------------


def test_sparse_is_dense_where_it_is_not_zero():
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(0.0, 10.0, (200, 2)), rng.uniform(0.0, 10.0, (50, 2))
    for k in (Wendland(1.0), Wendland([0.5, 2.0], smoothness=2), Tricube(1.0), Epanechnikov(1.0)):
        np.testing.assert_allclose(k.sparse(X, Z).toarray(), k(X, Z), atol=1e-12)
        K = k.sparse(X)
        np.testing.assert_allclose(K.toarray(), k._matrix(X, None), atol=1e-12)
        assert K.nnz < 0.2 * 200 * 200


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("smoothness", [0, 1, 2])
def test_wendland_is_valid_up_to_its_dimension(dimension, smoothness):
    X = np.random.default_rng(1).uniform(0.0, 1.0, (150, dimension))
    assert is_valid_kernel(Wendland(0.7, smoothness, dimension), X)


@pytest.mark.parametrize("weight", [Tricube(1.0), Epanechnikov(1.0)])
def test_weights_are_no_kernels_already_in_one_dimension(weight):
    x = np.linspace(0.0, 4.0, 60)[:, None]
    assert not is_valid_kernel(weight, x)
    with pytest.raises(ValueError, match="in no dimension: use Wendland"):
        GaussianProcessRegressor(weight, optimizer=None).fit(x, x[:, 0])
    smooth = NadarayaWatson(weight, optimizer=None).fit(x, np.sin(x[:, 0]))
    assert np.abs(smooth.predict(x) - np.sin(x[:, 0])).max() < 0.5


def test_rows_of_numbers_are_vectors_for_a_function_as_for_every_kernel():
    rows = [[0.0, 1.0], [2.0, 3.0], [1.0, 1.0]]
    product = FunctionKernel(lambda x, z: float(x @ z))
    np.testing.assert_allclose(product(rows), Linear()(rows))
    assert KernelRidge(product).fit(rows, [0.0, 1.0, 2.0]).predict(rows).shape == (3,)
