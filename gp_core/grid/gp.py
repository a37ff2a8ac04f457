"""`GridGP`: a stream of noisy heights in, the posterior of a terrain map out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.grid.axes import Axis, Grid
from gp_core.grid.interpolation import slopes, weights
from gp_core.grid.posterior import GridPosterior
from gp_core.grid.prior import Prior, make_prior
from gp_core.grid.statistics import Statistics
from gp_core.grid.tiles import TileModel, make_tile_model, tile_count
from gp_core.kernels import Kernel

OnBad = Literal["drop", "raise"]


@dataclass(frozen=True)
class Intake:
    """What `update` did with the points it was given.

    used: points taken in
    not_finite: points with NaN or infinity in position, height or variance
    bad_variance: points whose variance is not positive
    outside: points outside the grid
    """

    used: int
    not_finite: int
    bad_variance: int
    outside: int

    @property
    def dropped(self) -> int:
        return self.not_finite + self.bad_variance + self.outside


class GridGP:
    """z_n = f(x_n, y_n) + noise, f ~ GP(mean, kernel), on the cells of a grid.

    grid: the cells at which the posterior is wanted
    kernel: stationary kernel on (x, y); its variance is that of the terrain about the mean
    noise_variance: of a point whose own variance is not given
    mean: prior mean height
    on_bad: "drop" counts bad points and goes on, "raise" refuses the whole batch with a ValueError
    """

    def __init__(
        self,
        grid: Grid,
        kernel: Kernel,
        noise_variance: float,
        mean: float = 0.0,
        *,
        on_bad: OnBad = "drop",
    ) -> None:
        self.grid = grid
        self.kernel = kernel
        self.noise_variance = positive(noise_variance, "noise_variance")
        self.mean = float(mean)
        self.on_bad = on_bad
        self.prior: Prior = make_prior(kernel, None)
        x_min, y_min, x_max, y_max = grid.bounds
        self.statistics = Statistics(
            Axis.covering(x_min, x_max, self.prior.spacing[0]),
            Axis.covering(y_min, y_max, self.prior.spacing[1]),
            self.mean,
        )
        smooth = self.prior.correlation_length[0] / self.prior.spacing[0] < 4.0
        self.tiles: TileModel = make_tile_model(
            self.prior, *((4.0, 4.0, 2.0, 1e-8) if smooth else (1.5, 1.5, 1.0, 1e-7))
        )

    def update(self, xy: Any, z: Any, variance: Any = None) -> Intake:
        """Take in points.

        xy: (N, 2) positions
        z: (N,) heights
        variance: (N,) or a number; noise variance of each height, `noise_variance` unless given
        """
        xy = np.asarray(xy, dtype=np.float64)
        z = np.asarray(z, dtype=np.float64)
        if xy.ndim != 2 or xy.shape[1] != 2:
            raise ValueError(f"xy must be positions of shape (N, 2), got {xy.shape}")
        if z.shape != (xy.shape[0],):
            raise ValueError(f"z must have shape ({xy.shape[0]},) to match xy, got {z.shape}")
        r = np.asarray(self.noise_variance if variance is None else variance, dtype=np.float64)
        if r.shape not in ((), z.shape):
            raise ValueError(f"variance must be a number or have shape {z.shape}, got {r.shape}")
        r = np.broadcast_to(r, z.shape)
        finite = np.isfinite(xy).all(1) & np.isfinite(z) & np.isfinite(r)
        positive_variance = r > 0.0
        x_min, y_min, x_max, y_max = self.grid.bounds
        with np.errstate(invalid="ignore"):
            inside = (xy[:, 0] >= x_min) & (xy[:, 0] < x_max) & (xy[:, 1] >= y_min) & (xy[:, 1] < y_max)
        good = finite & positive_variance & inside
        intake = Intake(
            int(good.sum()),
            int((~finite).sum()),
            int((finite & ~positive_variance).sum()),
            int((finite & positive_variance & ~inside).sum()),
        )
        if self.on_bad == "raise" and intake.dropped:
            raise ValueError(
                f"{intake.dropped} of {z.size} points are bad: {intake.not_finite} not finite, "
                f"{intake.bad_variance} with variance <= 0, {intake.outside} outside the grid; nothing was "
                "taken in. Remove them, or use on_bad='drop'"
            )
        self.statistics.add(xy[good, 0], xy[good, 1], z[good], r[good] + self.prior.unresolved)
        return intake

    def merge(self, other: GridGP) -> None:
        """Add the data of another map of the same grid and kernel."""
        if other.grid != self.grid or other.prior.spacing != self.prior.spacing:
            raise ValueError("maps merge only if they have the same grid and kernel")
        if other.mean != self.mean:
            raise ValueError("maps merge only if they have the same mean")
        self.statistics.weights += other.statistics.weights
        self.statistics.heights += other.statistics.heights
        self.statistics.totals += other.statistics.totals

    def posterior(self) -> GridPosterior:
        """Mean, variance, gradient and gradient variance at every cell."""
        x, y = np.meshgrid(self.grid.x, self.grid.y)
        mean, variance, gradient, gradient_variance = self._evaluate(x.ravel(), y.ravel())
        shape = self.grid.shape
        return GridPosterior(
            mean.reshape(shape),
            variance.reshape(shape),
            gradient.reshape(*shape, 2),
            gradient_variance.reshape(*shape, 2),
            self.grid,
        )

    def predict(self, xy: Any, return_std: bool = False) -> Any:
        """E[f] (N,) at xy (N, 2), and the standard deviation of f with `return_std`."""
        xy = np.asarray(xy, dtype=np.float64)
        mean, variance, _, _ = self._evaluate(xy[:, 0], xy[:, 1])
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_gradient(self, xy: Any, return_std: bool = False) -> Any:
        """E[grad f] (N, 2) at xy (N, 2), and its standard deviations with `return_std`."""
        xy = np.asarray(xy, dtype=np.float64)
        _, _, gradient, variance = self._evaluate(xy[:, 0], xy[:, 1])
        return (gradient, np.sqrt(variance)) if return_std else gradient

    def _evaluate(self, x: Array, y: Array) -> tuple[Array, Array, Array, Array]:
        s, model = self.statistics, self.tiles
        block_x, t_x = s.x.locate(x)
        block_y, t_y = s.y.locate(y)
        mean = np.full(x.size, self.mean)
        variance = np.full(x.size, self.prior.variance)
        gradient = np.zeros((x.size, 2))
        gradient_variance = np.tile(self.prior.gradient_variance, (x.size, 1))
        pad_y, pad_x = model.y.halo, model.x.halo
        count_y, count_x = tile_count(s.y, model.y.core), tile_count(s.x, model.x.core)
        shape = (count_y * model.y.core + 2 * pad_y, count_x * model.x.core + 2 * pad_x)
        W = np.zeros((*shape, *s.weights.shape[2:]))
        H = np.zeros((*shape, *s.heights.shape[2:]))
        W[pad_y : pad_y + s.y.count, pad_x : pad_x + s.x.count] = s.weights
        H[pad_y : pad_y + s.y.count, pad_x : pad_x + s.x.count] = s.heights
        tile = (block_y // model.y.core) * count_x + block_x // model.x.core
        inside = (block_y >= 0) & (block_y < s.y.count) & (block_x >= 0) & (block_x < s.x.count)
        for k in np.unique(tile[inside]):
            j, i = divmod(int(k), count_x)
            domain = np.s_[
                j * model.y.core : j * model.y.core + model.y.blocks,
                i * model.x.core : i * model.x.core + model.x.blocks,
            ]
            if not W[domain][:, :, 0, 0].any():
                continue
            eta, covariance = model.posterior(W[domain], H[domain])
            lost = model.prior_covariance - covariance
            at = np.flatnonzero((tile == k) & inside)
            by = block_y[at] - j * model.y.core + pad_y
            bx = block_x[at] - i * model.x.core + pad_x
            f_y, f_x = model.y.values(by, t_y[at]), model.x.values(bx, t_x[at])
            d_y = model.y.slopes(by, t_y[at], s.y.spacing)
            d_x = model.x.slopes(bx, t_x[at], s.x.spacing)
            s_y, s_x = weights(t_y[at]), weights(t_x[at])
            k_y, k_x = slopes(t_y[at], s.y.spacing), slopes(t_x[at], s.x.spacing)
            m_y, m_x = model.mode_y, model.mode_x
            for phi, carried, unresolved, out, out_variance in (
                (f_y[:, m_y] * f_x[:, m_x], (s_x, s_y), self.prior.unresolved, mean, variance),
                (
                    f_y[:, m_y] * d_x[:, m_x],
                    (k_x, s_y),
                    self.prior.unresolved_gradient[0],
                    gradient[:, 0],
                    gradient_variance[:, 0],
                ),
                (
                    d_y[:, m_y] * f_x[:, m_x],
                    (s_x, k_y),
                    self.prior.unresolved_gradient[1],
                    gradient[:, 1],
                    gradient_variance[:, 1],
                ),
            ):
                out[at] += phi @ eta
                reduction = np.einsum("nr,nr->n", phi @ lost, phi)
                out_variance[at] = self.prior.carried(*carried) - reduction + unresolved
        return mean, variance, gradient, gradient_variance

    def log_marginal_likelihood(self) -> float:
        """log p(z), from the statistics, exactly for the spline model: the prior is formed densely."""
        s = self.statistics
        n_y, n_x = s.y.count + 5, s.x.count + 5
        if n_y * n_x > 6000:
            raise ValueError("this map has too many blocks for the dense likelihood")
        from gp_core.grid.likelihood import dense_log_likelihood

        return dense_log_likelihood(self.prior, s)
