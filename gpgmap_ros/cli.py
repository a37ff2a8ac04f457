"""`gpgmap`: the command line."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from gpgmap_ros import __version__

# Exit codes: 0 done, 1 the work failed, 2 the call was wrong, 130 interrupted.
EXAMPLES = """examples:
  gpgmap demo                     a rover drive over real relief, mapped live by the real node
  gpgmap config > mine.yaml       every setting with its meaning, ready for mapping_node --params-file
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpgmap",
        description="Gaussian-process gradient maps of bare ground.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpgmap {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="make a drive, map it live over ROS 2, draw the result")
    demo.add_argument(
        "--out", type=Path, default=Path("out/demo"), help="folder for the results (default: out/demo)"
    )
    demo.add_argument("--json", action="store_true", help="print the summary as JSON")
    demo.set_defaults(run=run_demo)

    config = commands.add_parser("config", help="print every setting with default, unit and meaning, as YAML")
    config.set_defaults(run=run_config)
    return parser


def run_demo(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.demo.run import report
    from gpgmap_ros.demo.run import run_demo as run

    summary = run(arguments.out)
    print(json.dumps(asdict(summary)) if arguments.json else report(summary))


def run_config(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.config import config_yaml

    print(config_yaml(), end="")


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("gpgmap: interrupted", file=sys.stderr)
        return 130
    except (RuntimeError, ValueError, OSError) as error:
        if arguments.verbose:
            raise
        print(f"gpgmap {arguments.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
