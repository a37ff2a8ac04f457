"""Pages in a real browser, used as a reader would."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

from limits import PATIENCE

READY = (
    "for (let k = 0; k < 500 && !document.documentElement.hasAttribute('data-ready'); k++)"
    " await new Promise((done) => setTimeout(done, 20));"
)


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def told_by(
    chromium: str,
    page: str,
    script: str,
    folder: Path,
    width: int = 1280,
    dark: bool = False,
    graphics: str = "--use-angle=swiftshader",
) -> dict[str, Any]:
    """What `script` tells, run in a page that is shown `width` pixels wide, as on a phone.

    graphics: switch of the browser; WebGL by software unless given
    """
    (folder / "inner.html").write_text(with_script(page, script, "parent.document"))
    outer = folder / "outer.html"  # the window itself can't be as narrow as a phone
    outer.write_text(f'<iframe style="border: 0; width: {width}px; height: 844px" src="inner.html"></iframe>')
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    return told_at(chromium, outer, folder, scheme, graphics, "--allow-file-access-from-files")


def told_from_disk(chromium: str, page: Path, script: str, folder: Path) -> dict[str, Any]:
    """What `script` tells, run in a page opened from a disk, with nothing allowed that browsers forbid there.

    folder: for the browser's own files
    """
    copy = page.with_name("told.html")
    copy.write_text(with_script(page.read_text(), script, "document"))
    return told_at(chromium, copy, folder)


def with_script(page: str, script: str, where: str) -> str:
    """The page with a script that calls `tell`. where: document in which the answer is left"""
    # decoding runs beside the page's clock: without ticks that would jump to the end of its time meanwhile
    tell = f"""const tick = setInterval(() => {{}}, 2), tell = (seen) => {{ clearInterval(tick);
      {where}.documentElement.setAttribute("data-seen", JSON.stringify(seen)); }};"""
    begin = f"addEventListener('load', async () => {{ {READY} {script} }});"
    return page.replace("</body>", f"<script>{tell}{begin}</script></body>")


def told_at(chromium: str, page: Path, folder: Path, *switches: str) -> dict[str, Any]:
    result = subprocess.run(
        [
            chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
            f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--enable-unsafe-swiftshader",
            "--virtual-time-budget=60000", *switches, "--dump-dom", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    found = re.search(r'data-seen="([^"]*)"', result.stdout)
    assert found, result.stderr[-2000:]
    return json.loads(unescape(found[1]))
