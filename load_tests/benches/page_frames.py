"""The page in a headless Chromium: times between frames while the map moves, and memory.

Without a graphics card Chromium draws in software, which takes a core or more, and most of the time
for the map itself: so the same is measured without devices, and the time that the scripts of the
devices take.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Any, Final

from waylog.cli import CommandError

_BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
_FLAGS: Final = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--enable-precise-memory-info",
]
_STARTS_MS: Final = 120_000
#: Seconds at each place, in which the map is panned.
_PLACE_S: Final = 10.0
_PLACES: Final = {
    "world": (1.35, 12.0, 28.0),
    "country": (6.0, 9.5, 48.0),
    "city": (11.0, 9.6, 47.4),
}
_FRAMES: Final = """
([seconds, alone]) => new Promise((resolve) => {
  const {points, trails, clusters} = waylog.view;
  const list = document.querySelector('device-list');
  const ours = [[points, 'render'], [points, 'update'], [trails, 'render'], [clusters, 'place'],
    [clusters, 'show'], [waylog.area, 'takeBuffer'], [list, 'refresh']];
  let spent = 0;
  for (const [part, name] of ours) {
    const own = part[name];
    part[name] = alone ? () => {} : (...given) => {
      const since = performance.now();
      const result = own.apply(part, given);
      spent += performance.now() - since;
      return result;
    };
  }
  const times = [];
  const began = performance.now();
  let last = began;
  const step = (now) => {
    times.push(now - last);
    last = now;
    if (now - began < seconds * 1000) {
      waylog.map.panBy([Math.round(2 * Math.sin(now / 400)), 0], {duration: 0});
      requestAnimationFrame(step);
      return;
    }
    for (const [part, name] of ours) delete part[name];
    times.sort((a, b) => a - b);
    const percentile = (share) => Math.round(times[Math.floor(times.length * share)]);
    resolve({
      fps: Math.round(10000 * times.length / (now - began)) / 10,
      frame_ms_p50: percentile(0.5),
      frame_ms_p95: percentile(0.95),
      script_ms_per_frame: Math.round(100 * spent / times.length) / 100,
      points: waylog.deviceCount,
      circles: document.querySelectorAll('.cluster:not([hidden])').length,
    });
  };
  requestAnimationFrame(step);
})
"""


async def measured_page(url: str, seconds: float) -> dict[str, Any]:
    """Open the page; return frame times at each place, and the heap (MiB) over `seconds`.

    Raises CommandError where there is no browser.
    """
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        raise CommandError("playwright is not installed (pip install playwright)") from None
    executable = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if executable is None:
        raise CommandError("no Chromium (apt-get install chromium-headless-shell)")
    found: dict[str, Any] = {}
    heap: list[float] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=executable, args=_FLAGS)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(_STARTS_MS)
        await page.goto(url)
        await page.wait_for_selector("html[data-ready=true]")
        await page.wait_for_function("() => waylog.area.inside > 0 || waylog.deviceCount > 0")
        session = await page.context.new_cdp_session(page)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends or not found:
            for name, (zoom, lon, lat) in _PLACES.items():
                await page.evaluate(
                    "([zoom, lon, lat]) => { waylog.map.jumpTo({zoom, center: [lon, lat]}); }",
                    [zoom, lon, lat],
                )
                await asyncio.sleep(2)
                measured = await page.evaluate(_FRAMES, [_PLACE_S, False])
                alone = await page.evaluate(_FRAMES, [_PLACE_S / 2, True])
                measured["frame_ms_p50_without_devices"] = alone["frame_ms_p50"]
                found.setdefault(name, []).append(measured)
            await session.send("HeapProfiler.collectGarbage")
            heap.append(await page.evaluate("performance.memory.usedJSHeapSize / 1048576"))
        await browser.close()
    return {name: rounds[len(rounds) // 2] for name, rounds in found.items()} | {
        "rounds": len(heap),
        "heap_mib": [round(each, 1) for each in heap],
    }
