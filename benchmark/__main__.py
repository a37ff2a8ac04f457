"""Run the benchmarks one after the other, each in a process of its own.

python -m benchmark             all
python -m benchmark grid_       those whose name starts so
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def scripts(prefix: str) -> list[Path]:
    """The benchmarks: scripts with a main guard. The other files here are what they share."""
    found = sorted(path for path in FOLDER.glob("*.py") if not path.name.startswith("_"))
    return [
        path
        for path in found
        if path.name.startswith(prefix) and '__name__ == "__main__"' in path.read_text()
    ]


def main() -> int:
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    selected = scripts(prefix)
    if not selected:
        names = ", ".join(path.stem for path in scripts("")) or "none"
        print(f"benchmark: no script starts with '{prefix}'; there are {names}", file=sys.stderr)
        return 2
    failed = []
    for path in selected:
        print(f"\n== {path.stem} ==", flush=True)
        start = time.monotonic()
        if subprocess.run([sys.executable, str(path)], cwd=FOLDER.parent, check=False).returncode:
            failed.append(path.stem)
        print(f"({time.monotonic() - start:.0f} s)", flush=True)
    if failed:
        print(f"benchmark: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
