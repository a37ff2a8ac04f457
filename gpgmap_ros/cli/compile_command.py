"""gpgmap compile"""

from __future__ import annotations

import argparse

from gpgmap_ros.cli.common import add_json, print_json

DESCRIPTION = """Compile the inner loops for this CPU now, instead of at the first start of the node or of a command.

Run it once after `colcon build` or `pip install`, as the user and on the machine that will run the node. The
result is cached next to the installed sources if that folder is writable, else in the user's cache folder, or in
NUMBA_CACHE_DIR, and with it the tables of the default map (67 MB). It takes about half a minute, and a few seconds if
everything is there already."""
EXAMPLES = """examples:
  gpgmap compile
  NUMBA_CACHE_DIR=/var/cache/gpgmap gpgmap compile      then start the node with the same NUMBA_CACHE_DIR
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.apps.first_start import PARTS, compile_parts
    from gpgmap_ros.config import Config
    from gpgmap_ros.progress import ProgressBar

    with ProgressBar("compiling for this CPU", len(PARTS)) as bar:
        seconds = compile_parts(Config(), lambda name: bar.advance(1, name))
    if arguments.json:
        print_json({"seconds": seconds})
