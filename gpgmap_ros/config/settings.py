"""Every setting of the project: name, default, unit, range and meaning, once.

The YAML files, the ROS parameters, the command line and the documentation are made from these classes or are checked
against them. A `Config` is immutable and always valid: constructing one checks it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gpgmap_ros.config.schema import Checked, ConfigError, require_order, setting


@dataclass(frozen=True)
class MappingConfig(Checked):
    """The map: where it is, how fine it is, and what is believed about terrain before any is seen."""

    resolution: float = setting(0.1, "edge of a cell", "m", low=0.001, high=100.0)
    size_x: float = setting(20.0, "extent of the map along x", "m", low=0.01, high=1e5)
    size_y: float = setting(20.0, "extent of the map along y", "m", low=0.01, high=1e5)
    rolling: bool = setting(True, "the map follows the robot; otherwise it stays where mapping began")
    follow_share: float = setting(
        0.15,
        "a rolling map moves when the robot is farther from its middle than this share of its extent",
        low=0.0,
        high=0.5,
        dynamic=True,
    )
    kernel: str = setting(
        "matern54",
        "prior over heights: rbf is smooth; matern52, matern32 and, most, matern54 follow rocks and breaks and are "
        "less certain between the points; submaps and the global map made of them always use rbf, because the evidence "
        "for loop closures was measured on such maps",
        choices=("rbf", "matern52", "matern32", "matern54"),
    )
    length_scale: float = setting(
        0.5,
        "distance over which heights stay alike: shorter follows finer relief; of kernel rbf, and with every kernel "
        "the distance within which points of a cloud share errors",
        "m",
        low=0.001,
        high=1e4,
    )
    rough_length: float = setting(
        30.0,
        "length scale of the matern kernels: it hardly matters on dense data, and decides how holes are filled",
        "cells",
        low=3.0,
        high=1000.0,
    )
    rough_relief: float = setting(
        10.0,
        "relief of the matern kernels: standard deviation of the heights before any data; with learn_noise only the "
        "noise relative to it counts, and that is learned",
        "cells",
        low=0.01,
        high=1e5,
    )
    relief_std: float = setting(
        1.0,
        "standard deviation of the heights around their mean, before any data, of kernel rbf",
        "m",
        low=1e-4,
        high=1e4,
    )
    learn_noise: bool = setting(
        True,
        "learn how large noise is against relief, and by place (grass, gravel, rock) how far points and surface are "
        "from what the map states; makes the layer noise_variance; the stated noise is where learning starts; submaps "
        "use the stated noise",
    )
    detail: str = setting(
        "batch",
        "which maps estimate relief below the cells, block by block, which lowers errors of heights on dense, rough "
        "ground: never; batch, those made of all their points at once (gpgmap map, gpgmap_from_points); always, also "
        "those that grow with a robot, which then take a third more processor time; matern kernels with learn_noise "
        "only",
        choices=("never", "batch", "always"),
    )
    finest_std: float = setting(
        0.003,
        "no block of ground (half a length scale of rbf, about a cell of matern) is believed to be known better: "
        "beyond, new points replace old ones; "
        "less than 1/300 of relief_std makes solving slow",
        "m",
        low=1e-4,
        high=10.0,
        dynamic=True,
    )
    variance_lag: float = setting(
        0.1,
        "share by which the information about a part of the map may grow before its variances are solved again; "
        "heights and slopes always are; matern kernels only",
        low=0.0,
        high=0.9,
    )
    known_variance_ratio: float = setting(
        0.25,
        "a cell is known where its variance is below this share of the prior variance",
        low=1e-6,
        high=1.0,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("size_x", "size_y"):
            if getattr(self, name) < self.resolution:
                raise ConfigError(
                    f"{name} ({getattr(self, name)} m) is smaller than one cell: lower resolution ({self.resolution} m)"
                )


@dataclass(frozen=True)
class NoiseConfig(Checked):
    """How far a measured height may be off (mapping/noise.py has the formula and where the presets come from).

    Standard deviation of a range r: range_std + range_factor r + range_quadratic r^2.
    """

    sensor: str = setting(
        "spinning_lidar",
        "kind of sensor: the preset for the settings below that are -1",
        choices=("spinning_lidar", "solid_state_lidar", "stereo"),
        dynamic=True,
    )
    range_std: float = setting(
        -1.0, "standard deviation of a range, constant part (-1: preset)", "m", -1.0, 10.0, dynamic=True
    )
    range_factor: float = setting(
        -1.0, "what each metre of range adds to it (-1: preset)", "m/m", -1.0, 1.0, dynamic=True
    )
    range_quadratic: float = setting(
        -1.0, "what each squared metre of range adds to it (-1: preset)", "m/m^2", -1.0, 1.0, dynamic=True
    )
    angle_std: float = setting(
        -1.0,
        "standard deviation of a beam's direction, with its width (-1: preset)",
        "rad",
        -1.0,
        1.0,
        dynamic=True,
    )
    height_std: float = setting(
        0.02,
        "standard deviation that every height has besides: roughness below the cells, mounting, timing",
        "m",
        low=1e-5,
        high=100.0,
        dynamic=True,
    )
    common_std: float = setting(
        0.01,
        "part of the error that the points of one cloud have in common within a length scale: it does not average out",
        "m",
        low=0.0,
        high=100.0,
        dynamic=True,
    )
    incidence: bool = setting(
        True, "use the angle between beam and mapped surface where that is known", dynamic=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("range_std", "range_factor", "range_quadratic", "angle_std"):
            if -1.0 < getattr(self, name) < 0.0:
                raise ConfigError(
                    f"noise.{name} ({getattr(self, name)}) must not be negative; -1 takes the preset's"
                )


@dataclass(frozen=True)
class FilterConfig(Checked):
    """Which points count as ground that the sensor saw.

    "The robot" is its base frame where the sensor's mount on it is known, else the sensor's own frame.
    """

    min_range: float = setting(0.5, "nearer points are not used", "m", low=0.0, high=1e4, dynamic=True)
    max_range: float = setting(30.0, "farther points are not used", "m", low=0.01, high=1e5, dynamic=True)
    min_height: float = setting(
        -10.0, "lowest point used, relative to the robot", "m", low=-1e5, high=1e5, dynamic=True
    )
    max_height: float = setting(
        2.0, "highest point used, relative to the robot", "m", low=-1e5, high=1e5, dynamic=True
    )
    self_min_x: float = setting(
        0.0, "points in this box are the robot itself: its rear", "m", -1e3, 1e3, dynamic=True
    )
    self_max_x: float = setting(0.0, "front of the box; no volume, no box", "m", -1e3, 1e3, dynamic=True)
    self_min_y: float = setting(0.0, "right side of the box", "m", -1e3, 1e3, dynamic=True)
    self_max_y: float = setting(0.0, "left side of the box", "m", -1e3, 1e3, dynamic=True)
    self_min_z: float = setting(0.0, "bottom of the box", "m", -1e3, 1e3, dynamic=True)
    self_max_z: float = setting(0.0, "top of the box", "m", -1e3, 1e3, dynamic=True)
    voxel_size: float = setting(
        0.0,
        "of the points in a cube of this edge the first is used (0: all are)",
        "m",
        0.0,
        10.0,
        dynamic=True,
    )
    lowest_surface: bool = setting(
        False, "use the lowest surface only: under ceilings, trees and overhangs", dynamic=True
    )
    lowest_cell: float = setting(
        0.3, "edge of the cells in which it is looked for", "m", 0.01, 10.0, dynamic=True
    )
    lowest_tolerance: float = setting(
        0.2, "points up to this far above the lowest belong to the surface", "m", 0.0, 10.0, dynamic=True
    )
    lowest_support: int = setting(
        2, "points that make a surface; fewer, below it, are stray returns", "points", 1, 100, dynamic=True
    )
    lowest_slope: float = setting(
        1.0,
        "slope of the steepest ground: what rises more steeply from it is none",
        "m/m",
        0.05,
        10.0,
        dynamic=True,
    )
    lowest_clearance: float = setting(
        0.5,
        "a lowest surface this far above the ground around is none: crowns, stems, roofs",
        "m",
        0.0,
        100.0,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_order(self, "filter", ("min_range", "max_range"), ("min_height", "max_height"))
        boxes = (("self_min_x", "self_max_x"), ("self_min_y", "self_max_y"), ("self_min_z", "self_max_z"))
        require_order(self, "filter", *boxes, equal=True)


@dataclass(frozen=True)
class GateConfig(Checked):
    """Points that contradict the map are held back until they have been confirmed (mapping/gate.py)."""

    enabled: bool = setting(True, "hold back points that contradict the map", dynamic=True)
    threshold: float = setting(
        4.0, "a point contradicts beyond this many standard deviations", low=0.1, high=100.0, dynamic=True
    )
    tolerance: float = setting(
        0.25,
        "and beyond this difference in height: smaller ones are roughness, not change",
        "m",
        low=0.0,
        high=100.0,
        dynamic=True,
    )
    confirmations: int = setting(
        5, "consecutive clouds that must agree before the map is changed", "clouds", 1, 10000, dynamic=True
    )
    refresh_period: float = setting(
        1.0,
        "the surface compared with is renewed when it is this old, in time of the data, and a twentieth of the "
        "ground or half of the map's points are new; each map that goes out renews it",
        "s",
        0.0,
        3600.0,
        dynamic=True,
    )


@dataclass(frozen=True)
class ClearingConfig(Checked):
    """What rays pass through is taken out of the map (mapping/clearing.py). Compares with the points of the map."""

    enabled: bool = setting(
        False,
        "clear cells that rays pass through: what moving people, vehicles and dust left; not under bridges or trees "
        "unless filter.lowest_surface is on",
        dynamic=True,
    )
    clouds: int = setting(
        3, "clouds with rays through a cell that clear it, at least", "clouds", 1, 10000, dynamic=True
    )
    tolerance: float = setting(
        0.15,
        "a ray passes through where it is deeper below the points of a cell than this",
        "m",
        low=0.0,
        high=100.0,
        dynamic=True,
    )
    threshold: float = setting(
        4.0, "and than this many standard deviations of points and ray", low=0.1, high=100.0, dynamic=True
    )
    rays: int = setting(
        65536,
        "rays of a cloud that are followed, at most; those of a larger cloud take turns",
        "rays",
        1,
        10_000_000,
        dynamic=True,
    )


@dataclass(frozen=True)
class TraversabilityConfig(Checked):
    """What the robot can drive over."""

    max_slope: float = setting(0.35, "steepest slope, as an angle", "rad", low=0.01, high=1.5, dynamic=True)
    max_step: float = setting(0.15, "highest step", "m", low=0.001, high=100.0, dynamic=True)
    step_distance: float = setting(
        0.3, "a step is a difference in height between places this far apart", "m", 0.01, 100.0, dynamic=True
    )
    max_risk: float = setting(
        0.2,
        "risk, 1 - P(traversable), above which a cell is an obstacle: in ~/obstacles and in a map for nav2_map_server",
        low=0.0,
        high=0.99,
        dynamic=True,
    )


@dataclass(frozen=True)
class VisualConfig(Checked):
    """The 8-bit picture of the gradient: 0 is unknown or uncertain, 1 is flat, 255 is `max_gradient` and more."""

    max_gradient: float = setting(
        1.0, "gradient that is shown brightest: the same in every picture", "m/m", 0.001, 1000.0, dynamic=True
    )
    max_gradient_std: float = setting(
        0.25, "cells whose gradient is less certain are masked", "m/m", 0.0001, 1000.0, dynamic=True
    )


@dataclass(frozen=True)
class SubmapConfig(Checked):
    """Pieces of map for recognising places again; the first limit reached ends one. A limit of 0 is none."""

    enabled: bool = setting(True, "make submaps")
    size: float = setting(60.0, "extent of a submap in x and y, around where it began", "m", 0.1, 1e4)
    resolution: float = setting(
        0.3, "edge of a submap's cell: that of the map where that is larger", "m", low=0.001, high=100.0
    )
    length_scale: float = setting(
        1.0,
        "distance over which heights stay alike in a submap: that of the map where that is larger",
        "m",
        low=0.001,
        high=1e4,
    )
    max_distance: float = setting(25.0, "distance travelled in one submap", "m", 0.0, 1e5, dynamic=True)
    max_angle: float = setting(
        0.0, "turning in one submap, left and right added up", "rad", 0.0, 1e4, dynamic=True
    )
    max_area: float = setting(0.0, "ground seen in one submap", "m^2", 0.0, 1e9, dynamic=True)


@dataclass(frozen=True)
class ClosureConfig(Checked):
    """Loop closures: how submaps are compared, what it takes to believe that two show the same ground, how far
    odometry is trusted. One set serves all terrains: lengths of the comparison are in cells, heights relative to the
    relief.
    """

    group: ClassVar[str] = "closure."

    enabled: bool = setting(True, "look for loop closures between finished submaps")
    frame: str = setting("map", "frame in which corrected poses, the path and the global map stand")
    publish_tf: bool = setting(
        False, "publish `closure.frame` -> `map_frame` on /tf: only one node of a robot may do that"
    )
    reject: str = setting(
        "",
        "closure that the service reject_closure takes out: the numbers of its two submaps, as in 3-17",
        dynamic=True,
    )
    global_map_cells: int = setting(
        1_000_000,
        "cells of the global map, at most: a larger one is made of coarser cells",
        "cells",
        low=1000,
        high=100_000_000,
    )
    min_path: float = setting(
        -1.0,
        "submaps of one drive are compared if the trajectory between them is this long: nearer, odometry is better "
        "(-1: as long as both of them reach, so that a straight trajectory has left the first)",
        "m",
        low=-1.0,
        high=1e6,
        dynamic=True,
    )
    matches: int = setting(
        5,
        "most similar earlier submaps that each new one is registered with",
        "submaps",
        1,
        1000,
        dynamic=True,
    )
    drift_position: float = setting(
        0.05,
        "drift of the odometry: standard deviation of the position after one metre; grows as the root of distance",
        "m",
        low=1e-4,
        high=10.0,
        dynamic=True,
    )
    drift_rotation: float = setting(
        0.01,
        "drift of the odometry: standard deviation of the heading after one metre; grows as the root of distance",
        "rad",
        low=1e-5,
        high=1.0,
        dynamic=True,
    )
    solver: str = setting(
        "sparse",
        "what solves the pose graph: our own solver, or GTSAM where that is installed",
        choices=("sparse", "gtsam"),
    )
    use_gradient: bool = setting(
        True, "compare gradients as well as heights; off only to measure what they bring"
    )
    use_variance: bool = setting(
        True, "weight cells by the maps' variances; off only to measure what they bring"
    )
    yaw_step: float = setting(5.0, "step of the yaws that the search tries", "deg", low=0.5, high=15.0)
    search_cells: int = setting(
        36, "the search shrinks a map until it is at most this wide", "cells", low=8, high=200
    )
    detail_cells: float = setting(6.0, "detail is relief finer than this", "cells", low=2.0, high=100.0)
    candidates: int = setting(12, "poses kept from each of the two searches", low=1, high=100)
    min_overlap: float = setting(
        0.2, "least overlap, as a share of the smaller map, for a pose to be considered", low=0.02, high=1.0
    )
    min_cells: int = setting(100, "a map with fewer well observed cells is refused", low=20, high=10**6)
    tilt_std: float = setting(
        2.0, "standard deviation of the error in roll and pitch between two maps", "deg", low=0.01, high=20.0
    )
    common_error: float = setting(
        -1.0,
        "standard deviation of the position errors that a whole map shares and no residual shows, as of georeference "
        "(-1: none for maps that know the way on which they were made, up to 0.06 m for others, less in small cells)",
        "m",
        low=-1.0,
        high=10.0,
    )
    threads: int = setting(2, "threads that share one registration or query", low=1, high=64)
    accept_probability: float = setting(
        0.95, "a closure is accepted when it is at least this probable", low=0.5, high=1.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "frame", self.frame.lstrip("/"))
        if -1.0 < self.min_path < 0.0:
            raise ConfigError(
                f"closure.min_path ({self.min_path}) must not be negative; -1 takes the submaps' reach"
            )


@dataclass(frozen=True)
class DriveConfig(Checked):
    """Where one drive ends and the next begins when recordings are replayed: at a pair of successive poses that no
    motion of the robot connects. Each drive has an odometry frame of its own; only loop closures join them.
    """

    max_gap: float = setting(60.0, "a longer time between two poses ends a drive", "s", 0.01, 1e7)
    max_jump: float = setting(1.0, "distance that two poses may differ by at any time", "m", 0.001, 1e5)
    max_speed: float = setting(20.0, "what each second between them adds to it", "m/s", 0.01, 1e4)
    max_turn: float = setting(30.0, "angle that two poses may differ by at any time", "deg", 0.1, 180.0)
    max_turn_rate: float = setting(180.0, "what each second between them adds to it", "deg/s", 0.1, 1e5)


@dataclass(frozen=True)
class LidarConfig(Checked):
    """LiDAR odometry, where `pose_source` is `lidar` or `lidar_inertial`."""

    group: ClassVar[str] = "lidar."

    publish_tf: bool = setting(
        False,
        "publish `map_frame` -> `base_frame` (the sensor's frame where /tf knows no mount) from LiDAR odometry on /tf:"
        " only one node of a robot may do that",
    )


@dataclass(frozen=True)
class LocalizationConfig(Checked):
    """Localisation in a saved map: the pose in it is found without a guess, and followed."""

    group: ClassVar[str] = "localization."

    map: str = setting("", "folder of the run to localise in (empty: a new map is made)")
    update: bool = setting(
        False,
        "let the saved map grow: finished submaps and closures are added to its folder; else it is only read",
    )
    step: float = setting(
        5.0, "way after which the submap that is being made is compared with the map", "m", 0.1, 1000.0
    )
    probability: float = setting(
        0.99, "a pose is believed when it is at least this probable", low=0.5, high=0.999999
    )
    lost_after: float = setting(
        40.0,
        "way without recognising the map, where it should be, after which the pose is given up",
        "m",
        low=1.0,
        high=1e5,
    )


@dataclass(frozen=True)
class ImuConfig(Checked):
    """An IMU: the vertical of the map, turns within and between scans. Used where there is one."""

    group: ClassVar[str] = "imu."

    enabled: bool = setting(True, "use the topic `imu` (sensor_msgs/Imu)")
    max_tilt: float = setting(
        15.0,
        "clouds are refused where the IMU says that the frame of the map is tilted by more against gravity",
        "deg",
        low=1.0,
        high=180.0,
    )


@dataclass(frozen=True)
class GpsConfig(Checked):
    """GPS: where the map lies on the earth. Used where there is one; it never bends the map."""

    group: ClassVar[str] = "gps."

    enabled: bool = setting(True, "use the topic `gps/fix` (sensor_msgs/NavSatFix)")
    publish_tf: bool = setting(
        False,
        "publish `gps.frame` -> `closure.frame` on /tf once the map is georeferenced: only one node may do that",
    )
    frame: str = setting("earth", "frame of the earth (ECEF, REP-105) for that transform")


@dataclass(frozen=True)
class Config(Checked):
    """All settings. Groups are nested; the settings outside a group belong to the node."""

    pose_source: str = setting(
        "tf",
        "where the sensor's pose comes from: /tf, the topic `odometry`, lidar: clouds are registered to each other, or"
        " lidar_inertial: by rko-lio, with the topic `imu`",
        choices=("tf", "odometry", "lidar", "lidar_inertial"),
    )
    deskew: bool = setting(
        True,
        "move each point to the stamp of its cloud, where points have times and the motion is known",
        dynamic=True,
    )
    map_frame: str = setting("odom", "gravity-aligned frame in which the map stands")
    base_frame: str = setting("base_link", "frame of the robot, for its own outline; used where /tf knows it")
    points_topics: tuple[str, ...] = setting(
        ("points",), "topics of the point clouds: one, or one per sensor"
    )
    autostart: bool = setting(True, "configure and activate at start; else wait for lifecycle transitions")
    map_folder: str = setting(
        "", "folder for saved maps and finished submaps, the only one written to (empty: nothing is saved)"
    )
    submaps: tuple[str, ...] = setting(
        ("",),
        "topics `submap` of other robots' mapping nodes, as in [/robot_b/mapping_node/submap]: their submaps are"
        " compared with this robot's, and joined to its map ('': of none)",
    )
    map_name: str = setting("map", "name of the file for save_map and load_map", dynamic=True)
    transform_timeout: float = setting(
        0.5, "how long a cloud waits for its pose before it is dropped", "s", 0.0, 60.0, dynamic=True
    )
    publish_rate: float = setting(
        5.0, "maps per second, at most: only a changed map is published", "Hz", 0.01, 100.0, dynamic=True
    )
    queue_size: int = setting(
        10,
        "clouds that may wait for their pose or for the solver; beyond it the oldest is dropped",
        "clouds",
        1,
        1000,
        dynamic=True,
    )
    mapping: MappingConfig = field(default_factory=MappingConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    filter: FilterConfig = field(default_factory=FilterConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    clearing: ClearingConfig = field(default_factory=ClearingConfig)
    traversability: TraversabilityConfig = field(default_factory=TraversabilityConfig)
    visual: VisualConfig = field(default_factory=VisualConfig)
    submap: SubmapConfig = field(default_factory=SubmapConfig)
    closure: ClosureConfig = field(default_factory=ClosureConfig)
    drive: DriveConfig = field(default_factory=DriveConfig)
    lidar: LidarConfig = field(default_factory=LidarConfig)
    localization: LocalizationConfig = field(default_factory=LocalizationConfig)
    imu: ImuConfig = field(default_factory=ImuConfig)
    gps: GpsConfig = field(default_factory=GpsConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("map_frame", "base_frame"):
            object.__setattr__(self, name, getattr(self, name).lstrip("/"))
        if not self.map_frame:
            raise ConfigError("map_frame is empty: name the frame in which poses are given, as in 'odom'")
        if self.closure.publish_tf and self.closure.frame == self.map_frame:
            raise ConfigError(
                f"closure.publish_tf needs two frames, and closure.frame and map_frame are both '{self.map_frame}': "
                "let map_frame be the frame of the odometry, as in 'odom'"
            )
        self._check_localization()
        if any(self.submaps) and not (self.submap.enabled and self.closure.enabled):
            raise ConfigError(
                "submaps names other robots: their submaps are joined by loop closures, so submap.enabled and"
                " closure.enabled must be true"
            )
        if self.pose_source == "lidar_inertial" and not self.imu.enabled:
            raise ConfigError(
                "pose_source 'lidar_inertial' needs the IMU: set imu.enabled, or pose_source 'lidar'"
            )
        if self.lidar.publish_tf and self.pose_source not in ("lidar", "lidar_inertial"):
            raise ConfigError(
                f"lidar.publish_tf needs pose_source 'lidar' or 'lidar_inertial', and it is '{self.pose_source}': these"
                " poses are on the robot's topics already"
            )
        cell = max(self.submap.resolution, self.mapping.resolution)
        if self.submap.enabled and self.submap.size < cell:
            raise ConfigError(
                f"submap.size ({self.submap.size} m) is smaller than one of its cells ({cell} m): "
                "lower submap.resolution or mapping.resolution"
            )

    def _check_localization(self) -> None:
        wanted = self.localization
        if wanted.update and not wanted.map:
            raise ConfigError("localization.update needs localization.map: name the run that is to grow")
        if not wanted.map:
            return
        if self.closure.frame == self.map_frame:
            raise ConfigError(
                f"localization.map needs two frames, and closure.frame and map_frame are both '{self.map_frame}': "
                "let map_frame be the frame of the odometry, as in 'odom'"
            )
        if self.closure.publish_tf:
            raise ConfigError(
                "closure.publish_tf and localization.map both publish the map's frame: unset one"
            )
        if any(self.submaps) and not wanted.update:
            raise ConfigError(
                "submaps of other robots are joined to a map that grows: set localization.update, or unset submaps"
            )
        if wanted.update and self.map_folder:
            raise ConfigError("localization.update writes to localization.map: leave map_folder empty")
