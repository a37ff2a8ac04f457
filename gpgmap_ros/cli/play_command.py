"""gpgmap play"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpgmap_ros.cli.common import UsageError, add_json, print_json, say
from gpgmap_ros.cli.replay_command import window
from gpgmap_ros.progress import ProgressBar

DESCRIPTION = """Publish a recording's clouds, odometry and transforms on their ROS 2 topics, at its own pace, with
/clock, where there is no `ros2 bag`. Reads what `gpgmap replay` reads, including ROS 1 bags and damaged
recordings."""
EXAMPLES = """examples:
  mapping_node --ros-args -p use_sim_time:=true -r points:=/velodyne_points &
  gpgmap play my_bag --rate 2
  gpgmap play old.bag --topics /velodyne_points /tf /tf_static
  gpgmap play my_bag --all --wait 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="+", type=Path, metavar="BAG", help="folder or file of a recording")
    parser.add_argument(
        "--rate", type=float, default=1.0, metavar="X", help="speed, as a multiple of real time (default: 1)"
    )
    parser.add_argument(
        "--from", dest="start", type=float, metavar="S", help="begin this many seconds into the recording"
    )
    parser.add_argument(
        "--to", dest="stop", type=float, metavar="S", help="end this many seconds into the recording"
    )
    parser.add_argument("--topics", nargs="+", metavar="NAME", help="publish only these topics")
    parser.add_argument(
        "--all", action="store_true", help="publish every topic whose message type is installed"
    )
    parser.add_argument("--no-clock", action="store_true", help="do not publish /clock")
    parser.add_argument(
        "--wait",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds to wait for a subscriber; 0 does not wait (default: 30)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    if arguments.rate <= 0.0:
        raise UsageError(f"--rate {arguments.rate}: must be positive")
    from gpgmap_ros.io.recordings import Recording

    try:
        from gpgmap_ros.nodes.recording_player import installed, play
    except ImportError as error:
        raise RuntimeError(
            f"ROS 2 is not installed ({error}): run `make setup`, or source your ROS installation"
        ) from error
    from gpgmap_ros.apps.topic_selection import CLOUD
    from gpgmap_ros.sensing.messages import POSE_TYPES, TF_TYPES

    with Recording(arguments.bags) as recording:
        types = {item.name: item.type_name for item in recording.topics.values()}
        if arguments.topics:
            unknown = [name for name in arguments.topics if name not in types]
            if unknown:
                raise UsageError(
                    f"not in the recording: {', '.join(unknown)}; it has {', '.join(sorted(types))}"
                )
            types = {name: types[name] for name in arguments.topics}
        elif not arguments.all:
            types = {name: kind for name, kind in types.items() if kind in (CLOUD, *POSE_TYPES, *TF_TYPES)}
        left_out = [name for name, kind in types.items() if not installed(kind)]
        types = {name: kind for name, kind in types.items() if name not in left_out}
        if not types:
            raise UsageError("there is nothing to play: name topics with --topics, or use --all")
        if left_out:
            say(arguments, f"  left out, types not installed: {', '.join(left_out)}")
        say(arguments, f"  playing {', '.join(sorted(types))}")
        start, stop = window(recording.start, recording.end, arguments.start, arguments.stop)
        first, last = start or recording.start or 0, stop or recording.end or 0
        with ProgressBar("playing", max((last - first) / 1e9, 1e-3)) as bar:
            sent = play(
                types,
                recording.messages(types, start, stop),
                arguments.rate,
                not arguments.no_clock,
                arguments.wait,
                lambda now, lag: bar.update(
                    (now - first) / 1e9, f"{(now - first) / 1e9:.1f} s  lag {lag:.2f} s"
                ),
            )
        if arguments.json:
            print_json({"sent": dict(sent), "left_out": left_out, "losses": recording.losses})
            return
        for text in recording.losses:
            say(arguments, f"  warning  {text}")
        say(
            arguments, f"  sent     {', '.join(f'{count} on {name}' for name, count in sorted(sent.items()))}"
        )
