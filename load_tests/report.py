"""The report of a load test: one HTML file that includes its plots."""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from load_tests.latency import Pairs, hdr_histogram, percentile_ms
from load_tests.outcome import Outcome
from load_tests.processor_time import Sample

_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_CURVE: Final = (0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100)
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b2733; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .25rem .9rem .25rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: #1a7f4b; } .failed { color: #b3261e; } svg { width: 100%; height: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #14191f; color: #dfe6ec; } svg { background: #fff; border-radius: 6px; } }
"""
_TABLE: Final = (
    ("sent", "fixes sent"),
    ("acknowledged", "acknowledged"),
    ("stored", "in topic location"),
    ("lost", "acknowledged, but lost"),
    ("doubled", "stored more than once"),
    ("unacknowledged", "stored, but not acknowledged"),
    ("late", "sent more than 100 ms late"),
    ("resent", "sent again"),
    ("disconnects", "connections lost"),
    ("failures", "failed requests and connections"),
    ("addresses", "devices with the address of their newest fix"),
    ("stale_addresses", "devices with an older address"),
    ("unresolved", "devices without an address"),
)


def write_report(
    folder: Path, result: dict[str, Any], outcome: Outcome, samples: Sequence[Sample]
) -> Path:
    """Write report.html, result.json and the percentiles (.hgrm); return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_bytes(msgspec.json.encode(result))
    curves = {
        "acknowledgement": outcome.acknowledgements,
        "address": outcome.push_latencies,
    }
    for name, pairs in curves.items():
        if pairs:
            with (folder / f"{name}.hgrm").open("wb") as file:
                hdr_histogram(pairs).output_percentile_distribution(file, 1000.0)
    plots = [
        ("Fixes a second", _rate_plot(outcome)),
        ("Latency over time, from the moment a fix was due", _latency_plot(outcome)),
        ("Latency by percentile", _curve_plot(curves)),
        ("Processor time by part", _processor_plot(samples, outcome)),
    ]
    path = folder / "report.html"
    path.write_text(_page(result, plots), encoding="utf-8")
    return path


def _page(result: dict[str, Any], plots: Sequence[tuple[str, str]]) -> str:
    verdict, css = ("passed", "passed") if result["passed"] else ("failed", "failed")
    rows = "".join(
        f"<tr><td>{label}</td><td class=number>{result[name]:,}</td></tr>" for name, label in _TABLE
    )
    cpu = "".join(
        f"<tr><td>{html.escape(part)}</td><td class=number>{value:.1f}</td></tr>"
        for part, value in result["cpu_us_per_fix"].items()
    )
    sections = "".join(f"<h2>{title}</h2>{svg}" for title, svg in plots)
    examples = ", ".join(map(html.escape, result["examples"]))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Waylog load test</title>"
        f"<style>{_STYLE}</style><h1>Waylog load test: <span class={css}>{verdict}</span></h1>"
        f"<p>{result['devices']:,} devices over {html.escape(result['protocol'])}, "
        f"{result['rate']:,} fixes a second for {result['seconds']:.0f} s. Latencies count from "
        f"the moment a fix was due; generator and platform share the machine.</p>"
        f"<table>{rows}</table>{f'<p>For example: {examples}</p>' if examples else ''}{sections}"
        f"<h2>Processor time per fix (us)</h2><table>{cpu}</table></html>"
    )


def _figure() -> tuple[Any, Any]:
    # pyplot is not used, because it has global state and needs a display.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _rate_plot(outcome: Outcome) -> str:
    figure, axes = _figure()
    seconds = [second.time - outcome.began for second in outcome.seconds]
    for name, label in (("sent", "sent"), ("acknowledged", "acknowledged"), ("pushed", "address")):
        axes.plot(seconds, [getattr(second, name) for second in outcome.seconds], label=label)
    axes.set_xlabel("s")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, ncols=3)
    return _svg(figure)


def _latency_plot(outcome: Outcome) -> str:
    figure, axes = _figure()
    for name, style, title in (
        ("acknowledgements", "-", "acknowledgement"),
        ("pushes", "--", "address"),
    ):
        for percent in (50.0, 99.0):
            points = [
                (second.time - outcome.began, value)
                for second in outcome.seconds
                if (value := percentile_ms(getattr(second, name), percent)) is not None
            ]
            if points:
                axes.plot(*zip(*points, strict=True), style, label=f"{title} p{percent:g}")
    axes.set_xlabel("s")
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    if axes.lines:
        axes.legend(frameon=False, ncols=2)
    return _svg(figure)


def _curve_plot(curves: dict[str, Pairs]) -> str:
    """Plot latency against the number of nines, like HdrHistogram's plotter."""
    figure, axes = _figure()
    for name, pairs in curves.items():
        points = [
            (1 / (1 - min(percent, 99.9999) / 100), value)
            for percent in _CURVE
            if (value := percentile_ms(pairs, percent)) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_xscale("log")
    axes.set_xticks(
        [1 / (1 - percent / 100) for percent in _PERCENTILES], [f"{p:g} %" for p in _PERCENTILES]
    )
    axes.minorticks_off()
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    if axes.lines:
        axes.legend(frameon=False)
    return _svg(figure)


def _processor_plot(samples: Sequence[Sample], outcome: Outcome) -> str:
    figure, axes = _figure()
    parts = sorted({part for sample in samples for part in sample.cpu_s})
    pairs = list(itertools.pairwise(samples))
    moments = [later.time - outcome.began for _, later in pairs]
    shares = [
        [
            100
            * max(0.0, later.cpu_s.get(part, 0.0) - earlier.cpu_s.get(part, 0.0))
            / max(1e-3, later.time - earlier.time)
            for earlier, later in pairs
        ]
        for part in parts
    ]
    if moments and parts:
        axes.stackplot(moments, shares, labels=parts)
        axes.legend(frameon=False, ncols=4, loc="upper left")
    axes.set_xlabel("s")
    axes.set_ylabel("% of a core")
    return _svg(figure)
