#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of kiln side by side: which rows of the benchmarks became slower, and which faster.

BASE is the build folder of the older checkout (or a folder that holds its libkiln.so), BUILD that of
the newer one, with its benchmark programs (make bench-programs). Both sides are BUILD's programs; one
of them loads BASE's library, so that BASE needs no programs. With --own each side has programs of its
own, for a BASE whose interface is another.

A pair is two processes of one program that take turns, round by round (bench/report.h): one rests
while the other runs. A row's ratio within a pair is the median of its rounds' own ratios, give or
take 1.57 times the distance of their quartiles by the root of their number. Where a process happens
to find its memory makes a difference of some per cent too, hence several pairs: the table shows the
median over the pairs, and as spread half the distance of the extremes. A row counts as slower, or
faster, if the whole of that is so by more than the limit. A `?` is a row whose median is slower and
whose spread leaves it open: more --pairs or --seconds decide.

Exit status: 0, 1 if a row is slower, 2 if something could not be measured.
"""

import argparse
import contextlib
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

FEWEST_ROUNDS = 5
MOST_ROUNDS = 400


class Figure:
    """What one pair says about a way of a row."""

    def __init__(self, before, after):
        ratios = [new / old for old, new in zip(before, after)]
        lower, self.ratio, upper = statistics.quantiles(ratios, n=4)
        self.before, self.after = statistics.median(before), statistics.median(after)
        doubt = 1.57 * (upper - lower) / math.sqrt(len(ratios))
        self.low, self.high = self.ratio - doubt, self.ratio + doubt


class Side:
    """A process of a benchmark program with one of the two libraries."""

    def __init__(self, program, library, folder, arguments):
        environment = dict(os.environ, LD_LIBRARY_PATH=str(library))
        for variable in ("KILN_CACHE_DIR", "POCL_CACHE_DIR"):
            path = folder / variable
            path.mkdir(parents=True, exist_ok=True)
            environment[variable] = str(path)
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program, "--kiln-only", "--turns", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
        )
        self.library = library

    def read(self):
        """The words of the next line; none at the end."""
        line = self.process.stdout.readline()
        if line:
            return line.rstrip("\n").split("\t")
        if self.process.wait():
            self.errors.seek(0)
            lines = self.errors.read().splitlines() or [""]
            if self.process.returncode < 0:
                lines.append("ended by signal %d" % -self.process.returncode)
            raise RuntimeError("with %s: %s" % (self.library, lines[-1]))
        return []

    def ask(self, what):
        with contextlib.suppress(BrokenPipeError):  # read() says why
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        return self.read()

    def check(self):
        """Whether it is the wanted library that was loaded."""
        maps = pathlib.Path("/proc/%d/maps" % self.process.pid).read_text()
        loaded = {line.split()[-1] for line in maps.splitlines() if "/libkiln.so" in line}
        if {pathlib.Path(path).parent for path in loaded} != {self.library.resolve()}:
            raise RuntimeError("%s was to be loaded, not %s" % (self.library, sorted(loaded)))

    def stop(self):
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.errors.close()


def take_turns(sides, seconds):
    """Per round and side: whether it was quiet, and the seconds of each way. Rounds that another
    process disturbed do not count if there are enough others; some time is spent to find them."""
    rounds, quiet = [], []
    start = time.monotonic()
    while len(rounds) < MOST_ROUNDS:
        spent = time.monotonic() - start
        wanted = FEWEST_ROUNDS - len(quiet)
        if len(rounds) >= FEWEST_ROUNDS and spent > (4 * seconds if wanted > 0 else seconds):
            break
        order = (0, 1) if len(rounds) % 2 else (1, 0)
        answers = {i: [float(word) for word in sides[i].ask("round")[1:]] for i in order}
        rounds.append((answers[0], answers[1]))
        if answers[0][0] and answers[1][0]:
            quiet.append(rounds[-1])
    return quiet if len(quiet) >= FEWEST_ROUNDS else rounds


def measure_pair(sides, seconds, rows):
    """Add what one pair of processes says to `rows`: of each row and way the pairs' figures."""
    names = []
    for side in sides:
        names.append(side.read())
        if names[-1]:
            side.check()
    while names[0] or names[1]:
        if names[0] != names[1]:
            raise RuntimeError("the builds measure different things: %s" % names)
        rounds = take_turns(sides, seconds)
        for number, way in enumerate(names[0][2:], 1):
            before, after = ([both[i][number] for both in rounds] for i in (0, 1))
            rows.setdefault((names[0][1], way), []).append(Figure(before, after))
        names = [side.ask("next") for side in sides]


