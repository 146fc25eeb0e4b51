#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Language models: `kiln serve` beside llama.cpp (PyPI's xllamacpp) on the same GGUF file.

    language.py MODEL.gguf [--kiln PROGRAM] [--rounds N] [--threads N] [--json FILE]

by a Python that has xllamacpp. Each side is a process that is stopped unless it is timed, so that
nobody's threads spin beside another's; they take turns, round by round. kiln is asked over HTTP, the
peer by calls within its process. A caller whose answer ends early asks on until it has as many tokens
as the others, so that all go on to the end. Both first answer a question greedily, and have to begin
alike. The table shows medians over the rounds, and kiln's rate over the peer's. Exit status: 0; 1 where the
answers differ; 2 where a side does not run."""

import argparse
import concurrent.futures
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

QUESTION, BEGINNING = "The capital of France is", " Paris"
CALLERS = 8
CONTEXT = 1024  # of each caller


def requests_of(row, number):
    """What is asked for in a round: other prompts in each, since sides keep what they have read."""
    if row == "a prompt of 512 tokens":
        return [{"prompt": [1000 + (7 * i + 131 * number) % 9000 for i in range(512)], "max_tokens": 1}]
    callers = CALLERS if row.startswith("eight") else 1
    return [{"prompt": f"Once upon a time, on day {number} of month {i},", "max_tokens": 128}
            for i in range(callers)]


ROWS = ("one caller", "eight callers", "a prompt of 512 tokens")


def rate(row, answers, seconds):
    """Tokens a second: of the answers, or of the prompt."""
    kind = "prompt_tokens" if row.startswith("a prompt") else "completion_tokens"
    return sum(answer["usage"][kind] for answer in answers) / seconds


def ask_on(one, request):
    """A caller's answers: as many as make `max_tokens` tokens, each to a prompt of its own."""
    answers, left = [], request["max_tokens"]
    while left > 0:
        prompt = request["prompt"]
        if isinstance(prompt, str) and answers:
            prompt = f"Part {len(answers)}. {prompt}"
        answers.append(one(request | {"prompt": prompt, "max_tokens": left}))
        left -= max(1, answers[-1]["usage"]["completion_tokens"])
    return answers


def ask_all(one, requests):
    """All callers at once."""
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        return sum(pool.map(lambda request: ask_on(one, request), requests), [])


class Side:
    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env=environment)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            sys.stderr.write(f"language.py: {command[0]} does not run\n")
            sys.exit(2)
        self.process.send_signal(signal.SIGSTOP)

    def timed(self, requests):
        self.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        start = time.monotonic()
        answers = self.ask(requests)
        seconds = time.monotonic() - start
        self.process.send_signal(signal.SIGSTOP)
        return answers, seconds

    def end(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()


class Kiln(Side):
    def one(self, request):
        body = json.dumps(request | {"temperature": 0}).encode()
        asked = urllib.request.Request(self.address.split()[-1] + "/v1/completions", body,
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=600) as answer:
            return json.loads(answer.read())

    def ask(self, requests):
        return ask_all(self.one, requests)


class Peer(Side):
    def ask(self, requests):
        self.process.stdin.write(json.dumps(requests) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def serve_peer(model, threads):
    """The peer's process: lines of requests in, lines of answers out."""
    import xllamacpp
    answers_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else it prints
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_parallel = CALLERS
    parameters.n_ctx = CONTEXT * CALLERS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)

    def one(request):
        answer = server.handle_completions(
            request | {"temperature": 0, "n_predict": request["max_tokens"], "cache_prompt": False})
        return json.loads(answer) if isinstance(answer, str) else answer
    print("ready", file=answers_to, flush=True)
    for line in sys.stdin:
        print(json.dumps(ask_all(one, json.loads(line))), file=answers_to, flush=True)


def compare_answers(sides):
    """Whether both begin alike: further on llama.cpp rounds activations to 8 bits, and differs."""
    begun = {}
    for name, side in sides.items():
        answers, _ = side.timed([{"prompt": QUESTION, "max_tokens": 4}])
        begun[name] = answers[0]["choices"][0]["text"]
    if not all(text.startswith(BEGINNING) for text in begun.values()):
        sys.stderr.write(f"language.py: {QUESTION!r} goes on as {begun}\n")
        sys.exit(1)


def measure(sides, rounds):
    """{row: {side: rates}}; the first round of each row is not counted."""
    found = {row: {name: [] for name in sides} for row in ROWS}
    for row in ROWS:
        for number in range(rounds + 1):
            for name, side in sides.items():
                answers, seconds = side.timed(requests_of(row, number))
                if number:
                    found[row][name].append(rate(row, answers, seconds))
    return found


def main():
    parser = argparse.ArgumentParser(description="kiln serve beside llama.cpp")
    parser.add_argument("model")
    parser.add_argument("--kiln", default="./kiln", help="the program; ./kiln of a build tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the peer")
    parser.add_argument("--json", help="a file for all rates")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return serve_peer(options.model, options.threads)
    environment = {name: value for name, value in os.environ.items() if name != "KILN_API_KEY"}
    sides = {
        "kiln": Kiln([options.kiln, "serve", "--port", "0", "--slots", str(CALLERS), "--context",
                      str(CONTEXT), options.model], environment),
        "llama.cpp": Peer([sys.executable, __file__, options.model, "--peer", "--threads",
                           str(options.threads)], environment)}
    try:
        compare_answers(sides)
        found = measure(sides, options.rounds)
    finally:
        for side in sides.values():
            side.end()
    print(f"load {os.getloadavg()[0]:.1f}; medians of {options.rounds} rounds, tokens a second\n")
    print(f"{'':24}" + "".join(f"{name:>12}" for name in sides) + f"{'ratio':>8}")
    for row, rates in found.items():
        medians = [statistics.median(rates[name]) for name in sides]
        print(f"{row:24}" + "".join(f"{m:12.1f}" for m in medians) + f"{medians[0] / medians[1]:8.2f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
