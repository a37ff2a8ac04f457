"""The commands, how one is called, and what a failure looks like.

Exit codes: 0 done, 1 the work failed, 2 the call was wrong, 130 interrupted (what was done until then is kept).
A failure is one line on standard error that says what was wrong and what to do; with -v it is the traceback.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
from dataclasses import dataclass
from typing import NoReturn

from gpgmap_ros import __version__
from gpgmap_ros.cli.common import Interrupted, UsageError, release_folders
from gpgmap_ros.cli.own_output import claim_standard_output
from gpgmap_ros.compilation import compilation_told, say_in_terminal
from gpgmap_ros.config import Config, settings
from gpgmap_ros.optional_packages import explain_missing

DONE, FAILED, WRONG_CALL, INTERRUPTED = 0, 1, 2, 130


@dataclass(frozen=True)
class Command:
    """A command: the module of that name in this package does it. help: for the list of commands."""

    name: str
    help: str

    @property
    def module(self) -> str:
        return f"gpgmap_ros.cli.{self.name}_command"


COMMANDS = (
    Command("demo", "simulate a drive, map it live over ROS 2, draw the result"),
    Command(
        "replay", "map a recording (rosbag2, MCAP, ROS 1), close loops, write a run folder with a report"
    ),
    Command("localize", "find a robot in a map that was made before, and follow it there"),
    Command("merge", "bring runs of several days or robots into one frame: one map, one report"),
    Command("play", "publish a recording on ROS 2 topics, with /clock"),
    Command("map", "map point cloud files (LAS, LAZ, PLY, PCD, XYZ, NPZ, OFF, PTS) of any size"),
    Command("tune", "learn the settings of terrain and noise from a recording or point clouds"),
    Command("register", "find the relative pose of two maps, and draw them"),
    Command("compare", "say what changed between two surveys: cut and fill with their uncertainty"),
    Command("view", "look at a map or point clouds in 3D, in a window or as a PNG"),
    Command("evaluate", "compare a run with the true trajectory"),
    Command("export", "write a run's map as GeoTIFF, mesh, grid_map bag or nav2 map"),
    Command("doctor", "diagnose the installation, a recording, or a running system"),
    Command("compile", "compile the inner loops once after installation, not at the first start"),
    Command("config", "print every setting with default, unit, range and meaning"),
    Command("completion", "print shell completion for gpgmap's commands and options"),
)

EXAMPLES = """examples:
  gpgmap demo                                  a rover drive over real relief, mapped live by the real node
  gpgmap replay my_bag                         map your own recording; open my_bag_gpgmap/report.html
  gpgmap map survey.laz --set mapping.resolution=0.5
  gpgmap config > mine.yaml                    every setting with its meaning, ready for --config

`gpgmap COMMAND --help` has examples for each command.
exit codes: 0 done, 1 failed, 2 wrong call, 130 interrupted
"""


class Parser(argparse.ArgumentParser):
    """Says what was wrong with a call in one line, as every other failure is said; argparse begins with the usage."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if unknown:
            near = difflib.get_close_matches(unknown[1], [command.name for command in COMMANDS], 1)
            message = f"there is no command '{unknown[1]}'" + (f": did you mean '{near[0]}'?" if near else "")
        elif message.startswith("unrecognized arguments: "):
            message += self._setting_meant(message.split()[2])
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(WRONG_CALL)

    def _setting_meant(self, argument: str) -> str:
        """How the setting is given that an unknown option or NAME:=VALUE names, where the command has settings."""
        takes_settings = any(
            "--set" in command._option_string_actions
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for command in action.choices.values()
        )
        name = re.split(r":?=", argument.lstrip("-"))[0].replace("-", "_")
        names = [item.name for item in settings(Config())] if takes_settings else []
        meant = [full for full in names if name in (full, full.rsplit(".", 1)[-1])]
        return f": a setting is given as --set {meant[0]}=VALUE" if meant else ""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """only: load the options of this command alone; the others are listed. None loads all."""
    parser = Parser(
        prog="gpgmap",
        description="Gaussian-process gradient maps of bare ground.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpgmap {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        if only is not None and command.name != only:
            commands.add_parser(command.name, help=command.help)
            continue
        module = importlib.import_module(command.module)
        own = commands.add_parser(
            command.name,
            help=command.help,
            description=module.DESCRIPTION,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        own.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the traceback of an error",
        )
        module.add_arguments(own)
        own.set_defaults(run=module.run)
    return parser


def end_now(code: int) -> NoReturn:
    """End this process; all that a command has begun is closed by then.

    A signal that comes while a pool starts a thread leaves that unknown to it, and the interpreter would wait for the
    thread for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(argv: list[str] | None = None) -> int:
    own_process = argv is None
    argv = sys.argv[1:] if argv is None else argv
    if not argv:  # a stranger: show what there is
        build_parser("").print_help(sys.stderr)
        return WRONG_CALL
    named = next((argument for argument in argv if not argument.startswith("-")), None)
    known = {command.name for command in COMMANDS}
    arguments = build_parser(named if named in known else "").parse_args(argv)
    who = f"gpgmap {arguments.command}"
    if own_process and getattr(arguments, "json", False):
        claim_standard_output()
    try:
        with compilation_told(say_in_terminal):
            code = arguments.run(arguments)
        sys.stdout.flush()
        return code or DONE
    except (KeyboardInterrupt, Interrupted) as error:
        print(f"{who}: interrupted{f': {error}' if str(error) else ''}", file=sys.stderr)
        if own_process:
            release_folders()
            end_now(INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has had enough, as in `gpgmap config | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except UsageError as error:
        if arguments.verbose:
            raise
        print(f"{who}: {error}", file=sys.stderr)
        return WRONG_CALL
    except (RuntimeError, ValueError, OSError, ImportError, MemoryError, LookupError) as error:
        if arguments.verbose:
            raise
        print(f"{who}: {one_line(error)}", file=sys.stderr)
        return FAILED
    except Exception as error:  # ours, or a library's: what to do about it is not known, so say what it was
        if arguments.verbose:
            raise
        kind = type(error).__name__
        print(f"{who}: {kind}: {one_line(error)} (-v shows where; please report it)", file=sys.stderr)
        return FAILED
    finally:
        release_folders()


def one_line(error: BaseException) -> str:
    """The message; what it is where a library left the message out."""
    if isinstance(error, ImportError) and (missing := explain_missing(error)):
        return missing
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return text.strip() or f"{type(error).__name__} (run it with -v for the details, and please report it)"
