"""Kernels on sets and strings."""

import itertools
import pickle
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gp_core import GaussianProcessRegressor
from gp_core.kernels import RBF, Constant, EditDistance, SetIntersection, White, is_valid_kernel
from gp_core.kernels.discrete import edit_distances

WORDS = ["", "a", "ab", "abc", "kitten", "sitting", "saturday", "sunday", "ab"]
SETS = [set(), {1}, {1, 2}, {"x", 2}, frozenset({1, 2, "x"})]


def levenshtein(s, t):
    """The textbook table, one pair at a time."""
    table = [[0] * (len(t) + 1) for _ in range(len(s) + 1)]
    for i, j in itertools.product(range(len(s) + 1), range(len(t) + 1)):
        if i == 0 or j == 0:
            table[i][j] = i + j
        else:
            table[i][j] = min(
                table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (s[i - 1] != t[j - 1])
            )
    return table[-1][-1]


@given(
    st.lists(st.text("abc", max_size=7), min_size=1, max_size=5),
    st.lists(st.text("bcd", max_size=7), min_size=1, max_size=5),
)
@settings(max_examples=60, deadline=None)
def test_edit_distances_match_the_table(X, Z):
    expected = [[levenshtein(s, t) for t in Z] for s in X]
    np.testing.assert_array_equal(edit_distances(X, Z), expected)


def test_edit_distances_in_blocks(monkeypatch):
    whole = edit_distances(WORDS, WORDS)
    monkeypatch.setattr("gp_core.kernels.discrete._BLOCK_ENTRIES", 10)
    np.testing.assert_array_equal(edit_distances(WORDS, WORDS), whole)


def test_known_edit_distances():
    assert edit_distances(["kitten"], ["sitting"])[0, 0] == 3
    assert edit_distances(["saturday"], ["sunday"])[0, 0] == 3
    assert edit_distances([("the", "cat")], [("the", "black", "cat")])[0, 0] == 1  # words as tokens


def test_edit_distance_kernel_is_exp_of_the_distance():
    K = EditDistance(2.0)(WORDS[:3], WORDS)
    expected = [[np.exp(-levenshtein(s, t) / 2.0) for t in WORDS] for s in WORDS[:3]]
    np.testing.assert_allclose(K, expected)


def test_edit_distance_with_references_is_an_rbf_of_distances():
    references = ("abc", "sun", "kit")
    k = EditDistance(1.5, references)
    vectors = np.array([[levenshtein(s, r) for r in references] for s in WORDS]) / np.sqrt(3.0)
    np.testing.assert_allclose(k(WORDS), RBF(1.5)(vectors))
    assert is_valid_kernel(k, WORDS)


def indefinite_words():
    """All words of two letters over a few: exp(-d / l) is indefinite on some such set for a long l."""
    return ["".join(p) for n in range(4) for p in itertools.product("ab", repeat=n)]


def test_edit_distance_is_refused_where_it_is_no_kernel():
    words = indefinite_words()
    bad = next(
        scale for scale in (1.0, 2.0, 5.0, 10.0, 30.0) if not is_valid_kernel(EditDistance(scale), words)
    )
    with pytest.raises(ValueError, match=r"smallest eigenvalue -.*shorten length_scale"):
        EditDistance(bad)(words)
    with pytest.raises(ValueError, match="references"):
        (2.0 * EditDistance(bad))(words)
    # noise on top repairs it, and the check is on the whole
    assert (EditDistance(bad) + White(1.0))(words).shape == (len(words), len(words))
    # rectangular blocks are not Gram matrices: nothing to check
    assert EditDistance(bad)(words, words).shape == (len(words), len(words))


@given(st.lists(st.text("abcd", max_size=6), min_size=3, max_size=12, unique=True))
@settings(max_examples=40, deadline=None)
def test_edit_distance_is_valid_below_the_stated_length_scale(words):
    assert is_valid_kernel(EditDistance(1.0 / np.log(max(2.0, len(words) - 1.0)) * 0.999), words)


