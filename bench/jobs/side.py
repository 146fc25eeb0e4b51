# SPDX-License-Identifier: Apache-2.0
"""A library's side of a job, for run.py: side.py LIBRARY ROW cpu|gpu. Questions are lines of JSON on
standard input, with an answer each. A side may have several ways to do the job; the fastest counts."""

import json
import os
import statistics
import sys
import time
import traceback

import numpy as np

import rows

MEDIAN_OF = 5  # runs that choose a way
OFTEN_SECONDS = 2  # a job that runs for so long has run often


def distance(results, others):
    """The largest difference, relative to the largest element of each result."""
    worst = 0.0
    for ours, theirs in zip(results, others, strict=True):
        ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
        if ours.shape != theirs.shape:
            raise ValueError(f"results have shapes {ours.shape} and {theirs.shape}")
        scale = np.max(np.abs(theirs), initial=1e-30)
        worst = max(worst, float(np.max(np.abs(ours - theirs), initial=0) / scale))
    return worst


class Worker:
    def __init__(self, library, number, device):
        self.job = rows.ROWS[number].job
        self.joins = library == "kiln" and device == "cpu"
        self.enter = lambda: getattr(self.job, library)(self.job.data(), device)
        self.step = None

    def start(self, question):
        began = time.perf_counter()
        ways = self.enter()
        if not ways:
            raise ImportError("not for this device")
        results, times, first = {}, {}, None
        for way, step in ways.items():
            results[way] = step()
            first = first or time.perf_counter() - began
            step()
            if self.joins:
                self.settle(step)
            times[way] = statistics.median(self.timed(step) for _ in range(MEDIAN_OF))
        way = min(times, key=times.get)
        self.step = ways[way]
        np.savez(question["results"], *[np.asarray(r, np.float64) for r in results[way]])
        return {"way": way, "first": first, "error_of_results": self.error(results[way], question)}

    @staticmethod
    def settle(step):
        """What kiln compiles behind a job that has run often is there before times count."""
        import kiln
        end = time.perf_counter() + OFTEN_SECONDS
        while time.perf_counter() < end:
            step()
        kiln.default_context().sync_cache()
        step()

    def error(self, results, question):
        reference = self.job.reference(self.job.data())
        if reference is None and question["first"]:
            with np.load(question["first"]) as stored:
                reference = [stored[name] for name in stored]
        return None if reference is None else distance(results, reference)

    @staticmethod
    def timed(step):
        began = time.perf_counter()
        step()
        # A program that was started for it tells its own.
        return getattr(step, "seconds", None) or time.perf_counter() - began

    def time(self, question):
        times, end = [], time.perf_counter() + question["seconds"]
        while len(times) < 3 or time.perf_counter() < end:
            times.append(self.timed(self.step))
        return {"seconds": statistics.median(times)}


def main():
    library, number, device = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # what libraries print is no answer
    os.dup2(2, 1)
    worker = Worker(library, int(number), device)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(worker, question["do"])(question)
        except ImportError as error:
            answer = {"error": f"left out ({error})"}
        except Exception as error:  # whatever it is, the other rows go on
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
