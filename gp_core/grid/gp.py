"""`GridGP`: a stream of noisy heights in, the posterior of a terrain map out."""

from __future__ import annotations

import copy
from typing import Any, Final

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.grid import student_t
from gp_core.grid.axes import Grid
from gp_core.grid.blocks import Blocks
from gp_core.grid.data import GridData, OnBad, positions
from gp_core.grid.hyperparameters import Fit, fit
from gp_core.grid.interpolation import DEGREE
from gp_core.grid.likelihood import Evidence
from gp_core.grid.local_noise import LocalNoise, learned_noise, residual_squares
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.grid.markov.surface import MarkovSurface
from gp_core.grid.posterior import GridPosterior
from gp_core.grid.prior import TOLERANCE, Prior, expected_information, make_prior
from gp_core.grid.solvers import Tiles, make_solver
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.surface import Surface
from gp_core.grid.tiles import lower_degree
from gp_core.grid.trend import FUNCTIONS, Trend, basis_functions, trend_coefficients, trend_moments
from gp_core.grid.workers import Workers
from gp_core.kernels import Kernel

COARSEST: Final = 1.7
"""Blocks per correlation length below which a lattice can't carry a kernel."""
_RENEW: Final = 1.05
"""Fading by less than this factor does not make a tile worth solving again."""
_FEWEST_HELD_OUT: Final = 50
"""Points with which an interval of 95 % can be judged at all."""
_NOISE_SETTLED: Final = 0.02
"""Largest change of a logarithmic noise factor at which learning them ends."""
_TREND_RENEW: Final = 1.1
"""Growth of the data that makes the trend worth estimating again."""
_TREND_TILES: Final = 36
"""Tiles from which the trend and the hyperparameters of a large map are estimated."""


