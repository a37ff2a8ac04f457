"""gpgmap localize"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from gpgmap_ros.cli.common import (
    UsageError,
    add_json,
    add_output,
    add_source,
    changes_from,
    output_folder,
    print_json,
    say,
    table,
    topic_request_from,
)
from gpgmap_ros.cli.replay_command import ending_well, window
from gpgmap_ros.progress import ProgressBar

DESCRIPTION = """Find a robot in a map that was made before, and follow it there: from no guess, with covariance.
The run stays as it is. Its settings are used.

Writes a folder: trajectory.txt (TUM, in the map's frame), poses.csv (every cloud with status and
covariance), run.json and report.html."""
EXAMPLES = """examples:
  gpgmap replay monday.mcap --out monday                 make the map
  gpgmap localize tuesday.mcap --in monday               where was the robot in it?
  gpgmap localize tuesday.mcap --in monday --from 60 --json
  gpgmap localize tuesday.mcap --in monday --set localization.probability=0.999
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bags", nargs="+", type=Path, metavar="BAG", help="folder or file of a recording")
    parser.add_argument(
        "--in", dest="run_folder", type=Path, required=True, metavar="RUN", help="run with the map"
    )
    add_output(parser, "the recording's name and _localized")
    source = add_source(parser)
    source.add_argument(
        "--from", dest="start", type=float, metavar="S", help="begin this many seconds into the recording"
    )
    source.add_argument(
        "--to", dest="stop", type=float, metavar="S", help="end this many seconds into the recording"
    )
    parser.add_argument(
        "--set", dest="changes", action="append", default=[], metavar="NAME=VALUE",
        help="one setting other than the run's; may be repeated",
    )  # fmt: skip
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    from gpgmap_ros.apps.localize import localization_config
    from gpgmap_ros.apps.sessions import Session
    from gpgmap_ros.apps.topic_selection import TopicSelectionError, configured_source, select_topics
    from gpgmap_ros.config import with_settings
    from gpgmap_ros.io.recordings import Recording
    from gpgmap_ros.io.run_folder import RunFolder

    if any(text.partition("=")[0].strip() == "localization.update" for text in arguments.changes):
        raise UsageError(
            "localization.update is for mapping_node: replay the recording, then use gpgmap merge"
        )
    changes = changes_from(arguments.changes)
    with Recording(arguments.bags) as recording, session_errors():
        session = Session.load(arguments.run_folder)
        config = localization_config(session, changes)
        try:
            choice = select_topics(
                recording, topic_request_from(arguments), config.map_frame, config.base_frame
            )
        except TopicSelectionError as error:
            raise UsageError(f"{', '.join(map(str, arguments.bags))}: {error}") from error
        limits = window(recording.start, recording.end, arguments.start, arguments.stop)
        name = arguments.bags[0].resolve().name.split(".")[0]
        folder = RunFolder(output_folder(arguments.out, f"{name}_localized", arguments.overwrite))
        source = configured_source(choice.pose_source)
        config = with_settings(
            config,
            {"pose_source": source, "map_frame": choice.map_frame, "base_frame": choice.base_frame,
             "points_topics": [choice.topic]},
        )  # fmt: skip
        say(arguments, f"  map of {len(session.ids)} submaps in frame '{session.frame}': {session.path}")
        return follow(arguments, recording, choice, config, session, folder, limits, name)


@contextlib.contextmanager
def session_errors() -> Any:
    """What is wrong with a run, as a wrong call."""
    from gpgmap_ros.apps.sessions import SessionError

    try:
        yield
    except SessionError as error:
        raise UsageError(str(error)) from error


def follow(
    arguments: argparse.Namespace, recording: Any, choice: Any, config: Any, session: Any, folder: Any,
    limits: tuple[int | None, int | None], name: str,
) -> int:  # fmt: skip
    from gpgmap_ros.apps.localize import LocalizeRun, abstract, write_localization
    from gpgmap_ros.apps.replay import Replay
    from gpgmap_ros.storage.atomic import write_json

    replay = Replay(recording, choice, config)
    localized = LocalizeRun(replay, session)
    summary: dict[str, Any] = {
        "kind": "localize", "name": name, "sources": [str(path) for path in arguments.bags],
        "map": str(session.path),
    }  # fmt: skip
    folder.begin(summary, config)
    first, last = recording.start or 0, recording.end or 0
    with ending_well(replay), ProgressBar("localising", max((last - first) / 1e9, 1e-3)) as bar:
        for step in localized.steps(*limits):
            bar.update((step.cloud.received - first) / 1e9, localized.localization.state.status)
    replay.end()
    summary = write_localization(folder, localized, summary)
    summary["status"] = "interrupted" if replay.stopped else "complete"
    write_json(folder.summary, summary)
    if arguments.json:
        print_json(summary)
    else:
        print(format_result(summary, abstract(summary), folder))
    return 0


def format_result(summary: dict[str, Any], text: str, folder: Any) -> str:
    """The result for people."""
    rows = [("result", text)]
    rows += [
        (change["status"], f"at {change['seconds']:.1f} s, {change['driven']:.1f} m: {change['reason']}")
        for change in important(summary["changes"])
    ]
    rows += [("warning", text) for text in summary["warnings"]]
    return table([*rows, ("report", str(folder.report))])


def important(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where the status became another one."""
    before = [None, *(change["status"] for change in changes)]
    return [change for old, change in zip(before, changes, strict=False) if change["status"] != old]
