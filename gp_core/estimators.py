"""What the estimators share: checked input (vectors, or sets and strings), seeds, warnings after a fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import column_or_1d

from gp_core.arrays import Array, as_targets, as_vector, looks_like_objects
from gp_core.kernels import RBF, Kernel, Scaled
from gp_core.linalg import report_jitter
from gp_core.optimize import Optimum
from gp_core.parameters import Parametrised

Inputs = npt.ArrayLike | Sequence[Any]
"""Points (N, D), or a sequence of N objects for a kernel that takes them."""

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # scikit-learn < 1.6

    def validate_data(estimator: Any, X: Any, *args: Any, **options: Any) -> Any:
        """The method that became a function in scikit-learn 1.6."""
        return estimator._validate_data(X, *args, **options)


_PRESSED = 1e-2
"""Gain in log likelihood per e-fold beyond a bound that is worth a warning."""


class NamedKernelParameters:
    """For estimators with a kernel: `set_params(kernel__length_scale=2.0)`, as grid search does.

    Kernels are immutable, so the named parameter is set by replacing the kernel.
    """

    def set_params(self, **params: Any) -> Any:
        """Set parameters of the estimator, and of its kernel and mean by `kernel__...` and `mean__...`."""
        plain = {name: value for name, value in params.items() if "__" not in name}
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            owner, mark, inner = name.partition("__")
            if mark and isinstance(plain.get(owner, getattr(self, owner, None)), Parametrised):
                nested.setdefault(owner, {})[inner] = value
            elif mark:
                plain[name] = value
        super().set_params(**plain)  # type: ignore[misc]
        for owner, named in nested.items():
            setattr(self, owner, getattr(self, owner).with_params(**named))
        return self


def fit_inputs(estimator: Any, X: Any, kernel: Kernel | None = None) -> Any:
    """X at fit: points (N, D) float64, remembered in n_features_in_; or a list of N objects."""
    if _takes_objects(kernel, X):
        return kernel._check(X)  # type: ignore[union-attr]
    return validate_data(estimator, X, dtype=np.float64, order="C")


def fit_inputs_and_targets(estimator: Any, X: Any, y: Any, kernel: Kernel | None = None) -> tuple[Any, Array]:
    """X as `fit_inputs`, y as float64 (N,) or (N, O), with matching lengths."""
    if _takes_objects(kernel, X):
        objects = kernel._check(X)  # type: ignore[union-attr]
        return objects, as_targets(y, len(objects))
    X, y = validate_data(
        estimator, X, y, dtype=np.float64, order="C", y_numeric=True, multi_output=True, reset=True
    )
    return X, np.asarray(y, dtype=np.float64)


def fit_inputs_and_one_target(
    estimator: Any, X: Any, y: Any, kernel: Kernel | None = None
) -> tuple[Any, Array]:
    """The same for a model of one output: y (N,); a column (N, 1) is taken as such, with scikit-learn's warning."""
    X, y = fit_inputs_and_targets(estimator, X, y, kernel)
    if y.ndim == 2 and y.shape[1] > 1:
        raise ValueError(f"y must have shape (N,), got {y.shape}: fit one model per output")
    return X, column_or_1d(y, warn=True)


def query_inputs(estimator: Any, X: Any, kernel: Kernel | None = None) -> Any:
    """X at prediction, checked against what `fit` saw."""
    if _takes_objects(kernel, X):
        return kernel._check(X)  # type: ignore[union-attr]
    return validate_data(estimator, X, dtype=np.float64, order="C", reset=False)


def sample_weights(sample_weight: Any, n: int) -> Array:
    """(N,) how often each point counts, 1 unless given; not negative, and not 0 for all."""
    if sample_weight is None:
        return np.ones(n)
    weights = as_vector(sample_weight, "sample_weight", n)
    if (weights < 0.0).any():
        raise ValueError(f"sample_weight holds a negative weight: {weights.min()}")
    if not weights.any():
        raise ValueError("sample_weight is zero for all points: weigh at least one")
    return weights


def default_kernel(kernel: Any) -> Kernel:
    """The kernel of an estimator: 1.0 * RBF(1.0) for None."""
    if kernel is None:
        return Scaled(RBF(1.0), 1.0)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a gp_core kernel, got {kernel!r}")
    return kernel


def generator(random_state: Any) -> np.random.Generator:
    """A Generator from what scikit-learn accepts as random_state: None, an int, RandomState or Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(random_state)
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def report(optimum: Optimum | None, jitter: float, model: Parametrised | None = None) -> None:
    """Warn the user of a fit that stopped early or at a bound, and of one that needed jitter.

    model: whose theta was learned, to name what is at its bound
    """
    if optimum is not None and not optimum.converged:
        remedy = (
            "raise max_iter"
            if optimum.out_of_iterations
            else "the line search found no better point, usually for a nearly singular kernel matrix: "
            "raise noise_variance or its lower bound"
        )
        warnings.warn(
            f"hyperparameters did not converge ({optimum.message}): {remedy}",
            ConvergenceWarning,
            stacklevel=3,
        )
    if optimum is not None and model is not None:
        found = [_at_bound(optimum, i, model) for i in optimum.find_active_bounds(_PRESSED)]
        if found:
            warnings.warn(
                f"the likelihood still rises beyond the bounds: {', '.join(found)}. "
                "Widen these bounds, fix the parameter, or take it as a sign that the model lacks something",
                ConvergenceWarning,
                stacklevel=3,
            )
    report_jitter(jitter, stacklevel=4)


def _at_bound(optimum: Optimum, i: int, model: Parametrised) -> str:
    low, high = optimum.bounds[i]
    at_low = optimum.x[i] - low < high - optimum.x[i]
    bound = low if at_low else high
    value = bound if model.signed[i] else np.exp(bound)
    return f"{model.theta_names[i]} is at its {'lower' if at_low else 'upper'} bound {value:.3g}"


def _takes_objects(kernel: Kernel | None, X: Any) -> bool:
    if kernel is None or kernel.domain == "vectors":
        return False
    return kernel.domain in ("objects", "table") or looks_like_objects(X)
