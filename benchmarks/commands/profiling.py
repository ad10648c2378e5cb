# SPDX-License-Identifier: Apache-2.0
"""What profiling costs, and whether its page stays fluid: `python -m benchmarks.commands.profiling [--runs N]`.

ResNet50 A8W8 runs in two sessions, one with profiling_level=detailed and one without, in turns; the processor time of
each run counts, and the ratio of the medians. A page of 50,000 activities is opened in Chromium (playwright, headless)
and its largest table sorted by each column. Exits 1 where a limit is missed, 2 where something is not installed.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import hexforge
from benchmarks.models.quantized import file
from hexforge.addons.profiler.qhas import qhas_page
from hexforge.addons.profiler.record import Activity, Profile
from hexforge.addons.profiler.recording.simulated import profile

QNN = "QNNExecutionProvider"
MOST_OVERHEAD = 0.05
MOST_OPEN_S, MOST_SORT_MS = 2.0, 200.0
EVENTS = 50_000
ROUNDS = 5
"""Pages are opened so many times; the round that other load disturbed least counts."""


def overhead(model: Path, runs: int) -> tuple[float, float]:
    """Milliseconds of processor time of a run without a profile, and with a detailed one."""
    with tempfile.TemporaryDirectory() as folder:
        base = {"soc_model": "SM8650"}
        more = {"profiling_level": "detailed", "profiling_file_path": f"{folder}/p.csv"}
        options = hexforge.SessionOptions()
        options.intra_op_num_threads = 1
        sessions = [
            hexforge.InferenceSession(str(model), options, providers=[(QNN, chosen)]) for chosen in (base, base | more)
        ]
        feeds = {
            v.name: np.random.default_rng(0).standard_normal(v.shape, np.float32) for v in sessions[0].get_inputs()
        }
        took: list[list[int]] = [[], []]
        gc.disable()
        for turn in range(runs + 2):
            for side in (0, 1) if turn % 2 else (1, 0):
                start = time.process_time_ns()
                sessions[side].run(None, feeds)
                if turn >= 2:
                    took[side].append(time.process_time_ns() - start)
        gc.enable()
        del sessions
    plain, profiled = (statistics.median(side) / 1e6 for side in took)
    return plain, profiled


def large(count: int) -> Profile:
    """A profile with so many activities: those of ResNet50, over and over."""
    record = profile(file("resnet50", "a8w8-int8"), "SM8650")
    graph = record.graphs[0]
    run = graph.runs[0]
    made: list[Activity] = []
    while len(made) < count:
        shift = run.accelerator_us * (len(made) // len(run.activities))
        made += [replace(a, start_us=a.start_us + shift, end_us=a.end_us + shift) for a in run.activities]
    whole = run.accelerator_us * count / len(run.activities)
    run = replace(run, activities=tuple(made[:count]), accelerator_us=whole, netrun_us=whole, rpc_us=whole)
    return replace(record, graphs=(replace(graph, runs=(run,)),))


SORTED = """(column) => {
  const press = document.querySelectorAll("#htp-ops thead tr:first-child th > button:first-child")[column];
  const start = performance.now();
  press.click();
  document.querySelector("#htp-ops .scroll").getBoundingClientRect();
  const painted = (done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
  return new Promise(painted);
}"""


def browse(page: Path) -> tuple[float, float]:
    """Seconds until the page is drawn and painted, and milliseconds of the slowest sort of its largest table."""
    from playwright.sync_api import sync_playwright

    opened: list[float] = []
    sorts: list[list[float]] = []
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for _ in range(ROUNDS):
            tab = browser.new_page(viewport={"width": 1400, "height": 900})
            start = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_function("document.documentElement.dataset.drawn === 'yes'")
            tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            opened.append(time.perf_counter() - start)
            tab.evaluate("document.querySelector('#htp-ops details').open = true")
            tab.wait_for_selector("#htp-ops tbody tr")
            columns = tab.evaluate("document.querySelectorAll('#htp-ops thead tr:first-child th').length")
            sorts.append([tab.evaluate(SORTED, column) for column in range(columns)])
            tab.close()
        browser.close()
    return min(opened), max(min(column) for column in zip(*sorts, strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both figures beside their limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="runs of ResNet50 with and without a profile")
    given = parser.parse_args(arguments)
    try:
        import playwright  # noqa: F401
    except ImportError:
        print("playwright is not installed: pip install -c constraints.txt 'hexforge[browser]'", file=sys.stderr)
        return 2
    if shutil.which("chromium") is None:
        print("chromium is not installed: apt install chromium", file=sys.stderr)
        return 2
    plain, profiled = overhead(file("resnet50", "a8w8-int8"), given.runs)
    ratio = profiled / plain - 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(qhas_page(large(EVENTS)), "utf-8")
        size = page.stat().st_size
        opened, sort = browse(page)
    rows = (
        (f"ResNet50 A8W8 detailed, {plain:.1f} ms without", f"{100 * ratio:+.2f} %", f"< {100 * MOST_OVERHEAD:.0f} %"),
        (f"page of {EVENTS:,} activities ({size / 2**20:.1f} MiB) drawn", f"{opened:.2f} s", f"< {MOST_OPEN_S:.0f} s"),
        ("its largest table sorted, slowest column", f"{sort:.0f} ms", f"< {MOST_SORT_MS:.0f} ms"),
    )
    print(f"{'':56} {'':>10} {'limit':>10}")
    for name, value, limit in rows:
        print(f"{name:56} {value:>10} {limit:>10}")
    missed = ratio >= MOST_OVERHEAD or opened >= MOST_OPEN_S or sort >= MOST_SORT_MS
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
