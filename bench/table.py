#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of what the benchmark programs wrote with --json.

    table.py FILE...            row, kiln, best peer, ratio, share of the limit
    table.py --plot SVG FILE... the ratios and shares as a picture (needs matplotlib)

A ratio is how many times as fast as the best peer kiln is. A row with a `!` does not count: a peer
ran otherwise beside the others than alone, or a result was wrong.
"""

import argparse
import json
import pathlib
import sys


class Row:
    def __init__(self, program, row):
        self.program, self.name = program, row["row"]
        kiln = [way for way in row["ways"] if not way["peer"]]
        peers = [way for way in row["ways"] if way["peer"]]
        self.seconds = kiln[0]["seconds"] if kiln else None
        best = min(peers, key=lambda way: way["seconds"], default=None)
        self.peer = best["way"] if best else ""
        self.ratio = best["seconds"] / self.seconds if best and kiln else None
        self.share = row["limit"] / self.seconds if row["limit"] > 0 and kiln else None
        self.limit = row["limit_of"]
        self.counts = not any("does not count" in r or "wrong" in r for r in row["remarks"])
        self.quiet = row["quiet_rounds"] >= row["rounds"]


def show_time(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            break
    return "%.3g %s" % (seconds * factor, unit)


def print_table(reports, rows):
    for key in ("device", "driver_version", "date"):
        print("%-7s %s" % (key.split("_")[0], ", ".join(sorted({r[key] for r in reports}))))
    print("\n| | row | kiln | best peer | ratio | of the limit | |\n|---|---|---|---|---|---|---|")
    for row in rows:
        ratio = "" if row.ratio is None else "%.2f" % row.ratio
        share = "" if row.share is None else "%.0f%% %s" % (100 * row.share, row.limit)
        mark = "!" if not row.counts else "" if row.quiet else "busy"
        print(
            "| %s | %s | %s | %s | %s | %s | %s |"
            % (row.program, row.name, show_time(row.seconds), row.peer, ratio, share, mark)
        )
    marked = sum(not row.counts for row in rows)
    busy = sum(not row.quiet for row in rows)
    text = "\n%d rows, %d that do not count (!), %d beside other work (busy)"
    print(text % (len(rows), marked, busy))


def plot(rows, path, title):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot

    rows = [row for row in rows if row.ratio is not None and row.counts][::-1]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 1 + 0.24 * len(rows)), sharey=True, width_ratios=(2, 1)
    )
    places = range(len(rows))
    colours = ["#2a7" if row.ratio >= 1 else "#c63" for row in rows]
    left.barh(places, [row.ratio for row in rows], color=colours)
    left.set_yticks(places, ["%s: %s" % (row.program, row.name) for row in rows], fontsize=7)
    left.set_xscale("log")
    left.axvline(1, color="black", linewidth=0.8)
    left.set_xlabel("times as fast as the best peer")
    for place, row in zip(places, rows):
        left.annotate(row.peer, (max(row.ratio, 1), place), fontsize=6, va="center")
    right.barh(places, [min(row.share or 0, 1) for row in rows], color="#68a")
    right.set_xlim(0, 1)
    right.set_xlabel("share of the limit")
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=pathlib.Path, metavar="SVG")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in options.files]
    rows = [Row(report["program"], row) for report in reports for row in report["rows"]]
    rows = [row for row in rows if row.seconds]
    if options.plot:
        title = "%(device)s, %(driver_version)s, %(date)s" % reports[0]
        try:
            plot(rows, options.plot, title)
        except ImportError:
            sys.exit("matplotlib is not here: make bench-peers")
    else:
        print_table(reports, rows)


if __name__ == "__main__":
    main()
