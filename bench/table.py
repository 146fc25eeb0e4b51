#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One table of what the benchmark programs wrote with --json.

    table.py FILE...            row, kiln, best peer, ratio, share of the limit
    table.py --plot SVG FILE... the ratios as a picture; of a Markdown file, its first such table

A ratio is how many times as fast as the best peer kiln is. A row with a `!` does not count: a peer
ran otherwise beside the others than alone, or a result was wrong.
"""

import argparse
import html
import json
import math
import pathlib
import re


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


# ---- tables of Markdown ----


class TableRow:
    """A row of a table whose column "ratio", or else its last one without a heading, has ratios."""

    def __init__(self, name, ratio):
        self.program, self.name, self.ratio = "", name, ratio
        self.seconds, self.counts, self.share, self.peer = 1, "(!)" not in name, None, ""


def table_rows(text):
    rows, column = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            if rows:
                break  # the first table that has some
            column = None
        elif column is None:
            headings = [cell.lower() for cell in cells]
            last = len(cells) - 1
            column = headings.index("ratio") if "ratio" in headings else last if not cells[-1] else -1
        elif column >= 0 and column < len(cells) and re.fullmatch(r"\d+([.]\d+)?", cells[column]):
            rows.append(TableRow(cells[0].replace("`", ""), float(cells[column])))
    return rows


# ---- the picture ----

LABEL, MIDDLE, OCTAVE, LINE = 330, 520, 95, 22  # of the picture, in pixels; a bar is 16 high
MOST = 2.0  # octaves to either side


def bar(row, y):
    octaves = max(-MOST, min(MOST, math.log2(row.ratio)))
    width, colour = abs(octaves) * OCTAVE, "#2f8f6b" if row.ratio >= 1 else "#c4622d"
    left = MIDDLE - (width if octaves < 0 else 0)
    label = html.escape(("%s: " % row.program if row.program else "") + row.name)
    number = "%.2f" % row.ratio if row.ratio < 1 else "%.3g" % row.ratio
    end = MIDDLE + (width if octaves > 0 else 0) + 6
    return (
        '<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%.1f" y="%d" width="%.1f" '
        'height="16" fill="%s"/><text x="%.1f" y="%d">%s</text>\n'
        % (LABEL - 8, y + 13, label, left, y, width, colour, end, y + 13, number)
    )


def plot(rows, path, title):
    """Ratios as bars to both sides of 1, an octave to each further line."""
    rows = [row for row in rows if row.ratio and row.counts]
    top, bottom = 54, 54 + LINE * len(rows)
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            '<svg xmlns="http://www.w3.org/2000/svg" width="760" height="%d" '
            'font-family="sans-serif" font-size="13" fill="#222">\n'
            '<rect width="100%%" height="100%%" fill="#fff"/>\n'
            '<text x="8" y="20" font-size="14">%s</text>\n' % (bottom + 10, html.escape(title))
        )
        for octave in (-2, -1, 0, 1, 2):
            x = MIDDLE + octave * OCTAVE
            file.write(
                '<path d="M%d %dV%d" stroke="%s"/><text x="%d" y="%d" text-anchor="middle" '
                'fill="#666">%g</text>\n'
                % (x, top - 6, bottom, "#222" if octave == 0 else "#ddd", x, top - 12, 2.0**octave)
            )
        for place, row in enumerate(rows):
            file.write(bar(row, top + LINE * place))
        file.write("</svg>\n")


def read_reports(files):
    reports = [json.loads(path.read_text()) for path in files]
    rows = [Row(report["program"], row) for report in reports for row in report["rows"]]
    return reports, [row for row in rows if row.seconds]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=pathlib.Path, metavar="SVG")
    parser.add_argument("--title")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    if options.plot and options.files[0].suffix == ".md":
        rows = [row for path in options.files for row in table_rows(path.read_text("utf-8"))]
        plot(rows, options.plot, options.title or "times as fast as the other")
    elif options.plot:
        reports, rows = read_reports(options.files)
        title = "%(device)s, %(driver_version)s, %(date)s" % reports[0]
        plot(rows, options.plot, options.title or title + ": times as fast as the best peer")
    else:
        print_table(*read_reports(options.files))


if __name__ == "__main__":
    main()