@given(st.lists(st.text(string.ascii_lowercase[:4], max_size=6), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None)
def test_references_make_every_data_set_valid(words):
    assert is_valid_kernel(EditDistance(3.0, ("", "abcd", "dcba")), words)


@pytest.mark.parametrize(
    "kernel", [EditDistance(1.5), EditDistance(1.5, ("abc", "sun")), 2.0 * EditDistance(0.7) + 1.0]
)
def test_gradient_by_theta(kernel):
    step = 1e-6
    for p, e in enumerate(np.eye(kernel.n_theta)):
        up, down = kernel.with_theta(kernel.theta + step * e), kernel.with_theta(kernel.theta - step * e)
        numeric = (up(WORDS, WORDS) - down(WORDS, WORDS)) / (2.0 * step)
        np.testing.assert_allclose(kernel.gradient_theta(WORDS, WORDS)[:, :, p], numeric, atol=1e-8)
    W = np.random.default_rng(0).normal(size=(len(WORDS), len(WORDS)))
    expected = np.einsum("ij,ijp->p", W, kernel.gradient_theta(WORDS, WORDS))
    np.testing.assert_allclose(kernel.theta_vjp(WORDS, W, WORDS), expected)


def test_set_kernel_counts_common_subsets():
    for normalized in (False, True):
        k = SetIntersection(normalized)
        for i, a in enumerate(SETS):
            for j, b in enumerate(SETS):
                expected = 2.0 ** len(a & b)
                if normalized:
                    expected /= np.sqrt(2.0 ** len(a) * 2.0 ** len(b))
                assert k(SETS)[i, j] == pytest.approx(expected)
        np.testing.assert_allclose(k.diag(SETS), np.diag(k(SETS)))
        np.testing.assert_allclose(k.log(SETS), np.log(k(SETS)))
    common = [c for n in range(3) for c in itertools.combinations(sorted({1, 2}), n)]
    assert SetIntersection()([{1, 2}], [{1, 2, 3}])[0, 0] == len(common)


@given(st.lists(st.frozensets(st.integers(0, 8), max_size=6), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None)
def test_set_kernel_is_valid(sets):
    assert is_valid_kernel(SetIntersection(), sets)
    assert is_valid_kernel(SetIntersection(normalized=True), sets)


def test_large_sets_overflow_with_a_remedy():
    large = set(range(1500))
    with pytest.raises(ValueError, match="normalized=True"):
        SetIntersection()([large])
    assert SetIntersection(normalized=True)([large, set()])[0, 0] == 1.0


def test_object_arrays_and_columns_of_objects_are_sequences():
    column = np.array([[{1}], [{1, 2}]], dtype=object)
    np.testing.assert_array_equal(SetIntersection()(column), SetIntersection()([{1}, {1, 2}]))
    np.testing.assert_array_equal(EditDistance()(np.array(["a", "bc"])), EditDistance()(["a", "bc"]))
    with pytest.raises(ValueError, match="one object per point"):
        SetIntersection()(np.array([[{1}, {2}]], dtype=object))


def test_constants_and_noise_go_with_any_domain():
    assert (SetIntersection() + White(0.1) + 2.0)(SETS).shape == (5, 5)
    np.testing.assert_array_equal(Constant(2.0)(["a", "b"]), np.full((2, 2), 2.0))
    np.testing.assert_array_equal(White(2.0)([{1}, {2}]), 2.0 * np.eye(2))


def pandas():
    return pytest.importorskip("pandas")


@pytest.mark.parametrize(
    "make",
    [
        lambda words: pandas().DataFrame({"word": words}),
        lambda words: pandas().Series(words),
        lambda words: pandas().DataFrame({"word": pandas().Categorical(words)}),
        lambda words: [[word] for word in words],
        lambda words: np.array([[word] for word in words], dtype=object),
        np.array,
        tuple,
    ],
    ids=["frame", "series", "categories", "list of rows", "column", "array", "tuple"],
)
def test_a_table_of_one_column_means_its_entries(make):
    words = ["kitten", "sitting", "sat"]
    table = make(words)
    np.testing.assert_array_equal(EditDistance()(table), EditDistance()(words))
    np.testing.assert_array_equal((EditDistance() + 1.0)(table, words), (EditDistance() + 1.0)(words, words))
    np.testing.assert_array_equal(White(2.0)(table), 2.0 * np.eye(3))
    gp = GaussianProcessRegressor(EditDistance(1.0), optimizer=None).fit(table, [1.0, 2.0, 3.0])
    assert gp.predict(table).shape == (3,)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ({"a": 1, "b": 2}, "dict"),
        ({"kitten", "sitting"}, "no order"),
        ("kitten", "wrap one in a list"),
        ([["the", "cat"], ["a"]], "tuple"),
        (["the", ["cat"]], "row of one object"),
        (np.array([["x", "y"]], dtype=object), "one object per point"),
    ],
)
def test_what_is_no_sequence_of_objects_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        EditDistance()(X)


@pytest.mark.parametrize("references", [None, ("abc", "sun")])
def test_a_fit_computes_edit_distances_once(monkeypatch, references):
    calls = []

    def counted(X, Z):
        calls.append((len(X), len(Z)))
        return edit_distances(X, Z)

    monkeypatch.setattr("gp_core.kernels.discrete.edit_distances", counted)
    gp = GaussianProcessRegressor(1.0 * EditDistance(0.5, references), noise_variance=0.1)
    gp.fit(WORDS, np.arange(float(len(WORDS))))
    assert gp.optimum_.evaluations > 3
    assert len(calls) == 1
    assert pickle.loads(pickle.dumps(gp)).predict(WORDS) == pytest.approx(gp.predict(WORDS))
