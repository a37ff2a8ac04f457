"""Gaussian process classification of many points, through inducing points."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from gp_core.arrays import Array, integer_at_least, take_rows
from gp_core.bandwidth import deviations
from gp_core.classification.gp_binary import LatentPrior
from gp_core.classification.gp_classifier import means_of_classes
from gp_core.classification.labels import class_probabilities, fit_inputs_and_labels, one_vs_rest, signs
from gp_core.classification.links import LINKS, Link
from gp_core.classification.options import choose
from gp_core.classification.predictive import Averager
from gp_core.classification.sparse_gp import SparseBound, SparseModel, Whitened
from gp_core.estimators import Inputs, NamedKernelParameters, default_kernel, generator, query_inputs, report
from gp_core.kernels import RBF, Kernel
from gp_core.optimize import Optimum
from gp_core.parallel import single_threaded_blas
from gp_core.search import SearchSettings, check_optimizer, maximize_likelihood

_ROUGH = 1e-2
"""Gain of the bound below which a posterior is good enough while the hyperparameters are searched."""
_FINE = 1e-4
"""The same for the posterior that is kept."""
_CLUSTERED = 20_000
"""Points that the search for cluster centres looks at."""


@dataclass(frozen=True)
class SparseGP:
    """One latent function: its prior at the inducing points, its posterior, how the search went."""

    model: SparseModel
    bound: SparseBound
    optimum: Optimum | None

    def latent(self, X: Any) -> tuple[Array, Array]:
        """Mean (M,) and variance (M,) of f at X."""
        return self.model.latent(X, self.bound.q)


class SparseGaussianProcessClassifier(NamedKernelParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """p(y = +1 | x) = s(f(x)), f ~ GP(m, k), known through its values at a few inducing points Z.

        q = argmax Σ_i E_q log p(y_i | f_i) - KL(q(f(Z)) || p(f(Z))) <= log p(y)

    The variational posterior of `GaussianProcessClassifier(inference="variational")`, restricted to what the
    inducing points can tell; with every training point among them it is the same. O(N I²) per pass over the
    data for I inducing points, O(I²) per predicted probability; N I numbers of memory. Hyperparameters are
    learned on a random part of the data, the posterior is that of all.

    Parameters
    ----------
    kernel : Kernel or None
        k; None for 1.0 * RBF with a length scale per input that starts at its standard deviation.
    n_inducing : int
        I, the number of inducing points: centres of clusters of the points (for objects, some of them). More of
        them follow finer structure; they should lie closer than the length scale.
    mean : number, callable, Mean, list of these, or None
        m, as for `GaussianProcessClassifier`.
    link : {"probit", "logit"}
        s.
    optimizer : "lbfgs" or None
        None keeps the hyperparameters as given.
    n_learning : int
        Points, drawn at random, by which the hyperparameters are learned.
    max_iter : int
        Iterations of the optimiser.
    random_state : None, int or numpy Generator
        Seed of the inducing points and of the points to learn by.

    Attributes
    ----------
    classes_ : array (C,)
        The labels.
    inducing_points_ : array (I, D), or I objects
        Z.
    kernel_, mean_ : Kernel and Mean, or tuples of them
        With the learned hyperparameters; for more than two classes one per class.
    lower_bound_ : float
        The bound on log p(y), summed over the classes.
    n_iter_ : int
        Passes over the data for the last posterior, the most that a class took.
    models_ : tuple of SparseGP
        One per class (one for two).

    References
    ----------
    Lecture "Kernels and Gaussian processes": "Gaussian Processes for Classification".
    Hensman, Matthews and Ghahramani (2015), Scalable variational Gaussian process classification.

    Examples
    --------
    >>> import numpy as np
    >>> from gp_core import SparseGaussianProcessClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3.0, 3.0, (2000, 2))
    >>> y = X[:, 1] > np.sin(2.0 * X[:, 0])
    >>> model = SparseGaussianProcessClassifier(n_inducing=50, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.97)
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        n_inducing: int = 100,
        mean: Any = None,
        link: str = "probit",
        optimizer: str | None = "lbfgs",
        n_learning: int = 5000,
        max_iter: int = 30,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.mean = mean
        self.link = link
        self.optimizer = optimizer
        self.n_learning = n_learning
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Inputs, y: npt.ArrayLike) -> SparseGaussianProcessClassifier:
        """Learn from X (N, D), or N objects, and labels y (N,)."""
        link = choose(LINKS, self.link, "link")
        check_optimizer(self.optimizer)
        n_inducing = integer_at_least(self.n_inducing, 1, "n_inducing")
        n_learning = integer_at_least(self.n_learning, 1, "n_learning")
        max_iter = integer_at_least(self.max_iter, 1, "max_iter")
        if self.kernel is not None:
            default_kernel(self.kernel)  # refuse what is no kernel before the data are read with it
        points, codes = fit_inputs_and_labels(self, X, y, self.kernel)
        rng = generator(self.random_state)
        kernel = _kernel_for(self.kernel, points)
        self.inducing_points_ = Z = _inducing_points(points, kernel, n_inducing, rng)
        some = np.sort(rng.permutation(len(codes))[:n_learning])
        learning = take_rows(points, some)
        models = []
        means = means_of_classes(self.mean, len(self.classes_))
        # The blocks of points already run on a thread each: BLAS threads of their own would only wait for cores.
        with single_threaded_blas():
            for code, mean in zip(one_vs_rest(len(self.classes_)), means, strict=True):
                labels = signs(codes, code)
                prior = LatentPrior(kernel, mean)
                optimum, start = None, None
                if self.optimizer is not None and prior.n_theta:
                    prior, optimum, start = _learn(prior, Z, learning, labels[some], link, max_iter)
                model = SparseModel(prior, Z)
                bound = model.fit(points, labels, link, start, tol=_FINE, max_iter=200)
                models.append(SparseGP(model, bound, optimum))
        for fitted in models:
            report(fitted.optimum, 0.0)
            if not fitted.bound.converged:
                warnings.warn(
                    f"the posterior did not converge in {fitted.bound.iterations} passes: bound the kernel's variance, "
                    "or use fewer inducing points",
                    ConvergenceWarning,
                    stacklevel=2,
                )
        self.models_ = tuple(models)
        kernels = tuple(m.model.prior.kernel for m in models)
        learned_means = tuple(m.model.prior.mean for m in models)
        self.kernel_ = kernels[0] if len(kernels) == 1 else kernels
        self.mean_ = learned_means[0] if len(kernels) == 1 else learned_means
        self.lower_bound_ = sum(m.bound.value for m in models)
        self.n_iter_ = max(m.bound.iterations for m in models)
        return self

    def predict(self, X: Inputs) -> npt.NDArray[Any]:
        """Most probable label (M,) at X."""
        check_is_fitted(self)
        labels: npt.NDArray[Any] = self.classes_[np.argmax(self.predict_proba(X), axis=1)]
        return labels

    def predict_proba(
        self, X: Inputs, *, method: str = "integral", n_samples: int = 10_000, random_state: Any = None
    ) -> Array:
        """Probabilities (M, C) of the classes at X, averaged over the posterior of f.

        method, n_samples, random_state: as for `GaussianProcessClassifier.predict_proba`
        """
        check_is_fitted(self)
        average = Averager(method, n_samples, random_state)
        queries = query_inputs(self, X, self.models_[0].model.prior.kernel)
        link = LINKS[self.link]
        columns = [average(link, *model.latent(queries)) for model in self.models_]
        return class_probabilities(np.stack(columns, axis=1))

    def predict_latent(self, X: Inputs, return_std: bool = False) -> Any:
        """Posterior mean of f at X: (M,), or (M, C) for C > 2 classes; with its deviation if asked for."""
        check_is_fitted(self)
        queries = query_inputs(self, X, self.models_[0].model.prior.kernel)
        moments = [model.latent(queries) for model in self.models_]
        mean = np.stack([m for m, _ in moments], axis=1)
        std = np.sqrt(np.stack([v for _, v in moments], axis=1))
        if len(moments) == 1:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean


