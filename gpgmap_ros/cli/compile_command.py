"""gpgmap compile"""

from __future__ import annotations

import argparse

from gpgmap_ros.cli.common import add_json, print_json

DESCRIPTION = """Compile the inner loops for this CPU, so that the first start of the node or of a command does not.

Run it once after `colcon build` or `pip install`, as the user who will run the node and on the machine that will: the
result is kept beside the installed sources where they can be written to, else in the user's cache folder, or where
NUMBA_CACHE_DIR says. It takes about half a minute, and a second where nothing is left to do."""
EXAMPLES = """examples:
  gpgmap compile
  NUMBA_CACHE_DIR=/var/cache/gpgmap gpgmap compile      then start the node with the same NUMBA_CACHE_DIR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.config import Config
    from gpgmap_ros.offline.first_start import PARTS, compile_parts
    from gpgmap_ros.progress import ProgressBar

    with ProgressBar("compiling for this CPU", len(PARTS)) as bar:
        seconds = compile_parts(Config(), lambda name: bar.advance(1, name))
    if arguments.json:
        print_json({"seconds": seconds})
