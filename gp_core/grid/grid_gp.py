"""`GridGP`: a stream of noisy heights in, the posterior of a terrain map out."""

from __future__ import annotations

import copy
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from gp_core.arrays import Array, positive
from gp_core.grid import student_t
from gp_core.grid.axes import Grid
from gp_core.grid.blocks import Blocks
from gp_core.grid.height_limits import height_limits
from gp_core.grid.hyperparameters import Fit, fit
from gp_core.grid.interpolation import DEGREE
from gp_core.grid.local_noise import LocalNoise, estimate_noise, residual_squares
from gp_core.grid.local_scale import (
    BlockResiduals,
    LocalScale,
    ScalePrior,
    block_residuals,
    estimate_scale,
    learn_scale_prior,
)
from gp_core.grid.marginal_likelihood import MarginalLikelihood
from gp_core.grid.markov.detail import Detail, DetailAt
from gp_core.grid.noise_level import estimate_noise_level
from gp_core.grid.observations import Intake, Observations, as_points, as_positions
from gp_core.grid.posterior import GridPosterior
from gp_core.grid.prior import Prior
from gp_core.grid.solvers import make_prior, make_solver
from gp_core.grid.statistics import Mask, Statistics
from gp_core.grid.surface import Surface
from gp_core.grid.tile_prior import TOLERANCE, expected_information
from gp_core.grid.tile_solver import Tiles
from gp_core.grid.tiled_statistics import Lattice
from gp_core.grid.tiles import lower_degree
from gp_core.grid.trend import FUNCTIONS, Trend, TrendBasis, TrendEstimate
from gp_core.grid.workers import Workers
from gp_core.kernels import Kernel

OnBad = Literal["drop", "raise"]

_MIN_BLOCKS_PER_LENGTH: Final = 1.7
"""Blocks per correlation length below which a lattice can't carry a kernel."""
_RENEW: Final = 1.05
"""Fading by less than this factor does not make a tile worth solving again."""
_MIN_HELD_OUT: Final = 50
"""Points with which an interval of 95 % can be judged at all."""
_NOISE_CONVERGED: Final = 0.02
"""Largest change of a logarithmic noise factor at which learning them ends."""
_LEVEL_RENEW: Final = 2.0
"""Growth of the data that makes the noise level worth estimating again."""
_LEVEL_KEPT: Final = 0.5
"""Change of its logarithm that is not worth solving the map again for."""
_MOST_LEVERAGE: Final = 0.95
"""Of a point on the map at itself: what is more is error of the variance."""
_LEAST_CARRIED: Final = 0.001
"""Of a variance, what the lattice carries at least."""
_TREND_RENEW: Final = 1.1
"""Growth of the data that makes the trend worth estimating again."""
_TREND_TILES: Final = 36
"""Tiles from which the trend of a large map is estimated."""


class _Height(NamedTuple):
    """Of heights: mean, and of the variance what the splines carry, the detail, and all with what neither has.

    own: of the detail at this very place, not its mean over the block
    pull: leverage of a point there, times its noise variance
    """

    mean: Array
    carried: Array
    detail: Array
    total: Array
    own: Array
    pull: Array