def _learn(
    prior: LatentPrior, Z: Any, X: Any, y: Array, link: Link, max_iter: int
) -> tuple[LatentPrior, Optimum, Whitened | None]:
    """Hyperparameters that maximise the bound on the points to learn by, and the posterior found with them."""
    last: Whitened | None = None

    def likelihood(prior: LatentPrior, gradient: bool) -> tuple[float, Array]:
        nonlocal last
        model = SparseModel(prior, Z)
        bound = model.fit(X, y, link, last, tol=_ROUGH, max_iter=50)
        last = bound.q
        return bound.value, model.gradient(X, y, link, bound.q)

    learned, optimum = maximize_likelihood(prior, likelihood, SearchSettings(max_iter, tolerance=1e-3))
    return learned, optimum, last


def _kernel_for(kernel: Kernel | None, X: Any) -> Kernel:
    if kernel is not None or not isinstance(X, np.ndarray):
        return default_kernel(kernel)
    return 1.0 * RBF(tuple(deviations(X).tolist()))  # type: ignore[no-any-return]


def _inducing_points(X: Any, kernel: Kernel, size: int, rng: np.random.Generator) -> Any:
    """Centres of clusters of scaled points (I, D); all points if there are no more; some where none lie between."""
    if not isinstance(X, np.ndarray) or not kernel.continuous:
        return take_rows(X, np.sort(rng.permutation(len(X))[:size]))
    if len(np.unique(X, axis=0)) <= size:
        return np.unique(X, axis=0)
    scale = deviations(X)
    sample = X[rng.permutation(len(X))[:_CLUSTERED]] / scale
    clusters = MiniBatchKMeans(size, n_init=1, batch_size=4096, random_state=int(rng.integers(2**31)))
    return np.unique(clusters.fit(sample).cluster_centers_ * scale, axis=0)
