#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole jobs on kiln beside what one would use instead: from arrays of the host to arrays of the host.

    run.py [--set cpu|gpu] [--only TEXT] [--rounds N] [--seconds S] [--json FILE] [--list]

in the build tree, by a Python that has the peers. Each library is a process of its own (side.py) that is stopped unless it is timed, so
that nobody's threads spin beside another's; they take turns, round by round. Each first computes the
job's result, which has to agree with the reference, or with the first peer's where there is none. The
table shows medians over the rounds, of each library's fastest way, and the best peer's time over
kiln's. Exit status: 0, 1 where a result is wrong, 2 where kiln cannot do a job."""

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

try:
    import rows
except ImportError as error:
    sys.exit(f"bench-jobs: {error}; `make bench-peers` makes a Python that has what is needed")

LIBRARIES = ["pytorch", "onnxruntime", "jax", "scipy", "numpy", "kiln"]


class Side:
    """A library's process."""

    def __init__(self, library, number, device, environment):
        self.library = library
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "side.py"), library, str(number), device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, **question):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.library} ended with status {self.process.wait()}")
        answer = json.loads(line)
        self.process.send_signal(signal.SIGSTOP)
        if "error" in answer:
            raise RuntimeError(f"{self.library}: {answer['error']}")
        return answer

    def end(self):
        self.process.stdin.close()
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def environment(folder, options):
    """Caches of the job's own, which last from row to row."""
    driver = os.path.join(folder, "driver")
    os.makedirs(driver, exist_ok=True)
    os.makedirs(os.path.join(folder, "kiln"), mode=0o700, exist_ok=True)
    return {**os.environ, "KILN_CACHE_DIR": os.path.join(folder, "kiln"), "POCL_CACHE_DIR": driver,
            "CUDA_CACHE_PATH": driver, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "torch"),
            "KILN_STORE_PROGRAM": os.path.abspath("kiln-store"), "KILN_CACHE_WAIT": "1",
            "KILN_LIBRARY": os.environ.get("KILN_LIBRARY", os.path.abspath(".libs/libkiln.so.0")),
            "KILN_ONNX_LIBRARY": os.environ.get("KILN_ONNX_LIBRARY",
                                                os.path.abspath(".libs/libkiln-onnx.so.0")),
            "PYTHONPATH": os.pathsep.join([options.package, os.environ.get("PYTHONPATH", "")])}


def make_package(folder):
    """The Python package of this tree, as pip would make it."""
    source = HERE.parent.parent
    package = pathlib.Path(folder) / "package" / "kiln"
    shutil.copytree(source / "python" / "kiln", package)
    subprocess.run([sys.executable, "-B", str(source / "python" / "generate.py"), str(source),
                    str(package)], check=True)
    return str(package.parent)


def measure(number, row, options, folder):
    """Prints a row; returns what it says, for the JSON."""
    print(f"{row.name}", flush=True)
    sides, first = {}, None
    result = {"name": row.name, "unit": row.unit, "sides": {}, "wrong": [], "missing": []}
    variables = environment(folder, options)
    try:
        for library in LIBRARIES:
            if options.peers and library != "kiln" and library not in options.peers.split(","):
                continue
            if not hasattr(row.job, library):
                continue
            side = Side(library, number, options.device, variables)
            try:
                answer = side.ask(do="start", results=os.path.join(folder, f"{library}.npz"),
                                  first=first and os.path.join(folder, f"{first}.npz"))
            except RuntimeError as error:
                side.end()
                print(f"    {error}", flush=True)
                result["missing"].append(str(error))
                continue
            sides[library] = side
            result["sides"][library] = {"way": answer["way"], "first": answer["first"], "times": []}
            if answer["error_of_results"] is not None:
                result["sides"][library]["error"] = answer["error_of_results"]
                if not answer["error_of_results"] <= row.tolerance:
                    result["wrong"].append(library)
            first = first or library
        for _ in range(options.rounds):
            for library, side in sides.items():
                result["sides"][library]["times"].append(
                    side.ask(do="time", seconds=options.seconds)["seconds"])
    finally:
        for side in sides.values():
            side.end()
    show(row, result)
    return result


def show(row, result):
    for library, side in result["sides"].items():
        side["median"] = statistics.median(side["times"])
        error = f"{side['error']:.1e}" if "error" in side else "-"
        wrong = "  WRONG" if library in result["wrong"] else ""
        print(f"    {library:12s} {side['way']:14s} {row.say(side['median']):>18s}  error {error:8s}"
              f" first {side['first']:6.2f} s{wrong}", flush=True)
    peers = [side["median"] for library, side in result["sides"].items() if library != "kiln"]
    if peers and "kiln" in result["sides"]:
        result["ratio"] = min(peers) / result["sides"]["kiln"]["median"]
        print(f"    ratio {result['ratio']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", choices=["cpu", "gpu"], default="cpu", help="rows of which sizes")
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--peers", default="", help="these libraries alone, as pytorch,jax")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a library's turn")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--list", action="store_true", help="the rows' names, no more")
    options = parser.parse_args()
    options.device = options.set
    wanted = [(i, row) for i, row in enumerate(rows.ROWS)
              if options.set in row.sets and options.only in row.name]
    if options.list:
        print("\n".join(row.name for _, row in wanted))
        return 0
    results = []
    with tempfile.TemporaryDirectory(prefix="kiln-jobs.", ignore_cleanup_errors=True) as folder:
        options.package = make_package(folder)
        for number, row in wanted:
            results.append(measure(number, row, options, folder))
    print(f"\n{'job':58s} {'kiln':>16s} {'best peer':>28s} ratio")
    for (_, row), result in zip(wanted, results):
        peers = {n: s["median"] for n, s in result["sides"].items() if n != "kiln"}
        best = min(peers, key=peers.get) if peers else None
        kiln = row.say(result["sides"]["kiln"]["median"]) if "kiln" in result["sides"] else "-"
        peer = f"{best} {row.say(peers[best])}" if best else "-"
        ratio = f"{result['ratio']:.2f}" if "ratio" in result else "-"
        print(f"{row.name:58s} {kiln:>16s} {peer:>28s} {ratio:>5s}")
    if options.json:
        machine = {"machine": platform.machine(), "set": options.set, "command": sys.argv}
        pathlib.Path(options.json).write_text(json.dumps({**machine, "rows": results}, indent=1))
    if any(result["wrong"] for result in results):
        return 1
    return 0 if all("kiln" in result["sides"] for result in results) else 2


if __name__ == "__main__":
    sys.exit(main())