class GridGP:
    """z_n = m(x_n) + f(x_n) + noise_n, f ~ GP(0, kernel), on the cells of a grid.

    Points enter by `update` and are forgotten: the map keeps sufficient statistics. `posterior` solves what
    has changed since it was last asked.

    The same calls give the same bits on one machine, with any number of threads. Another CPU, or the same points in
    another order, rounds differently: means and gradients then agree within 0.01 posterior standard deviations and
    variances within 1 % (docs/grid_gp.md, section 8).

    grid: the cells at which the posterior is wanted
    kernel: stationary kernel on (x, y), in metres; its variance is that of the terrain about the mean
    noise_variance: of a point whose own variance is not given
    mean: m, a number if it is known; "constant" or "plane" to learn it with the map
    half_life: seconds after which a point counts half, by the stamps given to `update`; None for ever
    tolerance: error of the mean, in posterior standard deviations, that the lattice may cause
    tiles: sizes of the tiles, for those who want to trade accuracy against time; None to choose by the kernel
    variance_lag: share by which the information about a part of the map may grow, on average over its blocks, before
        its variances are solved again; means and gradients are always those of all points. Until then the variances
        of fewer points are stated. Only rough kernels take part: for them, variances are most of the work
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
        variance_lag: float = 0.0,
        on_bad: OnBad = "drop",
        threads: int | None = None,
    ) -> None:
        if on_bad not in ("drop", "raise"):
            raise ValueError(f"on_bad must be 'drop' or 'raise', got {on_bad!r}")
        if isinstance(mean, str) and mean not in FUNCTIONS:
            raise ValueError(f"mean must be a number, 'constant' or 'plane', got {mean!r}")
        self.noise_variance = positive(noise_variance, "noise_variance")
        half_life = None if half_life is None else positive(half_life, "half_life")
        self.on_bad: OnBad = on_bad
        self.mean: float | Trend = mean if isinstance(mean, str) else float(mean)
        if not isinstance(self.mean, str) and not np.isfinite(self.mean):
            raise ValueError(f"mean must be finite, got {self.mean}")
        self._tolerance = positive(tolerance, "tolerance")
        self._tiles = tiles
        if not 0.0 <= variance_lag < 1.0:
            raise ValueError(f"variance_lag must be at least 0 and less than 1, got {variance_lag}")
        self._variance_lag = float(variance_lag)
        self._workers = Workers(threads)
        self._solved: Surface | None
        self._trend: TrendEstimate
        self._observations: Observations
        self._scale: LocalScale | None
        self._scale_prior: ScalePrior | None
        self._detail: Detail | None
        information = expected_information(grid, kernel, self.noise_variance)
        self._spacing_chosen = True
        self._set_prior(make_prior(kernel, None, self._tolerance, information))
        self._start(grid, half_life)

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self._observations.grid

    @property
    def kernel(self) -> Kernel:
        """The prior's kernel."""
        return self.prior.kernel

    @property
    def prior(self) -> Prior:
        """The prior on the lattice, with the spacing chosen and what it leaves unresolved."""
        return self._solver.prior

    @property
    def lattice(self) -> Lattice:
        """What statistics of parts must be made with to be added to this map (gp_core.grid.tiled_statistics)."""
        return Lattice(self.prior.spacing, self.prior.unresolved, orders=self.prior.orders)

    @property
    def half_life(self) -> float | None:
        """Seconds after which a point counts half; None for ever."""
        return self._observations.half_life

    @property
    def count(self) -> float:
        """Points in the map; a fractional number where they fade."""
        return self._observations.count

    @property
    def mean_height(self) -> float | None:
        """Mean of the heights, each point weighted by its precision; None without points."""
        return self._observations.mean_height

    @property
    def height_range(self) -> tuple[float, float] | None:
        """Mean height of the points of the lowest and of the highest block; None without points."""
        return self._observations.height_range

    def height_limits_at(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Lowest and highest mean height of the points of the nine blocks around places whose x and y broadcast.

        -inf and inf where one of the blocks holds none (gp_core.grid.height_limits).
        """
        s = self._observations.statistics
        low, high = height_limits(s)
        column = np.clip(s.x.locate(x)[0], 0, s.x.count - 1)
        row = np.clip(s.y.locate(y)[0], 0, s.y.count - 1)
        return low[row, column], high[row, column]

    @property
    def fallbacks(self) -> int:
        """Tiles or strips so far whose fast factorisation failed and that were solved the slower, safer way."""
        return self._solved.fallbacks if self._solved else 0

    @property
    def nbytes(self) -> int:
        """Memory of statistics, tiles and layers."""
        return self._observations.statistics.nbytes + (self._solved.nbytes if self._solved else 0)

    # -- data ----------------------------------------------------------------------------------------------

    def update(self, xy: Any, z: Any, variance: Any = None, stamp: float | None = None) -> Intake:
        """Add points, in O(N); the posterior is solved when it is asked for.

        xy: (N, 2) positions
        z: (N,) heights
        variance: (N,) or a number; noise variance of each height, `noise_variance` unless given
        stamp: time of the points in seconds, for a map with a half-life
        """
        points = as_points(xy, z, self.noise_variance if variance is None else variance)
        if self.on_bad == "raise":
            self._observations.require_good(points)
        if self.count == 0.0 and isinstance(self.mean, str):
            finite = points.z[np.isfinite(points.z)]
            self._observations.statistics.reference = float(np.median(finite)) if finite.size else 0.0
        return self._observations.add(points, stamp)

    def remove(self, xy: Any, z: Any, variance: Any = None) -> Intake:
        """Remove points that were added before, given exactly as then; not in a map with a half-life.

        Refused if a block does not hold that much: then other points, or other variances, were given.
        """
        if self.half_life is not None:
            raise ValueError("points fade in a map with a half-life: they can't be taken out exactly")
        return self._observations.remove(
            as_points(xy, z, self.noise_variance if variance is None else variance)
        )

    def forget(self, xy: Any) -> None:
        """Empty the blocks, about half a length scale wide, that positions (N, 2) are in."""
        self._observations.forget(as_positions(xy))

    def limit_information(self, max_information: float) -> None:
        """Scale down the blocks whose weights sum to more than `max_information`, 1 / m^2.

        Without a limit, a sensor that looks at one place for hours makes a map that nothing can change any more.
        """
        self._observations.limit_information(max_information)

    def blocks(self) -> Blocks:
        """The statistics of all points, with the noise variances as they were given."""
        return self._observations.blocks()

    def add_blocks(self, blocks: Blocks) -> None:
        """Add the data of blocks, as far as they lie in this window; ValueError if their lattice is another."""
        self._observations.add_blocks(blocks)

    def merge(self, other: GridGP) -> None:
        """Add the data of another map with the same kernel, as far as they lie in this window."""
        if not self._has_lattice_of(other):
            raise ValueError(
                f"maps merge only if they have the same kernel: {self.kernel!r}, {other.kernel!r}"
            )
        if (other.half_life, other.mean) != (self.half_life, self.mean):
            raise ValueError("maps merge only if they have the same mean and half_life")
        self._observations.merge(other._observations)

    def twin(self) -> GridGP:
        """A map with the same data and all that was learned, to be brought up to date by `take`; with own threads."""
        out = copy.copy(self)
        out._workers = Workers(self._workers.count)
        out._start(self.grid, self.half_life)
        data = self._observations
        out._observations.noise = data.noise.copy_to(data.statistics.x, data.statistics.y)
        out._scale, out._level_count = copy.copy(self._scale), self._level_count
        out._scale_prior, out._detail = self._scale_prior, self._detail
        data.mark_unread()
        out.take(self)
        return out

    def take(self, other: GridGP) -> None:
        """Have the data of another map with the same kernel and mean, and no others; what was learned here stays.

        So one map can go on taking points while its twin is solved in another thread: only what has changed since the
        last time is copied and solved again. The map with the points must not be solved itself then.
        """
        if not self._has_lattice_of(other):
            raise ValueError(
                f"maps share data only if they have the same kernel: {self.kernel!r}, {other.kernel!r}"
            )
        if (other.half_life, other.mean) != (self.half_life, self.mean):
            raise ValueError("maps share data only if they have the same mean and half_life")
        if other.grid != self.grid:
            self._move_to(other.grid)
        self._observations.take(other._observations)

    # -- windows -------------------------------------------------------------------------------------------

    def move(self, cells_y: int, cells_x: int) -> None:
        """Shift the window by whole cells; data that stay inside are kept exactly, others are dropped."""
        self._move_to(self.grid.shift(int(cells_y), int(cells_x)))

    def like(self, grid: Grid, mean: float | None = None) -> GridGP:
        """A map without points on other cells, with the same kernel, settings and tables: they take a while to make.

        mean: another height that the relief is a deviation from; only for a map whose mean is a number
        """
        if grid.resolution != self.grid.resolution:
            raise ValueError(
                f"the tables are for cells of {self.grid.resolution} m, not {grid.resolution}: make a new map"
            )
        out = copy.copy(self)
        if mean is not None:
            if isinstance(self.mean, str):
                raise ValueError(f"this map learns its mean ({self.mean}): it can't be given")
            out.mean = float(mean)
        out._start(grid, self.half_life)
        return out

    def keep_tables(self) -> None:
        """Write the tables made so far to disk, beside the compiled loops, where later processes find them.

        Those of a rough kernel: up to 100 MB for a map of 400 x 400 cells. Nothing happens where no folder can be
        written to.
        """
        self._solver.keep_tables(self._tolerance if self._spacing_chosen else None)

    # -- results -----------------------------------------------------------------------------------------

    def posterior(self, *, prompt: bool = False) -> GridPosterior:
        """Mean, variance, gradient and gradient variance at every cell.

        prompt: as soon as possible: where a map has a `variance_lag`, variances that are larger than they would have
            to be are left for `renew`, also on ground that is new; what was lost is up to date
        """
        self._solve(prompt)
        means, variances = self._surface.mean_layers, self._surface.variance_layers
        if self._basis.count:
            mean, variances = self._trend.add_to(means, variances, self._basis.on_cells(self.grid))
        else:
            mean = means[0]
        height = mean[0]
        if self._scale is not None:
            lacking = self._surface.unresolved_layers
            across = self._across_cells(variances, lacking)
            if self._detail is not None:
                found = self._surface.detail_layers(self._observations.effective(), self._detail)
                parts = self._add_detail(height, np.maximum(variances[0] - lacking[0], 0.0), found)
                height = parts.mean
                # Slopes are those of the splines, and as far off as they were.
                across = np.stack([parts.total, *(self._detail.growth * across[1:])])
            variances = across * self.scale_layer
        return GridPosterior(
            mean=height + self._observations.statistics.reference,
            variance=variances[0] + self._unfollowed_layer,
            gradient=np.stack([mean[1], mean[2]], axis=-1),
            gradient_variance=np.stack([variances[1], variances[2]], axis=-1),
            grid=self.grid,
        )

    def renew(self) -> bool:
        """Solve the variances that prompt posteriors have left; whether there were any. Means stay as they are."""
        data = self._observations
        return self._surface.renew(data.statistics, 1.0 / data.gain)

    def posterior_by(self, other: GridGP) -> GridPosterior:
        """The posterior of these data with the tiles of another map, which may be smaller and less exact ones.

        other: with the same kernel on the same lattice; its data do not count
        """
        if not self._has_lattice_of(other):
            raise ValueError(
                f"the other map has another kernel or lattice: {self.kernel!r}, {other.kernel!r}"
            )
        view = copy.copy(self)
        view._observations = copy.copy(self._observations)  # of the same statistics
        view._solver, view._tiles = other._solver, other._tiles
        view._reset()
        return view.posterior()

    def predict(self, xy: Any, return_std: bool = False) -> Any:
        """E[f] (N,) at any points xy (N, 2); with `return_std` also the standard deviation of f."""
        mean, variance = self._predict(xy)
        parts = self._height_parts(as_positions(xy), mean[0], variance[0])
        height = parts.mean + self._observations.statistics.reference
        return (height, np.sqrt(self._scaled_variance(xy, parts.total))) if return_std else height

    def predict_gradient(self, xy: Any, return_std: bool = False) -> Any:
        """E[df/dx, df/dy] (N, 2) at any points xy (N, 2); with `return_std` also their deviations (N, 2)."""
        mean, variance = self._predict(xy)
        gradient = np.ascontiguousarray(mean[1:].T)
        if not return_std:
            return gradient
        if self._scale is not None:
            lacking = self._unresolved_at(as_positions(xy))
            growth = 1.0 if self._detail is None else self._detail.growth
            variance = self._across_cells(variance, lacking) * (growth * self._scale_at(xy))
        return gradient, np.sqrt(variance[1:].T)

    def block_means(self, blocks: Blocks, degree: int = DEGREE) -> Array:
        """(K, degree + 1, degree + 1) the mean on each of these blocks, sum over a, b of out[a, b] t^a s^b.

        Without `blocks.reference`; s and t run from -1 to 1 over the block along x and y. Below degree 5, the nearest
        polynomial in L2.
        """
        self._solve()
        s = self._observations.statistics
        means: Array = self._block_means()[blocks.index[:, 0] - s.y.first, blocks.index[:, 1] - s.x.first]
        means[:, 0, 0] += s.reference - blocks.reference
        missing = DEGREE + 1 - means.shape[-1]  # quadratic splines
        means = np.pad(means, ((0, 0), (0, missing), (0, missing)))
        if degree == DEGREE:
            return means
        lower = lower_degree(np.eye(DEGREE + 1), degree)
        return np.asarray(lower @ means @ lower.T)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, ny, nx) draws of the whole surface from the posterior."""
        self._solve()
        s = self._observations.effective()
        if self._basis.count:
            s = s.copy_to(s.x, s.y)
            for b, moments in zip(self._trend.beta, self._basis.moments(s), strict=True):
                s.heights -= b * moments
        out = self._solver.samples(n, s, self.grid, self._workers, rng)
        if self._basis.count:
            h = self._basis.on_cells(self.grid)[:, 0]
            undetermined = h - self._surface.mean_layers[1:, 0]
            weight = rng.multivariate_normal(np.zeros(len(h)), self._trend.covariance, size=n)
            out += np.einsum("nk,kyx->nyx", weight, undetermined)
            out += np.tensordot(self._trend.beta, h, 1)
        return out + self._observations.statistics.reference

    # -- noise of the points -----------------------------------------------------------------------------

    def noise_at(self, xy: Any) -> tuple[Array, Array]:
        """Noise variance of a point measured at xy (N, 2), and the degrees of freedom (N,) of that knowledge.

        `noise_variance` and infinity unless `learn_noise` was called.
        """
        xy = as_positions(xy)
        factor, degrees = self._observations.noise.at(xy[:, 0], xy[:, 1])
        return self.noise_variance * factor, degrees

    def predict_interval(self, xy: Any, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper bound (N,), (N,) of the height that a point measured at xy (N, 2) will have.

        level: probability of the interval
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1, got {level}")
        mean, scale, degrees = self._predict_points(xy)
        reach = scale * student_t.reach(
            student_t.nominal_level(self._observations.noise.levels, level), degrees
        )
        return mean - reach, mean + reach

    def log_density(self, xy: Any, z: Any) -> Array:
        """(N,) log of the density, under the map, of measuring the height z (N,) at xy (N, 2)."""
        mean, scale, degrees = self._predict_points(xy)
        score = (np.asarray(z, dtype=np.float64) - mean) / scale
        return student_t.log_density(score, degrees) - np.log(scale)

    @property
    def has_learned_noise(self) -> bool:
        """Whether `learn_noise` or `learn_scale` was called."""
        return self._scale is not None or not np.isinf(self._observations.noise.shape)

    @property
    def noise_level(self) -> float:
        """Factor on all noise variances as they were given, with which the surface is solved; 1 unless learned."""
        return self._observations.noise.scale

    def stated_noise_around(self, reach: float) -> Array:
        """(ny, nx) largest noise variance, as given, of the points within about `reach` metres of a cell; 0 of none."""
        s, grid = self._observations.statistics, self.grid
        most = self._observations.largest_stated_noise(reach)
        row, column = (np.clip(a.locate(at)[0], 0, a.count - 1) for a, at in ((s.y, grid.y), (s.x, grid.x)))
        return np.asarray(most[np.ix_(row, column)])

    @property
    def raw_variance_layer(self) -> Array:
        """(ny, nx) variance of the height under the prior as it is, without the factors of `learn_scale`."""
        self._solve()
        return np.asarray(self._surface.variance_layers[0])

    @property
    def _unfollowed_layer(self) -> Array | float:
        """(ny, nx) variance of the relief at edges and faces that the surface can't follow; 0 before `learn_scale`."""
        return 0.0 if self._scale is None else self._scale.unfollowed_on_grid(self.grid.x, self.grid.y)

    def set_noise_level(self, level: float, scale_prior: ScalePrior | None = None) -> None:
        """Weight all points by a noise level that is known, as from the whole of which this map is a part.

        scale_prior: for `learn_scale`, from the same whole; that of this map unless given
        """
        data = self._observations
        self._scale_prior = scale_prior
        self._detail = None if scale_prior is None else scale_prior.detail
        data.set_noise(LocalNoise(data.statistics.x, data.statistics.y, scale=positive(level, "level")))
        self._level_count = np.inf

    def estimate_noise_level(self) -> float | None:
        """The noise level that the statistics show (gp_core.grid.noise_level); None where there are too few."""
        found = estimate_noise_level(self._observations.effective(), self.kernel, self.prior.unresolved)
        return None if found is None else self.noise_level * found

    @property
    def scale_layer(self) -> Array:
        """(ny, nx) factor on the variances of height and slope that `learn_scale` found; 1 before."""
        if self._scale is None:
            return np.ones(self.grid.shape)
        return np.asarray(self._scale.on_grid(self.grid.x, self.grid.y))

    def measured_noise_at(self, xy: Any) -> tuple[Array, Array]:
        """As `noise_at`, for points that came with variances of their own: of a point like those around xy (N, 2)."""
        xy = as_positions(xy)
        x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
        noise, degrees = self._observations.measured_noise(x, y)
        if self._scale is None:
            return noise, degrees
        return noise * self._scale.at(x, y), self._scale.degrees_at(x, y)

    def measured_interval(self, xy: Any, level: float = 0.95) -> tuple[Array, Array]:
        """As `predict_interval`, for points that came with variances of their own."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be a probability between 0 and 1, got {level}")
        mean, scale, degrees = self.measured_heights(xy)
        levels = self._observations.noise.levels if self._scale is None else self._scale.levels
        reach = scale * student_t.reach(student_t.nominal_level(levels, level), degrees)
        return mean - reach, mean + reach

    def measured_heights(self, xy: Any) -> tuple[Array, Array, Array]:
        """Mean, scale and degrees of freedom (N,) of the Student t distribution of the height of such a point."""
        noise, degrees = self.measured_noise_at(xy)
        mean, variance = self._predict(xy)
        parts = self._height_parts(as_positions(xy), mean[0], variance[0])
        height = parts.mean + self._observations.statistics.reference
        if self._scale is None:
            return height, np.sqrt(parts.total + noise), degrees
        known = (parts.carried + parts.detail) * self._scale_at(xy)
        return height, self._scale.width * np.sqrt(known + noise), degrees

    def learn_scale(self, *, detail: bool = False) -> LocalScale:
        """Learn how large noise is against relief, and by place how far all variances are from what the points show.

        The first is one factor on all noise variances (gp_core.grid.noise_level), estimated again when the data have
        doubled. The second leaves the surface as it is (gp_core.grid.local_scale). Only statistics are needed; call
        it again when the map has grown. Variances of height and slope, `measured_noise_at` and what follows from it
        use the result. Not together with `learn_noise`.

        detail: also estimate relief below the lattice (gp_core.grid.markov.detail), which changes heights and their
            variances where points show it; a map with a `scale_prior` has that of its whole instead
        """
        if self.count == 0.0:
            raise ValueError("there are no data to learn the noise from: update the map first")
        if self.count > _LEVEL_RENEW * self._level_count:
            self._learn_level()
        residuals = self.block_residuals(detail=detail)
        prior = self._scale_prior or learn_scale_prior([residuals], 1.0 / self.noise_level)
        found = estimate_scale(residuals, prior)
        if self._scale is not None:
            found.keep_shape(self._scale)
        self._scale = found
        return found

    def block_residuals(
        self, bounds: tuple[float, float, float, float] | None = None, *, detail: bool = False
    ) -> BlockResiduals:
        """What the scale is learned from; of several parts of a map by `learn_scale_prior`.

        bounds: (x_min, y_min, x_max, y_max) of the blocks that speak for their surroundings; all unless given
        detail: see `learn_scale`
        """
        self._solve()
        s, inside = self._observations.effective(), None
        if bounds is not None:
            x, y = s.x.middles, s.y.middles
            inside = np.logical_and.outer(
                (y >= bounds[1]) & (y < bounds[3]), (x >= bounds[0]) & (x < bounds[2])
            )
        means = self._block_means()
        squares, leverage = residual_squares(s, means), s.weights[..., 0, 0] * self._known_variances(s)
        splines = block_residuals(s, squares, leverage, inside)
        if self._scale_prior is None:
            self._detail = self._surface.estimate_detail(s, squares) if detail else None
        if self._detail is None:
            return splines
        below, of_detail, pull = self._surface.detail_blocks(s, self._detail)
        left = residual_squares(s, means + below)
        return block_residuals(s, left, pull * leverage + of_detail, inside, self._detail, splines)

    def calibrate_by_own(self, xy: Any, z: Any, variance: Any) -> None:
        """Learn the distribution of points about the map from some that are in it, each predicted without itself.

        xy, z, variance: as they were given to `update`; a few thousand of them, spread evenly. After `learn_scale`
        """
        if self._scale is None:
            raise ValueError("the scale is not known yet: call learn_scale first")
        points = as_points(xy, z, variance)
        mean, total = self._predict(points.xy)
        x, y = np.ascontiguousarray(points.xy[:, 0]), np.ascontiguousarray(points.xy[:, 1])
        noise = self.noise_level * (points.variance + self._observations.unresolved)
        parts = self._height_parts(points.xy, mean[0], total[0])
        growth = 1.0 if self._detail is None else self._detail.growth
        leverage = np.clip(parts.pull / noise, 0.0, _MOST_LEVERAGE)
        error = points.z - self._observations.statistics.reference - parts.mean
        # Without itself a point is predicted with error / (1 - h) and variance v / (1 - h).
        left = 1.0 - leverage
        known = np.minimum(parts.carried + parts.own, growth * _MOST_LEVERAGE * noise)
        self._scale.calibrate(error / left / np.sqrt((noise + known / left) * self._scale.at(x, y)))

    def learn_noise(self, *, max_rounds: int = 8, keep_within: float = 0.0) -> LocalNoise:
        """Estimate a noise factor for every block, and weight the points by it, old ones and new.

        Only statistics are needed. Call it again when the map has grown; `predict_interval` and `log_density` use
        the result.

        keep_within: factors whose logarithm would change by less stay, so that their blocks are not solved again
        """
        data = self._observations
        if self.count == 0.0:
            raise ValueError("there are no data to learn the noise from: update the map first")
        for _ in range(max_rounds):
            self._solve()
            s = data.effective()
            squares = residual_squares(s, self._block_means())
            squares += s.weights[..., 0, 0] * self._surface.block_variances()
            found = estimate_noise(data.noise, s, squares, keep_within)
            change = data.set_noise(found)
            if np.abs(np.log(change)).max() < _NOISE_CONVERGED:
                break
        return found

    def calibrate(self, xy: Any, z: Any) -> None:
        """Measure with points that are not in the map, xy (N, 2) and z (N,), how many each interval holds.

        A few hundred points spread over it will do. `predict_interval` then gives intervals that hold the stated
        share of such points; `learn_noise` starts over.
        """
        z = np.asarray(z, dtype=np.float64)
        if z.size < _MIN_HELD_OUT or not np.isfinite(z).all():
            raise ValueError(f"calibrate needs at least {_MIN_HELD_OUT} finite heights, got {z.size}")
        mean, scale, degrees = self._predict_points(xy)
        if z.shape != mean.shape:
            raise ValueError(f"z must have shape {mean.shape} to match xy, got {z.shape}")
        self._observations.noise.levels = np.sort(student_t.inside((z - mean) / scale, degrees))

    # -- likelihood --------------------------------------------------------------------------------------

    def log_marginal_likelihood(self) -> float:
        """log p(z | kernel, noise), with a trend at its best estimate."""
        return self._likelihood(gradient=False).value

    def log_marginal_likelihood_gradient(self) -> tuple[float, Array]:
        """log p(z | kernel, noise), and its derivative (P + 1,) by the kernel's theta and the log noise variance."""
        result = self._likelihood(gradient=True)
        return result.value, np.append(result.theta_gradient, result.noise_gradient)

    def fit_hyperparameters(
        self, *, fit_noise: bool = True, max_tiles: int = 24, max_iterations: int = 60
    ) -> Fit:
        """Maximise the likelihood over the kernel's theta and the noise variance, from the statistics.

        The lattice stays: the search does not go to length scales shorter than it carries. A large map is
        learned from `max_tiles` tiles with data, spread over it and taken as independent.

        fit_noise: also learn a factor on all noise variances, those given by point included
        """
        s, prior = self._observations.effective(), self.prior
        likelihood = self._solver.candidate_likelihood(s, self._workers, self._basis, max_tiles)
        result = fit(prior, likelihood, s, fit_noise, max_iterations, _MIN_BLOCKS_PER_LENGTH)
        self.noise_variance *= result.noise_factor
        self._observations.scale_noise(result.noise_factor)
        self._spacing_chosen = False
        self._set_prior(make_prior(result.kernel, prior.spacing, self._tolerance, prior.information))
        self._observations.unresolved = self.prior.unresolved
        self._reset()
        return result

    # -- inside ------------------------------------------------------------------------------------------

    def _move_to(self, grid: Grid) -> None:
        solved, data = self._solved, self._observations
        if solved is not None:
            self._mark_changes()
        before = data.statistics
        data.move(grid)
        if self._scale is not None:
            self._scale = self._scale.copy_to(data.statistics.x, data.statistics.y)
        self._solved = None
        if solved is not None:
            self._draw_changes()
            data.mark_read()
            self._surface.inherit(solved, _left_behind(before, data.statistics), data.statistics)

    def _set_prior(self, prior: Prior) -> None:
        for axis, name in ((0, "x"), (1, "y")):
            if prior.scale[axis] < _MIN_BLOCKS_PER_LENGTH * prior.spacing[axis]:
                raise ValueError(
                    f"the length scale along {name} is too short for blocks of {prior.spacing[axis]:.3g} m: "
                    "make a new map with this kernel and feed it the points"
                )
        self._solver = make_solver(prior, self._tiles, self._variance_lag)

    def _learn_level(self) -> None:
        """Weight all points by the noise level that their statistics show, if it is another than the present one."""
        data = self._observations
        self._level_count = self.count
        found = self.estimate_noise_level()
        if found is not None and abs(np.log(found / self.noise_level)) > _LEVEL_KEPT:
            data.set_noise(LocalNoise(data.statistics.x, data.statistics.y, scale=found))

    def _known_variances(self, s: Statistics) -> Array:
        """(J, I) variance of the surface in every block with points: of the cell at its middle, which is solved."""
        x, y = (
            np.clip((axis.middles - low) / self.grid.resolution, 0.0, count - 1.0).astype(np.int64)
            for axis, low, count in zip((s.x, s.y), self.grid.origin, self.grid.shape[::-1], strict=True)
        )
        return np.asarray(self._carried_layer[np.ix_(y, x)])

    def _height_parts(self, xy: Array, mean: Array, variance: Array) -> _Height:
        """Heights at points xy (N, 2), of the mean and variance (N,) that the splines give them."""
        none = np.zeros_like(variance)
        if self._scale is None:
            return _Height(mean, variance, none, variance, none, variance)
        carried = self._carried_at(xy, variance)
        if self._detail is None:
            return _Height(mean, carried, none, variance, none, carried)
        x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
        found = self._surface.detail_at(x, y, self._observations.effective(), self._detail)
        return self._add_detail(mean, carried, found)

    def _add_detail(self, mean: Array, carried: Array, found: DetailAt) -> _Height:
        """The same with the detail that was found for these places."""
        detail = self._detail
        if detail is None:
            raise ValueError("no detail was learned")
        left = detail.growth * found.left * carried
        total = left + found.variance + self._surface.detail_unresolved(detail)
        pull = found.pull * carried + found.own
        return _Height(mean + found.mean, left, found.variance, total, found.own, pull)

    @property
    def _carried_layer(self) -> Array:
        """(ny, nx) of the variance of heights at the cells, what the lattice carries; the rest is noise of points."""
        variance = self._surface.variance_layers[0]
        lacking = self._surface.unresolved_layers[0]
        return np.asarray(np.maximum(variance - lacking, _LEAST_CARRIED * variance))

    def _carried_at(self, xy: Array, variance: Array) -> Array:
        """Likewise of variances (N,) of the height at points xy (N, 2)."""
        lacking = self._unresolved_at(xy)[0]
        return np.asarray(np.maximum(variance - lacking, _LEAST_CARRIED * variance))

    def _unresolved_at(self, xy: Array) -> Array:
        """(3, N) of the variances at points xy (N, 2), what the lattice lacks in the cell there."""
        column, row = (
            np.clip((xy[:, k] - self.grid.origin[k]) / self.grid.resolution, 0.0, count - 1.0).astype(
                np.int64
            )
            for k, count in enumerate(self.grid.shape[::-1])
        )
        return np.asarray(self._surface.unresolved_layers[:, row, column])

    def _across_cells(self, variances: Array, lacking: Array) -> Array:
        """Variances (3, ...) with slopes as differences of the height across a cell.

        The slope at a point of a rough surface has mostly to do with what lies below the lattice.
        lacking: (3, ...) of the variances, what the lattice lacks
        """
        shares = np.ones((2, 3))
        shares[:, 1:] = self.prior.shares_across(self.grid.resolution)
        if (shares == 1.0).all():
            return variances
        of_carried, of_lacking = shares.reshape(2, 3, *[1] * (variances.ndim - 1))
        carried = np.maximum(variances - lacking, _LEAST_CARRIED * variances)
        return np.asarray(of_carried * carried + of_lacking * (variances - carried))

    def _scale_at(self, xy: Any) -> Array | float:
        """Factor (N,) on the variances at points xy (N, 2)."""
        if self._scale is None:
            return 1.0
        xy = as_positions(xy)
        return np.asarray(self._scale.at(np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])))

    def _scaled_variance(self, xy: Any, variance: Array) -> Array:
        """Variances (N,) of the height at points xy (N, 2), as `learn_scale` has them."""
        if self._scale is None:
            return variance
        xy = as_positions(xy)
        x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
        return np.asarray(variance * self._scale.at(x, y) + self._scale.unfollowed_at(x, y))

    def _has_lattice_of(self, other: GridGP) -> bool:
        return other.prior.spacing == self.prior.spacing and other.kernel == self.kernel

    def _start(self, grid: Grid, half_life: float | None) -> None:
        """Begin without points on the given cells."""
        self._basis = TrendBasis.over(grid, self.mean)
        # With a trend to be learned the reference follows the first data; until then there are none.
        reference = 0.0 if isinstance(self.mean, str) else self.mean
        prior = self.prior
        self._observations = Observations(
            grid, prior.spacing, prior.orders, reference, prior.unresolved, half_life, self._workers
        )
        self._scale = self._scale_prior = self._detail = None
        self._level_count = 0.0
        self._reset()

    def _reset(self) -> None:
        """Drop the solution; every block counts as changed."""
        self._solved = None
        self._trend = TrendEstimate.none(self._basis.count)
        self._observations.mark_unread()

    @property
    def _surface(self) -> Surface:
        """Made when first asked for: many a map only collects points, and moves with the robot."""
        if self._solved is None:
            self._solved = self._solver.surface(
                self.grid, self._observations.statistics, 1 + self._basis.count, self._workers
            )
        return self._solved

    def _draw_changes(self) -> None:
        data = self._observations
        s = data.statistics
        self._surface.draw(data.changed, s, [s.heights, *self._basis.moments(s)], 1.0 / data.gain)

    def _mark_changes(self) -> None:
        """Pass the changed blocks on to the surface."""
        data = self._observations
        if data.changed.any():
            self._draw_changes()
            self._surface.mark(data.changed, data.statistics)
            data.mark_read()

    def _solve(self, prompt: bool = False) -> None:
        """Bring the surface up to date with the statistics."""
        data = self._observations
        data.mark_faded(_RENEW)
        self._mark_changes()
        self._surface.solve(data.statistics, 1.0 / data.gain, prompt)
        self._estimate_trend()

    def _estimate_trend(self) -> None:
        if not self._basis.count:
            return
        data = self._observations
        information = float(data.statistics.weights[:, :, 0, 0].sum()) / data.gain
        if (
            information > 0.0
            and not 1.0 / _TREND_RENEW < self._trend.information / information < _TREND_RENEW
        ):
            found = self._likelihood(gradient=False, max_parts=_TREND_TILES)
            self._trend = TrendEstimate(found.trend, found.trend_covariance, information)

    def _likelihood(self, *, gradient: bool, max_parts: int | None = None) -> MarginalLikelihood:
        return self._solver.likelihood(
            self._observations.effective(), self._workers, self._basis, gradient=gradient, max_parts=max_parts
        )

    def _block_means(self) -> Array:
        """(J, I, 6, 6) monomial coefficients of the mean, trend included, on every block."""
        parts = self._surface.block_means()
        mean: Array = parts[0]
        if self._basis.count:
            beta = self._trend.beta
            own = self._basis.block_coefficients(beta, self._observations.statistics)
            mean = mean + own - np.tensordot(beta, parts[1:], 1)
        return mean

    def _predict(self, xy: Any) -> tuple[Array, Array]:
        """(3, N) means and variances of value, d/dx and d/dy, without the reference."""
        xy = as_positions(xy)
        self._solve()
        x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
        means, variances = self._surface.at(x, y)
        if self._basis.count:
            return self._trend.add_to(means, variances, self._basis.at(x, y))
        return means[0], variances

    def _predict_points(self, xy: Any) -> tuple[Array, Array, Array]:
        """Mean, scale and degrees of freedom of the Student t distribution of a point's height.

        The surface's own uncertainty is normal; beside the noise of a point it is small wherever there are data.
        """
        mean, std = self.predict(xy, return_std=True)
        noise, degrees = self.noise_at(xy)
        return mean, np.sqrt(std**2 + noise), degrees


def _left_behind(old: Statistics, new: Statistics) -> Mask:
    """(J, I) blocks of the old window that hold data and that the new window does not cover."""
    left: Mask = old.weights[:, :, 0, 0] > 0.0
    y = slice(max(0, new.y.first - old.y.first), max(0, new.y.first + new.y.count - old.y.first))
    x = slice(max(0, new.x.first - old.x.first), max(0, new.x.first + new.x.count - old.x.first))
    left[y, x] = False
    return left
