"""Labels in, labels out: what the classifiers share at both ends.

Shapes: N points, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from gp_core.arrays import Array
from gp_core.estimators import fit_inputs, sample_weights
from gp_core.kernels import Kernel


def fit_inputs_and_labels(
    estimator: Any, X: Any, y: Any, kernel: Kernel | None = None
) -> tuple[Any, NDArray[np.intp]]:
    """Checked X, and y as indices (N,) into `estimator.classes_`, which is set here; at least two classes.

    X: (N, D) points, or N objects where the kernel takes them
    y: (N,) labels of any type that can be sorted
    kernel: decides what X may be; without one, points
    """
    X = fit_inputs(estimator, X, kernel)
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y holds one class only ({classes[0]!r}): a classifier needs at least two classes")
    estimator.classes_ = classes
    return X, codes


def signs(codes: NDArray[np.intp], positive: int) -> Array:
    """(N,) with +1 where the code is `positive` and -1 elsewhere."""
    return np.where(codes == positive, 1.0, -1.0)


def one_vs_rest(n_classes: int) -> range:
    """Codes that get a model of their own: the second of two classes, else every one."""
    return range(1, 2) if n_classes == 2 else range(n_classes)


def class_probabilities(positive: Array) -> Array:
    """(N, C) probabilities from those of the one-vs-rest models.

    positive: (N, 1) probability of the second of two classes, or (N, C) probability of each class against the
        rest; these are scaled to add up to 1
    """
    if positive.shape[1] == 1:
        return np.hstack([1.0 - positive, positive])
    total = positive.sum(axis=1, keepdims=True)
    # Every model says no, to the last bit: nothing is known but the number of classes.
    uniform = np.full_like(positive, 1.0 / positive.shape[1])
    scaled: Array = np.divide(positive, total, out=uniform, where=total > 0.0)
    return scaled


def class_weights(sample_weight: Any, codes: NDArray[np.intp]) -> Array:
    """ω (N,), 1 unless given; not negative, and positive for points of at least two classes.

    sample_weight: (N,) or None
    codes: (N,) class of each point
    """
    weights = sample_weights(sample_weight, len(codes))
    if sample_weight is not None and len(np.unique(codes[weights > 0.0])) < 2:
        raise ValueError("sample_weight is zero for all classes but one: weigh points of at least two")
    return weights