def measure_program(programs, libraries, options, arguments):
    rows = {}
    with tempfile.TemporaryDirectory(
        prefix="kiln-against-",
        ignore_cleanup_errors=True,  # what stores kernels may still be at it
    ) as folder:
        for _ in range(options.pairs):
            sides = []
            try:
                for name, library in libraries.items():
                    sides.append(
                        Side(programs[name], library, pathlib.Path(folder, name), arguments)
                    )
                measure_pair(sides, options.seconds, rows)
            finally:
                for side in sides:
                    side.stop()
    return rows


def show_time(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            break
    return "%.4g %s" % (seconds * factor, unit)


def verdict_of(ratio, low, high, limit):
    bound = 1 + limit / 100
    if low > bound:
        return "SLOWER"
    if high < 1 / bound:
        return "faster"
    return "?" if ratio > bound else ""


def report(program, rows, limit):
    """Print the program's part of the table; the verdicts."""
    verdicts = []
    for (row, way), pairs in rows.items():
        before, after, ratio = (
            statistics.median(getattr(pair, name) for pair in pairs)
            for name in ("before", "after", "ratio")
        )
        low, high = min(pair.low for pair in pairs), max(pair.high for pair in pairs)
        verdicts.append(verdict_of(ratio, low, high, limit))
        print(
            "| %s: %s: %s | %s | %s | %.3f | %.1f%% | %s |"
            % (program, row, way, show_time(before), show_time(after), ratio, 50 * (high - low),
               verdicts[-1])
        )
    sys.stdout.flush()
    return verdicts


def library_folder(build):
    for folder in (build / ".libs", build):
        if list(folder.glob("libkiln.so*")):
            return folder.resolve()
    raise RuntimeError("%s holds no libkiln.so: is it a build with shared libraries?" % build)


def find_program(build, name):
    """The program itself, not the script with which libtool has it find the build's own library."""
    for path in (build / "bench/.libs" / name, build / "bench" / name):
        if path.exists():
            return str(path.resolve())
    raise RuntimeError("%s has no bench/%s: make bench-programs" % (build, name))


def built_programs(build):
    """All but those that have options of their own."""
    names = {path.name for path in (build / "bench/.libs").glob("*") if not path.suffix}
    names -= {"devices", "onnx"}
    return sorted(name for name in names if not name.startswith("lt-"))


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=float, default=3, help="per cent that a row may lose (3)")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes (3)")
    parser.add_argument("--seconds", type=float, default=1, help="for a row of a pair (1)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--filter", help="only rows whose name contains this")
    parser.add_argument("--device", help="as KILN_DEVICE")
    parser.add_argument("--own", action="store_true", help="BASE has programs, of another interface")
    parser.add_argument("base", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path, nargs="?", default=pathlib.Path("."))
    parser.add_argument("programs", nargs="*", help="of bench/ (all that are built)")
    return parser.parse_args()


def compare(options):
    """Whether all could be measured, and the verdicts."""
    libraries = {"base": library_folder(options.base), "build": library_folder(options.build)}
    arguments = ["--quick"] if options.quick else []
    for name in ("filter", "device"):
        if getattr(options, name):
            arguments += ["--" + name, getattr(options, name)]
    verdicts, complete = [], True
    print("before: %(base)s\nafter:  %(build)s\n" % libraries)
    print("| row | before | after | after / before | spread | |\n|---|---|---|---|---|---|")
    for name in options.programs or built_programs(options.build):
        rows = {}
        try:
            program = find_program(options.build, name)
            own = find_program(options.base, name) if options.own else program
            programs = {"base": own, "build": program}
            rows = measure_program(programs, libraries, options, arguments)
        except RuntimeError as error:
            complete = False
            print("%s: %s" % (name, error), file=sys.stderr)
        verdicts += report(name, rows, options.limit)
    return complete and bool(verdicts), verdicts


def main():
    options = parse_arguments()
    try:
        complete, verdicts = compare(options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    slower = verdicts.count("SLOWER")
    print(
        "\n%d of %d figures slower by more than %g%%, %d undecided"
        % (slower, len(verdicts), options.limit, verdicts.count("?"))
    )
    sys.exit(2 if not complete else 1 if slower else 0)


if __name__ == "__main__":
    main()
