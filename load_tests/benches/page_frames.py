"""The page in a headless Chromium: times between frames while the map moves, and memory.

Without a graphics card Chromium draws in software, which costs a core or more.
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
(seconds) => new Promise((resolve) => {
  const times = [];
  const began = performance.now();
  let last = began;
  const step = (now) => {
    times.push(now - last);
    last = now;
    if (now - began < seconds * 1000) {
      waylog.map.panBy([Math.round(2 * Math.sin(now / 400)), 0], {duration: 0});
      requestAnimationFrame(step);
    } else {
      times.sort((a, b) => a - b);
      resolve({
        fps: Math.round(1000 * times.length / (now - began)),
        frame_ms_p50: Math.round(times[times.length >> 1]),
        frame_ms_p95: Math.round(times[Math.floor(times.length * 0.95)]),
        points: waylog.deviceCount,
        circles: document.querySelectorAll('.cluster:not([hidden])').length,
      });
    }
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
                found.setdefault(name, []).append(await page.evaluate(_FRAMES, _PLACE_S))
            await session.send("HeapProfiler.collectGarbage")
            heap.append(await page.evaluate("performance.memory.usedJSHeapSize / 1048576"))
        await browser.close()
    return {name: rounds[len(rounds) // 2] for name, rounds in found.items()} | {
        "rounds": len(heap),
        "heap_mib": [round(each, 1) for each in heap],
    }
