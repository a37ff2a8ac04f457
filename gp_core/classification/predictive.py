"""From the latent function to class probabilities: the predictive integral, or samples to check it with.

Shapes: M query points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gp_core.arrays import Array, integer_at_least
from gp_core.classification.links import Link
from gp_core.estimators import generator


class Averager:
    """∫ p(y = +1 | f) N(f; mean, variance) df, the way that `predict_proba` was asked to do it.

    method: "integral" (closed form for probit, quadrature for logit) or "sampling"
    n_samples: draws per point, for "sampling"
    random_state: seed of the draws: None, an int or a numpy Generator
    """

    def __init__(self, method: Any, n_samples: Any, random_state: Any) -> None:
        if method not in ("integral", "sampling"):
            raise ValueError(f'method must be "integral" or "sampling", got {method!r}')
        self.n_samples = integer_at_least(n_samples, 1, "n_samples")
        self.rng = generator(random_state) if method == "sampling" else None

    def __call__(self, link: Link, mean: Array, variance: Array) -> Array:
        """Probabilities (M,) from means (M,) and variances (M,)."""
        if self.rng is None:
            return link.class_probability(mean, variance)
        # Point by point, so that the memory does not grow with M.
        draws = (self.rng.standard_normal(self.n_samples) for _ in mean)
        return np.array(
            [
                link.probability(m + s * t).mean()
                for m, s, t in zip(mean, np.sqrt(variance), draws, strict=True)
            ]
        )
