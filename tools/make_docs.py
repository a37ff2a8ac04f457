"""Write the parts of the documentation that are made from the code and from what commands print: `make docs`.

Settings come from the code. Figures come from docs/figures.json, which the benchmarks write (benchmark/figures.py): in
a page they stand between `<!-- figure NAME.VALUE -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gpgmap_ros.config.yaml import config_table, config_yaml

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- settings: made by `make docs` -->\n", "<!-- end of settings -->\n"
FIGURES = ROOT / "docs" / "figures.json"
FIGURE = re.compile(r"(<!-- figure (\w+)\.(\w+) -->)(.*?)(<!-- end -->)")


def with_settings(text: str) -> str:
    """`text` with the table of settings between its two marks."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + config_table() + END + after


def with_figures(text: str) -> str:
    """`text` with the figures that were recorded last. KeyError for one that no program has recorded."""
    recorded = json.loads(FIGURES.read_text())
    return FIGURE.sub(lambda mark: f"{mark[1]}{recorded[mark[2]]['values'][mark[3]]}{mark[5]}", text)


def pages() -> list[Path]:
    """The pages in which figures may stand."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> None:
    page = ROOT / "docs" / "ros.md"
    page.write_text(with_settings(page.read_text()))
    (ROOT / "config" / "gpgmap.yaml").write_text(config_yaml())
    for path in pages():
        path.write_text(with_figures(path.read_text()))


if __name__ == "__main__":
    main()