class GridGP(GridData):
    """z_n = m(x_n) + f(x_n) + noise_n, f ~ GP(0, kernel), on the cells of a grid.

    Points enter by `update` and are forgotten: the map keeps sufficient statistics. `posterior` solves what
    has changed since it was last asked.

    The same calls give the same bits on one machine, with any number of threads. Another CPU, or the same points in
    another order, rounds differently: means and gradients then agree within 0.01 posterior standard deviations and
    variances within 1 % (docs/grid_gp.md, section 7).

    grid: the cells at which the posterior is wanted
    kernel: stationary kernel on (x, y), in metres; its variance is that of the terrain about the mean
    noise_variance: of a point whose own variance is not given
    mean: m, a number if it is known; "constant" or "plane" to learn it with the map
    half_life: seconds after which a point counts half, by the stamps given to `update`; None for ever
    tolerance: error of the mean, in posterior standard deviations, that the lattice may cause
    tiles: sizes of the tiles, for those who want to trade accuracy against time; None to choose by the kernel
    on_bad: "drop" counts bad points and goes on, "raise" refuses the whole batch with a ValueError
    threads: None for one per core, at most four
    """

    def __init__(
        self,
        grid: Grid,
        kernel: Kernel,
        noise_variance: float,
        mean: float | Trend = 0.0,
        *,
        half_life: float | None = None,
        tolerance: float = TOLERANCE,
        tiles: Tiles | None = None,
        on_bad: OnBad = "drop",
        threads: int | None = None,
    ) -> None:
        if on_bad not in ("drop", "raise"):
            raise ValueError(f"on_bad must be 'drop' or 'raise', got {on_bad!r}")
        if isinstance(mean, str) and mean not in FUNCTIONS:
            raise ValueError(f"mean must be a number, 'constant' or 'plane', got {mean!r}")
        self.noise_variance = positive(noise_variance, "noise_variance")
        self.half_life = None if half_life is None else positive(half_life, "half_life")
        self.on_bad: OnBad = on_bad
        self.mean: float | Trend = mean if isinstance(mean, str) else float(mean)
        if not isinstance(self.mean, str) and not np.isfinite(self.mean):
            raise ValueError(f"mean must be finite, got {self.mean}")
        self._grid = grid
        self._tolerance = positive(tolerance, "tolerance")
        self._tiles = tiles
        self._workers = Workers(threads)
        self._trend_count = FUNCTIONS[mean] if isinstance(mean, str) else 0
        self._center = _center(grid)
        self._solved: Surface | MarkovSurface | None
        self._changed: Mask
        self._beta: Array
        self._beta_covariance: Array
        self._beta_weight: float
        self._epoch: float | None = None
        self._now: float | None = None
        self._use(
            make_prior(kernel, None, self._tolerance, expected_information(grid, kernel, self.noise_variance))
        )
        x, y = self._axes(grid)
        # With a trend to be learned the reference follows the first data; until then there are none.
        self._statistics = Statistics(x, y, 0.0 if isinstance(self.mean, str) else self.mean)
        self._noise = LocalNoise(x, y)
        self._rebuild()

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def kernel(self) -> Kernel:
        """The prior's kernel."""
        return self._prior.kernel

    @property
    def prior(self) -> Prior | MarkovPrior:
        """The prior on the lattice, with the spacing chosen and what it leaves unresolved."""
        return self._prior

    @property
    def fallbacks(self) -> int:
        """Tiles or strips so far whose fast factorisation failed and that were solved the slower, safer way."""
        return self._solved.fallbacks if self._solved else 0

    @property
    def nbytes(self) -> int:
        """Memory of statistics, tiles and layers."""
        return self._statistics.nbytes + (self._solved.nbytes if self._solved else 0)

    # -- windows -------------------------------------------------------------------------------------------

    def merge(self, other: GridGP) -> None:
        """Add the data of another map with the same kernel, as far as they lie in this window."""
        if other._prior.spacing != self._prior.spacing or other.kernel != self.kernel:
            raise ValueError(
                f"maps merge only if they have the same kernel: {self.kernel!r}, {other.kernel!r}"
            )
        if (other.half_life, other.mean) != (self.half_life, self.mean):
            raise ValueError("maps merge only if they have the same mean and half_life")
        if self.half_life is not None and other._now is not None:
            self._gain_at(other._now)
        s, o = self._statistics, other._statistics
        if self.count == 0.0:
            s.reference = o.reference
        part = o.moved(s.x, s.y)
        part.scale_noise(self._noise.factor / other._noise.moved(s.x, s.y).factor)
        age = 1.0
        if self.half_life is not None and self._now is not None and other._now is not None:
            age = 2.0 ** (-(self._now - other._now) / self.half_life)
        s.add(part, age * self._gain / other._gain)
        self._changed |= part.weights[..., 0, 0] != 0.0

    def move(self, cells_y: int, cells_x: int) -> None:
        """Shift the window by whole cells; data that stay inside are kept exactly, others are dropped."""
        before = self._solved
        if before is not None:
            self._note_changes()
        self._grid = self.grid.moved(int(cells_y), int(cells_x))
        old = self._statistics
        x, y = self._axes(self._grid)
        self._statistics, self._noise = old.moved(x, y), self._noise.moved(x, y)
        trend = self._beta, self._beta_covariance, self._beta_weight
        self._rebuild()
        self._beta, self._beta_covariance, self._beta_weight = trend
        if before is not None:
            self._draw(self._changed)
            self._changed = np.zeros_like(self._changed)
            # made by the same solver
            self._surface.inherit(before, _left_behind(old, self._statistics), self._statistics)  # type: ignore[arg-type]

    def like(self, grid: Grid, mean: float | None = None) -> GridGP:
        """A map without points on other cells, with the same kernel, settings and tables: they take a while to make.

        mean: another height that the relief is a deviation from; only for a map whose mean is a number
        """
        if grid.resolution != self._grid.resolution:
            raise ValueError(
                f"the tables are for cells of {self._grid.resolution} m, not {grid.resolution}: make a new map"
            )
        out = copy.copy(self)
        out._grid = grid
        if mean is not None:
            if isinstance(self.mean, str):
                raise ValueError(f"this map learns its mean ({self.mean}): it can't be given")
            out.mean = float(mean)
        out._center = _center(grid)
        out._epoch = out._now = None
        x, y = out._axes(grid)
        out._statistics = Statistics(x, y, 0.0 if isinstance(out.mean, str) else out.mean)
        out._noise = LocalNoise(x, y)
        out._rebuild()
        return out

    # -- results -----------------------------------------------------------------------------------------

    def posterior(self) -> GridPosterior:
        """Mean, variance, gradient and gradient variance at every cell."""
        self._solve()
        means, variances = self._surface.mean_layers, self._surface.variance_layers
        if self._trend_count:
            x, y = (a.ravel() for a in np.meshgrid(self.grid.x, self.grid.y))
            h = basis_functions(self._trend_count, x, y, self._center).reshape(-1, *means.shape[1:])
            mean, variances = self._with_trend(means, variances, h)
        else:
            mean = means[0]
        return GridPosterior(
            mean=mean[0] + self._statistics.reference,
            variance=variances[0].copy(),
            gradient=np.stack([mean[1], mean[2]], axis=-1),
            gradient_variance=np.stack([variances[1], variances[2]], axis=-1),
            grid=self.grid,
        )

    def posterior_by(self, other: GridGP) -> GridPosterior:
        """The posterior of these data with the tiles of another map, which may be smaller and less exact ones.

        other: with the same kernel on the same lattice; its data do not count
        """
        if other._prior.spacing != self._prior.spacing or other.kernel != self.kernel:
            raise ValueError(
                f"the other map has another kernel or lattice: {self.kernel!r}, {other.kernel!r}"
            )
        view = copy.copy(self)  # of the same statistics
        view._prior, view._solver, view._tiles = other._prior, other._solver, other._tiles
        view._rebuild()
        return view.posterior()

    def predict(self, xy: Any, return_std: bool = False) -> Any:
        """E[f] (N,) at any points xy (N, 2); with `return_std` also the standard deviation of f."""
        mean, variance = self._predict(xy)
        height = mean[0] + self._statistics.reference
        return (height, np.sqrt(variance[0])) if return_std else height

    def predict_gradient(self, xy: Any, return_std: bool = False) -> Any:
        """E[df/dx, df/dy] (N, 2) at any points xy (N, 2); with `return_std` also their deviations (N, 2)."""
        mean, variance = self._predict(xy)
        gradient = np.ascontiguousarray(mean[1:].T)
        return (gradient, np.sqrt(variance[1:].T)) if return_std else gradient

    def noise_at(self, xy: Any) -> tuple[Array, Array]:
        """Noise variance of a point measured at xy (N, 2), and the degrees of freedom (N,) of that knowledge.

        `noise_variance` and infinity unless `learn_noise` was called.
        """
        xy = positions(xy)
        factor, degrees = self._noise.at(xy[:, 0], xy[:, 1])
        return self.noise_variance * factor, degrees

    def predict_interval(self, xy: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper bound (N,), (N,) of the height that a point measured at xy (N, 2) will have.

        level: probability of the interval
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1, got {level}")
        mean, scale, degrees = self._predict_points(xy)
        reach = scale * student_t.reach(self._noise.nominal(level), degrees)
        return mean - reach, mean + reach

    def log_density(self, xy: Any, z: Any) -> Array:
        """(N,) log of the density, under the map, of measuring the height z (N,) at xy (N, 2)."""
        mean, scale, degrees = self._predict_points(xy)
        score = (np.asarray(z, dtype=np.float64) - mean) / scale
        return student_t.log_density(score, degrees) - np.log(scale)

    def _predict_points(self, xy: Any) -> tuple[Array, Array, Array]:
        """Mean, scale and degrees of freedom of the Student t distribution of a point's height.

        The surface's own uncertainty is normal; beside the noise of a point it is small wherever there are data.
        """
        mean, std = self.predict(xy, return_std=True)
        noise, degrees = self.noise_at(xy)
        return mean, np.sqrt(std**2 + noise), degrees

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, ny, nx) draws of the whole surface from the posterior."""
        self._solve()
        s = self._effective()
        if self._trend_count:
            s = s.moved(s.x, s.y)
            for b, moments in zip(self._beta, trend_moments(self._trend_count, s, self._center), strict=True):
                s.heights -= b * moments
        out = self._solver.samples(n, s, self.grid, self._workers, rng)
        if self._trend_count:
            h = self._uncertain_trend()
            weight = rng.multivariate_normal(np.zeros(h.shape[0]), self._beta_covariance, size=n)
            out += np.einsum("nk,kyx->nyx", weight, h)
            x, y = (a.ravel() for a in np.meshgrid(self.grid.x, self.grid.y))
            trend = np.tensordot(self._beta, basis_functions(self._trend_count, x, y, self._center)[:, 0], 1)
            out += trend.reshape(self.grid.shape)
        return out + self._statistics.reference

    def log_marginal_likelihood(self) -> float:
        """log p(z | kernel, noise), with a trend at its best estimate."""
        return self._evidence(gradient=False).value

    def log_marginal_likelihood_gradient(self) -> tuple[float, Array]:
        """The same, and its derivative (P + 1,) by the kernel's theta and the log of the noise variance."""
        result = self._evidence(gradient=True)
        return result.value, np.append(result.theta_gradient, result.noise_gradient)

    def fit_hyperparameters(
        self, *, fit_noise: bool = True, max_tiles: int = 24, max_iterations: int = 60
    ) -> Fit:
        """Raise the likelihood over the kernel's theta and the noise variance, from the statistics.

        The lattice stays: length scales shorter than it carries are refused by the search. A large map is
        learned from `max_tiles` tiles with data, spread over it and taken as independent.

        fit_noise: also learn a factor on all noise variances, those given by point included
        """
        s = self._effective()
        likelihood = self._solver.candidate_evidence(
            s, self._workers, self._trend_count, self._center, max_tiles
        )
        result = fit(self._prior, likelihood, s, fit_noise, max_iterations, COARSEST)
        self.noise_variance *= result.noise_factor
        self._statistics.scale_noise(result.noise_factor)
        self._use(make_prior(result.kernel, self._prior.spacing, self._tolerance, self._prior.information))
        self._rebuild()
        return result

    def learn_noise(self, *, max_rounds: int = 8) -> LocalNoise:
        """Learn by how much the noise differs from block to block, and weigh the points by it, old ones and new.

        Only statistics are needed. Call it again when the map has grown; `predict_interval` and `log_density` know
        the result.
        """
        if self.count == 0.0:
            raise ValueError("there are no data to learn the noise from: update the map first")
        for _ in range(max_rounds):
            self._solve()
            s = self._effective()
            squares = residual_squares(s, self._block_means())
            squares += s.weights[..., 0, 0] * self._surface.block_variances()
            found = learned_noise(self._noise, s, squares)
            change = found.factor / self._noise.factor
            self._statistics.scale_noise(change)
            self._noise = found
            self._changed |= self._statistics.weights[..., 0, 0] > 0.0
            if np.abs(np.log(change)).max() < _NOISE_SETTLED:
                break
        return found

    def calibrate(self, xy: Any, z: Any) -> None:
        """Measure with points that are not in the map, xy (N, 2) and z (N,), what the intervals are worth.

        A few hundred points spread over it will do. `predict_interval` then gives intervals that hold the stated
        share of such points; `learn_noise` starts over.
        """
        z = np.asarray(z, dtype=np.float64)
        if z.size < _FEWEST_HELD_OUT or not np.isfinite(z).all():
            raise ValueError(f"calibrate needs at least {_FEWEST_HELD_OUT} finite heights, got {z.size}")
        mean, scale, degrees = self._predict_points(xy)
        if z.shape != mean.shape:
            raise ValueError(f"z must have shape {mean.shape} to match xy, got {z.shape}")
        self._noise.levels = np.sort(student_t.inside((z - mean) / scale, degrees))

    # -- inside ------------------------------------------------------------------------------------------

    def _use(self, prior: Prior | MarkovPrior) -> None:
        for axis, name in ((0, "x"), (1, "y")):
            if prior.scale[axis] < COARSEST * prior.spacing[axis]:
                raise ValueError(
                    f"the length scale along {name} is too short for blocks of {prior.spacing[axis]:.3g} m: "
                    "make a new map with this kernel and feed it the points"
                )
        self._prior = prior
        self._solver = make_solver(prior, self._tiles)

    @property
    def _surface(self) -> Surface | MarkovSurface:
        """Made when first asked for: many a map only collects points, and moves with the robot."""
        if self._solved is None:
            self._solved = self._solver.surface(
                self.grid, self._statistics, 1 + self._trend_count, self._workers
            )
        return self._solved

    def _rebuild(self) -> None:
        """Forget what was solved, for the present window and prior; every block counts as changed."""
        s = self._statistics
        self._solved = None
        self._drawn_gain = np.full(s.weights.shape[:2], self._gain)
        self._changed = s.weights[:, :, 0, 0] > 0.0
        self._beta, self._beta_covariance = np.zeros(self._trend_count), np.zeros((self._trend_count,) * 2)
        self._beta_weight = 0.0

    def _draw(self, blocks: Mask) -> None:
        s = self._statistics
        moments = [s.heights, *trend_moments(self._trend_count, s, self._center)]
        self._surface.draw(blocks, s, moments, 1.0 / self._gain)
        self._drawn_gain[blocks] = self._gain

    def _note_changes(self) -> None:
        """Let the tiles know which blocks have changed."""
        if self._changed.any():
            self._draw(self._changed)
            self._surface.mark(self._changed, self._statistics)
            self._changed = np.zeros_like(self._changed)

    def _solve(self) -> None:
        """Bring the surface up to date with the statistics."""
        s = self._statistics
        if self.half_life is not None:
            self._changed |= (s.weights[:, :, 0, 0] > 0.0) & (self._gain > _RENEW * self._drawn_gain)
        self._note_changes()
        self._surface.solve(s, 1.0 / self._gain)
        self._estimate_trend()

    def _estimate_trend(self) -> None:
        if not self._trend_count:
            return
        weight = float(self._statistics.weights[:, :, 0, 0].sum()) / self._gain
        if weight > 0.0 and not 1.0 / _TREND_RENEW < self._beta_weight / weight < _TREND_RENEW:
            found = self._evidence(gradient=False, parts=_TREND_TILES)
            self._beta, self._beta_covariance = found.trend, found.trend_covariance
            self._beta_weight = weight

    def _evidence(self, *, gradient: bool, parts: int | None = None) -> Evidence:
        return self._solver.evidence(
            self._effective(), self._workers, self._trend_count, self._center, gradient=gradient, parts=parts
        )

    def _with_trend(self, means: Array, variances: Array, h: Array) -> tuple[Array, Array]:
        """Mean and variances (3, ...) with the trend, from layers (K, 3, ...) and functions (k, 3, ...)."""
        u = h - means[1:]
        mean: Array = means[0] + np.tensordot(self._beta, u, 1)
        return mean, variances + np.einsum("ka...,kl,la...->a...", u, self._beta_covariance, u)

    def block_means(self, blocks: Blocks, degree: int = DEGREE) -> Array:
        """(K, degree + 1, degree + 1) the mean on each of these blocks, sum over a, b of out[a, b] t^a s^b.

        Without `blocks.reference`; s and t run from -1 to 1 over the block along x and y. Below degree 5, the nearest
        polynomial in L2.
        """
        self._solve()
        s = self._statistics
        means: Array = self._block_means()[blocks.index[:, 0] - s.y.first, blocks.index[:, 1] - s.x.first]
        means[:, 0, 0] += s.reference - blocks.reference
        if degree == DEGREE:
            return means
        lower = lower_degree(np.eye(DEGREE + 1), degree)
        return np.asarray(lower @ means @ lower.T)

    def _block_means(self) -> Array:
        """(J, I, 6, 6) monomial coefficients of the mean, trend included, on every block."""
        s = self._statistics
        parts = self._surface.block_means()
        mean: Array = parts[0]
        if self._trend_count:
            own = trend_coefficients(self._beta, s, self._center)
            mean = mean + own - np.tensordot(self._beta, parts[1:], 1)
        return mean

    def _uncertain_trend(self) -> Array:
        """(k, ny, nx) the part of each basis function that the data do not determine."""
        x, y = (a.ravel() for a in np.meshgrid(self.grid.x, self.grid.y))
        h = basis_functions(self._trend_count, x, y, self._center)[:, 0].reshape(-1, *self.grid.shape)
        return h - self._surface.mean_layers[1:, 0]

    def _predict(self, xy: Any) -> tuple[Array, Array]:
        xy = positions(xy)
        self._solve()
        x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
        means, variances = self._surface.at(x, y)
        if self._trend_count:
            return self._with_trend(means, variances, basis_functions(self._trend_count, x, y, self._center))
        return means[0], variances


def _center(grid: Grid) -> tuple[float, float]:
    x_min, y_min, x_max, y_max = grid.bounds
    return 0.5 * (x_min + x_max), 0.5 * (y_min + y_max)


def _left_behind(old: Statistics, new: Statistics) -> Mask:
    """(J, I) blocks of the old window that hold data and that the new window does not cover."""
    left: Mask = old.weights[:, :, 0, 0] > 0.0
    y = slice(max(0, new.y.first - old.y.first), max(0, new.y.first + new.y.count - old.y.first))
    x = slice(max(0, new.x.first - old.x.first), max(0, new.x.first + new.x.count - old.x.first))
    left[y, x] = False
    return left
