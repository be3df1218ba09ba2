"""The page of a table in a browser: it is drawn, nothing in it runs, and it fits a small screen.

It needs Chromium: `apt-get install chromium` on Debian. It takes long, as each look starts one.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from fuse_stream.table.handle import Table
from tests.report.kit import hostile_table, page_of

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
TIMEOUT_S = 120
WIDTHS = (1280, 400)
DARK = "--blink-settings=preferredColorScheme=0"


def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("NO BROWSER IS INSTALLED, so no page was looked at: apt-get install chromium")
    return found


def look(page: Path, *arguments: str) -> str:
    done = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={page.parent / 'profile'}",
            *arguments,
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return done.stdout


def pixels(png: Path) -> list[bytes]:
    """Return the rows of a picture as Chromium writes it: 8 bits, RGB or RGBA, not interlaced."""
    data = png.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    parts, at = [], 8
    for _ in range(len(data)):
        if at >= len(data):
            break
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            parts.append(data[at + 8 : at + 8 + length])
        at += 12 + length
    raw = zlib.decompress(b"".join(parts))
    line = 1 + width * size
    # The first row of a picture whose top is of one colour shows that colour by any filter but one.
    assert len(raw) == line * height
    return [raw[start : start + line] for start in range(0, len(raw), line)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    table: Table = hostile_table(folder / "t")
    (folder / "page.html").write_text(page_of(table), encoding="utf-8")
    return folder / "page.html"


def test_nothing_on_a_hostile_page_runs(page: Path) -> None:
    dom = look(page, "--dump-dom")

    (title,) = re.findall(r"<title>([^<]*)</title>", dom[: dom.index("</head>")])
    assert title == "t - fuse-stream report"
    assert re.findall(r"<(?:script|img|iframe|object|link)\b", dom) == []
    assert re.findall(r"<[^>]*\son\w+=", dom) == []


def test_the_policy_of_a_page_stops_a_script_that_is_put_into_it(page: Path) -> None:
    worse = page.with_name("worse.html")
    script = "<script>document.title='owned'</script>"
    worse.write_text(page.read_text().replace("</main>", f"</main>{script}", 1))
    free = page.with_name("free.html")
    free.write_text(re.sub(r"<meta http-equiv=\"Content-Sec.*", "", worse.read_text(), count=1))

    assert "<title>owned</title>" not in look(worse, "--dump-dom")
    assert "<title>owned</title>" in look(free, "--dump-dom")  # else the test tells nothing


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_drawn_in_light_and_dark(page: Path, width: int) -> None:
    firsts = []
    for name, dark in (("light", ()), ("dark", (DARK,))):
        picture = page.with_name(f"{name}-{width}.png")
        look(page, f"--window-size={width},2000", f"--screenshot={picture}", *dark)
        rows = pixels(picture)
        assert len(set(rows)) > 300  # of 2,000: a page that is not drawn has a few
        firsts.append(rows[0][1:4])

    light, dark_pixel = (max(first) for first in firsts)
    assert light > 200
    assert dark_pixel < 60


def test_a_page_is_not_wider_than_a_small_screen(page: Path) -> None:
    framed = page.with_name("framed.html")
    # A page may not run a script, so one around it measures it.
    framed.write_text(
        f'<iframe id=f src="{page.name}" style="width:400px;height:900px;border:0"></iframe>'
        "<script>onload=()=>{const d=document.getElementById('f').contentDocument;"
        "document.title=d.documentElement.scrollWidth+' of '+d.documentElement.clientWidth}"
        "</script>"
    )
    dom = look(framed, "--allow-file-access-from-files", "--dump-dom")

    found = re.search(r"<title>(\d+) of (\d+)</title>", dom)
    assert found is not None
    assert int(found[1]) <= int(found[2]) == 400
