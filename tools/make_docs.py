"""Write the parts of the documentation that are made from the code: `make docs`."""

from __future__ import annotations

from pathlib import Path

from gpgmap_ros.config_file import config_table, config_yaml

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- settings: made by `make docs` -->\n", "<!-- end of settings -->\n"


def with_settings(text: str) -> str:
    """`text` with the table of settings between its two marks."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return before + START + config_table() + END + after


def main() -> None:
    page = ROOT / "docs" / "ros.md"
    page.write_text(with_settings(page.read_text()))
    (ROOT / "config" / "gpgmap.yaml").write_text(config_yaml())


if __name__ == "__main__":
    main()
