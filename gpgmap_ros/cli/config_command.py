"""gpgmap config"""

from __future__ import annotations

import argparse
import dataclasses

from gpgmap_ros.cli.common import add_json, add_settings, config_from, print_json

DESCRIPTION = """Print every setting with default, unit, range and meaning, as a YAML file that mapping_node and
--config take.

With --config, --sensor or --set: the resulting settings."""
EXAMPLES = """examples:
  gpgmap config > mine.yaml
  gpgmap config --sensor stereo --set mapping.resolution=0.2 > mine.yaml
  gpgmap config --table                    ranges, and which may change while mapping
  gpgmap config --json | jq '.[] | select(.name == "mapping.resolution")'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", action="store_true", help="print a Markdown table, with ranges")
    add_json(parser)
    add_settings(parser)


def run(arguments: argparse.Namespace) -> None:
    from gpgmap_ros.config import settings
    from gpgmap_ros.config.yaml import config_table, config_yaml

    config = config_from(arguments)
    if arguments.json:
        print_json([dataclasses.asdict(item) for item in settings(config)])
    elif arguments.table:
        print(config_table(), end="")
    else:
        print(config_yaml(config), end="")
