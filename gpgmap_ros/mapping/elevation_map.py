"""The elevation map: points in, GPGMap out. A Gaussian process on a grid does the work (gp_core.grid)."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gp_core.grid import Blocks, Grid, GridGP, GridPosterior
from gp_core.grid.local_scale import BlockResiduals, ScalePrior
from gp_core.grid.point_sample import PointSample
from gpgmap_ros.arrays import Array
from gpgmap_ros.config import Config, MappingConfig
from gpgmap_ros.mapping.cells import flat_cells
from gpgmap_ros.mapping.gpgmap import GPGMap, gpgmap_from_posterior
from gpgmap_ros.mapping.layers import NOISE_VARIANCE
from gpgmap_ros.mapping.model import (
    APPROXIMATE_TILES,
    cached_gp,
    estimates_detail,
    has_fine_blocks,
    is_rough,
    known_reach,
    known_variance,
    known_variance_at_level,
    make_gp,
    prior_std,
)
from gpgmap_ros.mapping.noise import CommonError
from gpgmap_ros.mapping.point_input import points_array

MEAN_DRIFT = 0.5
"""Standard deviations of the relief by which the ground may leave the prior mean before that is brought up to date."""

NOISE_RENEWAL = 0.15
"""Share of the points so far that must be new before the noise is learned again."""
PROMPT_NOISE = 2.0
"""Times that share, where the map is to be solved promptly: it may be learned again right after."""
COMPARED_NOISE = 1.0 / NOISE_RENEWAL
"""Times that share, where points are only compared with the map: when all are new."""
MOST_REPLACED = 10.0
"""Times that the points of the map may be replaced before it is in any case: what they say is limited."""


class ElevationMap:
    """Fuses points in a gravity-aligned frame. The points themselves are not kept.

    centre: x and y of the middle of the map; its edges are on whole cells of the frame.
    mean: height that the relief is a deviation from; that of the first points unless given
    batch: it is made of all its points at once, which some settings ask for (`mapping.detail`)
    """

    def __init__(
        self, config: MappingConfig, centre: ArrayLike, mean: float | None = None, *, batch: bool = False
    ) -> None:
        self.config = config
        self._batch = batch
        self._mean = mean
        self._grid = grid_around(np.asarray(centre, dtype=np.float64), config)
        self._gp: GridGP | None = None
        self._twin_of: GridGP | None = None
        self._posterior: GridPosterior | None = None
        self._hasty = False
        """The last posterior was a prompt or an approximate one, and what it left has not been done."""
        self._new_points = 0
        """Since the noise was last learned."""
        self._seen = 0.0
        """Points of the present window, also those that were scaled down since."""
        self.taken = 0
        """Points fused so far, wherever they are now."""
        self._sample = PointSample()
        self.common = CommonError()
        """Of the points so far."""

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def count(self) -> float:
        """Points in the present window."""
        return 0.0 if self._gp is None else self._gp.count

    @property
    def fallbacks(self) -> int:
        """Tiles of the present window that the solver had to solve the slower, safer way."""
        return 0 if self._gp is None else self._gp.fallbacks

    @property
    def sample(self) -> Array:
        """(N, 4) some of the map's points, with variances, from which it knows how points spread about it."""
        return self._sample.points

    @sample.setter
    def sample(self, points: Array) -> None:
        self._sample = PointSample()
        self._sample.add(points[:, :3], points[:, 3])

    def add(self, xyz: Array, variance: Array, common: CommonError | None = None) -> int:
        """Fuse points (N, 3) with the variances (N,) of their heights; returns how many lie on the map.

        common: what of these variances the points have in common, which their scatter does not show
        """
        if not len(xyz):
            return 0
        if self._gp is None:
            inside = flat_cells(self._grid, xyz[:, :2])[1]
            if not inside.any():
                return 0
            self._gp = self._process(float(np.median(xyz[inside, 2])) if self._mean is None else self._mean)
        used = self._gp.update(xyz[:, :2], xyz[:, 2], variance).used
        if used:
            # a robot that stands for an hour must not end up with a map that nothing can change any more
            self._gp.limit_information(1.0 / (self.config.finest_std**2 * self._gp.noise_level))
            self._new_points += used
            self._seen += used
            self.taken += used
            self._posterior = None
            if self.config.learn_noise:
                self._sample.add(xyz, variance)
                self.common = self.common.joined(common or CommonError(0.0, 0.0, used))
        return used

    def follow(self, position: Array) -> bool:
        """Move the map by whole cells so that (x, y) is in its middle again, if it is too far from it.

        What lies in both windows is kept as it is. The prior mean follows the ground: where mapping began, the
        height may have been another.
        """
        x_min, y_min, x_max, y_max = self._grid.bounds
        off = np.abs(position[:2] - [(x_min + x_max) / 2.0, (y_min + y_max) / 2.0])
        allowed = np.maximum(
            self.config.follow_share * np.array([x_max - x_min, y_max - y_min]), self.config.resolution
        )
        if (off <= allowed).all():
            return False
        grid = grid_around(position[:2], self.config)
        cells_x, cells_y = np.round((np.array(grid.origin) - self._grid.origin) / grid.resolution).astype(int)
        self._grid, self._posterior = grid, None
        if self._gp is not None:
            before = self._gp.count
            self._gp.move(int(cells_y), int(cells_x))
            self._seen *= self._gp.count / before if before else 0.0
            height = self._gp.mean_height
            if height is None:
                self._gp = None
            elif abs(height - float(self._gp.mean)) > MEAN_DRIFT * prior_std(self.config):
                self.restore(self._gp.blocks(), height)
        return True

    def forget(self, xy: Array) -> None:
        """Forget all that was seen in cells, by their centres (N, 2).

        Data are kept in blocks: those go that hold the centre of such a cell, or have their own in one.
        """
        if self._gp is not None and len(xy):
            centres = block_centres(xy, self.config.resolution, self._gp.prior.spacing)
            self._gp.forget(np.concatenate([xy, centres]))
            self._sample = PointSample()  # of points that are not on the map any more, some may be in it
            self._posterior = None

    def blocks(self) -> Blocks | None:
        """All that the map remembers; None before the first point."""
        return None if self._gp is None else self._gp.blocks()

    def estimate_noise_level(self) -> float | None:
        """Factor on the noise variances that the points show; None before there are enough of them."""
        return None if self._gp is None else self._gp.estimate_noise_level()

    def set_noise_level(self, level: float) -> None:
        """Weight the points by a noise level that is known, as from the whole of which this map is a part."""
        if self._gp is not None:
            self._gp.set_noise_level(level)
            self._posterior = None

    def block_residuals(self, bounds: tuple[float, float, float, float]) -> BlockResiduals:
        """What the scale of variances is learned from (see `GridGP.block_residuals`). ValueError without points."""
        if self._gp is None:
            raise ValueError("the map has no points yet: add some before asking for what they scatter by")
        return self._gp.block_residuals(bounds, detail=estimates_detail(self.config, batch=self._batch))

    def restore(
        self,
        blocks: Blocks | None,
        mean: float | None = None,
        noise_level: float | None = None,
        scale_prior: ScalePrior | None = None,
    ) -> None:
        """Remember `blocks`, and nothing else. ValueError where they were made with another kernel or length scale.

        mean: height that the relief is a deviation from; the blocks' own unless given
        noise_level, scale_prior: of the whole that the blocks are a part of (see `GridGP.set_noise_level`)
        """
        gp = None
        if blocks is not None:
            gp = self._process(blocks.reference if mean is None else mean)
            gp.add_blocks(blocks)
            if noise_level is not None:
                gp.set_noise_level(noise_level, scale_prior)
        self._gp, self._posterior = gp, None

    def to_solve(self, before: ElevationMap | None = None) -> ElevationMap:
        """A map with the data of this one, to be solved in another thread while this one goes on; solve only that.

        before: what this returned the last time: it is brought up to date, and only what has changed is solved again
        """
        out = before
        if out is None or out._twin_of is not self._gp:
            out = ElevationMap(self.config, (0.0, 0.0), self._mean, batch=self._batch)
            out._gp, out._twin_of = (None if self._gp is None else self._gp.twin()), self._gp
        elif out._gp is not None and self._gp is not None:
            out._gp.take(self._gp)
        out.config, out._grid, out.common = self.config, self._grid, self.common
        out._sample, out._posterior = copy.copy(self._sample), None
        out._seen, out.taken = self._seen, self.taken
        out._new_points, self._new_points = out._new_points + self._new_points, 0
        return out

    def posterior(self, *, prompt: bool = False) -> GridPosterior:
        """The surface as it is known now; solved again only if something changed.

        prompt: leave what need not be done at once to `renew` (see `GridGP.posterior`)
        """
        return self._solved(prompt, PROMPT_NOISE if prompt else 1.0)

    def _solved(self, prompt: bool, noise_growth: float) -> GridPosterior:
        """noise_growth: times `NOISE_RENEWAL` by which the points must have grown for the noise to be learned again"""
        late = self._hasty and not prompt
        if self._posterior is None or late:
            gp = self._gp
            if gp is None:
                self._posterior = self._process(0.0).posterior()
            else:
                if late:
                    gp.posterior(prompt=True)
                    gp.renew()
                if self.config.learn_noise and self._noise_is_old(gp, noise_growth):
                    self._learn_noise(gp)
                self._posterior = self._within_limits(self._with_common_error(gp.posterior(prompt=prompt)))
                self._hasty = prompt
        return self._posterior

    def renew(self) -> bool:
        """Bring up to date what a prompt posterior has left: variances, and the learned noise. Whether that was any."""
        gp = self._gp
        if gp is None:
            return False
        renewed = gp.renew()
        self._hasty = False
        if self.config.learn_noise and self._noise_is_old(gp):
            self._learn_noise(gp)
            renewed = True
        if renewed:
            self._posterior = None
        return renewed

    def _noise_is_old(self, gp: GridGP, growth: float = 1.0) -> bool:
        """Whether the scatter of points was learned from too few of them, or before too many of them were replaced."""
        enough = min(NOISE_RENEWAL * max(self._seen, gp.count), MOST_REPLACED * gp.count)
        return not gp.has_learned_noise or self._new_points > growth * enough

    def _learn_noise(self, gp: GridGP) -> None:
        """Learn how far points scatter."""
        gp.learn_scale(detail=estimates_detail(self.config, batch=self._batch))
        points = self._sample.points
        inside = flat_cells(self._grid, points[:, :2])[1]
        if not inside.all():
            self._sample.keep(inside)
            points = self._sample.points
        gp.calibrate_by_own(points[:, :2], points[:, 2], points[:, 3])
        self._new_points = 0

    def _with_common_error(self, posterior: GridPosterior) -> GridPosterior:
        """The posterior with the errors that points have in common: their scatter, which was learned, lacks them."""
        gp = self._gp
        if gp is None or not gp.has_learned_noise or self.common.share == 0.0:
            return posterior
        stated = gp.raw_variance_layer * (self.common.share / gp.noise_level)
        variance = posterior.variance + np.minimum(stated, self.common.variance)
        return dataclasses.replace(posterior, variance=variance)

    def _within_limits(self, posterior: GridPosterior) -> GridPosterior:
        """The posterior without overshoot beside steps: no higher or lower than the points around, where there are."""
        gp = self._gp
        if gp is None or not has_fine_blocks(self.config):
            return posterior
        low, high = gp.height_limits_at(self._grid.x, self._grid.y[:, None])
        return dataclasses.replace(posterior, mean=np.clip(posterior.mean, low, high))

    def _shift_at(self, gp: GridGP, xy: ArrayLike) -> Array | float:
        """(N,) by which these limits move the height at xy (N, 2)."""
        if not has_fine_blocks(self.config):
            return 0.0
        places = np.asarray(xy, dtype=np.float64)
        mean = gp.predict(places)
        shift: Array = np.clip(mean, *gp.height_limits_at(places[:, 0], places[:, 1])) - mean
        return shift

    def approximate_posterior(self) -> GridPosterior:
        """The surface about as it is known now, for less work: to compare points with it.

        Smooth kernels have a cheaper posterior. Of rough ones only the noise is learned less often: a prompt posterior
        may leave ground that was seen since the last one unknown, and nothing would be compared with it.
        """
        if self._posterior is not None:
            return self._posterior
        if self._gp is None or is_rough(self.config):
            self._hasty = False
            posterior = self._solved(prompt=False, noise_growth=COMPARED_NOISE)
            self._hasty = True  # variances may lag, here and in the next one
            return posterior
        return self._with_common_error(self._gp.posterior_by(cached_gp(self.config, APPROXIMATE_TILES)))

    def unknown(self, posterior: GridPosterior) -> NDArray[np.bool_]:
        """Mask of the cells of which the data say too little.

        So do they of heights far beyond all of theirs: a smooth kernel on ground that is rougher than the noise stated
        for its points swings there, and does not know it.
        """
        gp = self._gp
        unknown: NDArray[np.bool_]
        if gp is not None and gp.has_learned_noise and posterior is self._posterior:
            unknown = gp.raw_variance_layer > self._known_limit(gp)
        else:
            unknown = posterior.variance > known_variance(self.config)
        seen = None if gp is None else gp.height_range
        if seen is not None:
            reach = prior_std(self.config)
            unknown |= (posterior.mean < seen[0] - reach) | (posterior.mean > seen[1] + reach)
        return unknown

    def _known_limit(self, gp: GridGP) -> Array | float:
        """(ny, nx) variance under the learned noise level up to which a cell is known."""
        reach = known_reach(self.config)
        if gp.noise_level <= 1.0 or not np.isfinite(reach):
            return known_variance(self.config)
        return known_variance_at_level(self.config, gp.noise_level, gp.stated_noise_around(reach))

    def gpgmap(
        self, frame_id: str = "map", stamp: int = 0, config: Config | None = None, *, prompt: bool = False
    ) -> GPGMap:
        """The terrain as it is known now. config: limits for the layers that need some; prompt: as in `posterior`"""
        posterior = self.posterior(prompt=prompt)
        unknown = self.unknown(posterior)
        if self._gp is not None and self._gp.has_learned_noise:
            # How smooth the ground is where it was seen says nothing of ground that was not: the prior holds there.
            prior = np.where(unknown, self._gp.raw_variance_layer, 0.0)
            posterior = dataclasses.replace(posterior, variance=np.maximum(posterior.variance, prior))
        return gpgmap_from_posterior(
            posterior, unknown, frame_id, stamp, config or Config(), self._noise_layers()
        )

    def measured_interval(self, xy: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper bound (N,), (N,) of the height that a point measured at xy (N, 2) will have.

        level: probability of the interval. Learned where `mapping.learn_noise` is on, else normal with the stated
        noise of the points around. ValueError before the first point.
        """
        gp = self._with_points()
        shift = self._shift_at(gp, xy)
        low, high = gp.measured_interval(xy, level)
        return low + shift, high + shift

    def measured_heights(self, xy: ArrayLike) -> tuple[Array, Array, Array]:
        """Mean, scale and degrees of freedom (N,) of the Student t distribution of such a height."""
        gp = self._with_points()
        mean, scale, degrees = gp.measured_heights(xy)
        return mean + self._shift_at(gp, xy), scale, degrees

    def _with_points(self) -> GridGP:
        """The process, up to date. ValueError before the first point."""
        if self._gp is None:
            raise ValueError("the map has no points yet: add some before asking for what they scatter by")
        self.posterior()
        return self._gp

    def _noise_layers(self) -> dict[str, Array]:
        """The layer of the learned noise, if the map has one."""
        if not self.config.learn_noise:
            return {}
        if self._gp is None:
            return {NOISE_VARIANCE: np.full(self._grid.shape, np.nan)}
        noise, _ = self._gp.measured_noise_at(self._grid.centers.reshape(-1, 2))
        return {NOISE_VARIANCE: noise.reshape(self._grid.shape)}

    def _process(self, height: float) -> GridGP:
        """The relief is a deviation from a height: that of the ground where mapping began, or around the robot."""
        return make_gp(self._grid, height, self.config)


def block_centres(xy: Array, resolution: float, spacing: tuple[float, float]) -> Array:
    """(M, 2) centres of the blocks of a lattice with this spacing that lie in cells with centres (N, 2)."""
    places, inside = [], []
    for at, h in zip(xy.T, spacing, strict=True):
        first = np.ceil((at - 0.5 * resolution) / h - 0.5)
        centre = (first[:, None] + 0.5 + np.arange(int(np.ceil(resolution / h)))) * h
        places.append(centre)
        inside.append(centre < at[:, None] + 0.5 * resolution)
    both = inside[0][:, :, None] & inside[1][:, None, :]
    cell, column, row = np.nonzero(both)
    return np.column_stack([places[0][cell, column], places[1][cell, row]])


def grid_around(centre: Array, config: MappingConfig) -> Grid:
    columns, rows = (max(round(size / config.resolution), 1) for size in (config.size_x, config.size_y))
    corner = np.round(centre / config.resolution - np.array([columns, rows]) / 2.0) * config.resolution
    return Grid((float(corner[0]), float(corner[1])), (rows, columns), config.resolution)


def gpgmap_from_points(
    xyz: ArrayLike | Any, resolution: float, config: Config | None = None, frame_id: str = "map"
) -> GPGMap:
    """A GPGMap of points (N, 3) in a gravity-aligned frame, just large enough to hold them.

    xyz: array-like, or a point cloud of Open3D (open3d.geometry.PointCloud or open3d.t.geometry.PointCloud).
    resolution: edge of a cell in metres.
    config: everything else. By default the length scale of kernel rbf is at least five cells, and its relief that of
        the heights
    """
    points = points_array(xyz)
    if not len(points):
        raise ValueError("there are no points to map")
    if bad := int((~np.isfinite(points).all(axis=1)).sum()):
        raise ValueError(f"{bad} of {len(points)} points are not finite: leave them out first")
    elevation_map = map_around(points, resolution, config)
    elevation_map.add(points, np.full(len(points), (config or Config()).noise.height_std ** 2))
    return elevation_map.gpgmap(frame_id, config=config)


def map_around(points: Array, resolution: float, config: Config | None = None) -> ElevationMap:
    """An empty map that is just large enough for points (N, 3), with the settings that `gpgmap_from_points` takes."""
    given = config or Config()
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    size = np.maximum(np.ceil((high - low) / resolution) + 1.0, 1.0) * resolution
    mapping = dataclasses.replace(
        given.mapping, resolution=resolution, size_x=float(size[0]), size_y=float(size[1])
    )
    if config is None:
        mapping = dataclasses.replace(
            mapping,
            length_scale=max(mapping.length_scale, 5.0 * resolution),
            relief_std=max(mapping.relief_std, float(np.std(points[:, 2]))),
        )
    return ElevationMap(mapping, (low + high) / 2.0, batch=True)
