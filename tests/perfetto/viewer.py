"""Perfetto's own viewer in a real Chromium; tests skip where either is missing."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from threading import Thread
from typing import TYPE_CHECKING, Any

from tests.perfetto.processor import need_viewer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# What this build of the viewer looks for: where the trace is, and where to draw it.
PAGE = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">
<style>html, body, #timeline_main {{ height: 100%; margin: 0 }}</style>
<div id="timeline_data_source" hidden>http://{host}/shown.pftrace</div>
<div id="timeline_main"></div><script src="frontend_bundle.js"></script>"""

IS_SHOWN = """() => document.querySelectorAll('.track').length > 0 &&
  ![...document.querySelectorAll('input')].some(
    input => input.placeholder.startsWith('Loading'))"""
TRACKS = """() => Object.values(globals.state.trackGroups).flatMap(group =>
  group.tracks.map(id => {
    const row = document.getElementById('track_' + id);
    const at = row && row.getBoundingClientRect();
    return [group.name, globals.state.tracks[id].name,
      at ? at.top : -1, at ? at.height : 0];
  }))"""
PLACES = """times => times.map(
  time => globals.frontendLocalState.timeScale.timeToPx(time))"""
PIXELS = """async ([picture, y]) => {
  const image = await createImageBitmap(
    await (await fetch('data:image/png;base64,' + picture)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  return [...canvas.getImageData(0, y, image.width, 1).data];
}"""


@contextmanager
def shown(
    browser: "Browser",
    trace: bytes,
    **options: Any,  # noqa: ANN401 (whatever a page takes)
) -> Iterator["Page"]:
    """The page of the viewer, once it has drawn `trace`."""
    handler = partial(_Handler, trace, directory=str(need_viewer()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page(**options)
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_function(IS_SHOWN, timeout=30_000)
        page.wait_for_timeout(1_000)  # it draws when the browser is idle
        yield page
        page.close()
        server.shutdown()


def rows(page: "Page") -> list[tuple[str, str, int, int]]:
    """Process, track, top and height of every track, from the top; pixels."""
    found = [
        (group.rpartition(" ")[0], name, int(top), int(height))
        for group, name, top, height in page.evaluate(TRACKS)  # "fused 2": its number
        if height
    ]
    return sorted(found, key=itemgetter(2))


def drawn(page: "Page", process: str, track: str) -> list[tuple[int, int]]:
    """The stretches of a track that have a colour, in pixels, but for hairlines.

    They are looked for above the texts, just below the upper edges of slices.
    """
    top = next(
        top for group, name, top, _ in rows(page) if (group, name) == (process, track)
    )
    picture = base64.b64encode(page.screenshot()).decode()
    values = page.evaluate(PIXELS, [picture, top + 5])
    colours = [values[place : place + 3] for place in range(0, len(values), 4)]
    is_coloured = [max(colour) - min(colour) > 30 for colour in colours]
    edges = [
        place
        for place, (before, after) in enumerate(
            zip([False, *is_coloured], [*is_coloured, False], strict=True)
        )
        if before != after
    ]
    stretches = zip(edges[::2], edges[1::2], strict=True)
    return [(start, end) for start, end in stretches if end - start > 2]


def places(page: "Page", times_ns: list[int]) -> list[float]:
    """Where on the page the viewer draws these times, in pixels."""
    found: list[float] = page.evaluate(PLACES, [time / 1e9 for time in times_ns])
    return found


class _Handler(SimpleHTTPRequestHandler):
    """Gives the page, the trace, and the files of the viewer."""

    def __init__(self, trace: bytes, *given: Any, **options: Any) -> None:  # noqa: ANN401
        self._trace = trace
        super().__init__(*given, **options)

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path == "/":
            self._answer("text/html", PAGE.format(host=self.headers["host"]).encode())
        elif self.path == "/shown.pftrace":
            self._answer("application/octet-stream", self._trace)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
