#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kiln serve` by the workers of Ray, on this machine or on many: how each line of a file goes on, or
its vector, as a line of JSON.

    python3 examples/serve_ray.py --model MODEL.gguf --output texts.jsonl lines.txt
    python3 examples/serve_ray.py --model FOLDER --vectors --address auto lines.txt

The lines are cut into pieces. Each of Ray's processes starts a `kiln serve` of its own, which keeps
its model from piece to piece and ends with that process, however it ends. A piece whose process or
server dies is given to another one, three times at most. Only this process writes, in the order of
the lines and once each, so that nothing is there twice or missing. With --address all machines have
kiln and the model where this one has them; --gpus 1 has Ray give each process a GPU of its own. Ray's
processes are nicer than others, and so are the servers: RAY_worker_niceness=0 makes them equal.

It needs Ray: `pip install ray`.
"""
import argparse
import collections
import http.client
import itertools
import json
import os
import subprocess
import sys

import ray

# A server that ends as soon as standard input does, which a dead process cannot keep open. No child of
# this process waits for that: Ray would kill it first.
WITH_ME = 'exec 3<&0; (WORKER=$PPID "$@" 3<&- & exec >/dev/null; cat <&3; kill "$!") &'
SERVERS = {}  # this process's, by command, and where each listens: Ray's tasks there share it


def server_of(command):
    """Where the `kiln serve` of this process listens. In a worker."""
    if command not in SERVERS:
        child = subprocess.Popen(['sh', '-c', WITH_ME, 'sh', *command], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        where = child.stdout.readline().strip()
        if not where:
            raise RuntimeError(f'{" ".join(command)}: it has not begun, as it says above')
        SERVERS[command] = child, where.removeprefix('http://')
    return SERVERS[command][1]


def answers(command, path, form):
    """What the server says to a piece, by the order of its lines, and who it is. In a worker."""
    connection = http.client.HTTPConnection(server_of(command))
    try:
        connection.request('POST', path, json.dumps(form), {'Content-Type': 'application/json'})
        answer = connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException) as error:
        SERVERS.pop(command)
        raise ConnectionError(f'{" ".join(command)}: {error}') from error
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f'{" ".join(command)}: {answer.status}: {said.decode()}')
    made = sorted(json.loads(said)['choices' if 'prompt' in form else 'data'],
                  key=lambda one: one['index'])
    return os.getpid(), [one['text' if 'prompt' in form else 'embedding'] for one in made]


def request_of(options, lines):
    """The path and the form that ask for these lines."""
    if options.vectors:
        return '/v1/embeddings', {'model': 'lines', 'input': lines}
    return '/v1/completions', {'model': 'lines', 'prompt': lines, 'temperature': 0,
                               'max_tokens': options.tokens}


def pieces_of(file, size):
    """Lists of so many lines, without their ends."""
    while piece := [line.rstrip('\n') for line in itertools.islice(file, size)]:
        yield piece


def write_all(begin, pieces, ahead, output):
    """How many lines each worker has done. `ahead` pieces at most are under way."""
    done, under_way = collections.Counter(), collections.deque()
    for piece in itertools.chain(pieces, itertools.repeat(None)):
        if piece:
            under_way.append((begin(piece), len(piece)))
        elif not under_way:
            return done
        if not piece or len(under_way) == ahead:
            reference, wanted = under_way.popleft()
            worker, made = ray.get(reference)
            if len(made) != wanted:
                raise RuntimeError(f'{len(made)} answers to {wanted} lines')
            output.writelines(json.dumps(one, ensure_ascii=False) + '\n' for one in made)
            done[worker] += wanted


def parsed():
    parser = argparse.ArgumentParser(description='`kiln serve` by the workers of Ray.')
    parser.add_argument('--kiln', default='kiln', help='the program, on each worker (%(default)s)')
    parser.add_argument('--model', required=True, help='as kiln serve has it, on each worker')
    parser.add_argument('--vectors', action='store_true', help='of an encoder, instead of texts')
    parser.add_argument('--tokens', type=int, default=64, help='of a text at most (%(default)s)')
    parser.add_argument('--address', help="of a cluster, or auto; none: this machine's own")
    parser.add_argument('--workers', type=int, default=2, help='at once (%(default)s)')
    parser.add_argument('--gpus', type=float, default=0, help='of each worker (%(default)s)')
    parser.add_argument('--piece', type=int, default=64, help='lines at once (%(default)s)')
    parser.add_argument('--output', help='a text file; none: the standard output')
    parser.add_argument('lines', help='a file of lines')
    parser.add_argument('more', nargs='*', help='options of kiln serve, behind --')
    return parser.parse_args()


def main():
    options = parsed()
    command = (options.kiln, 'serve', '--port', '0', *options.more, f'lines={options.model}')
    own = {} if options.address else {'num_cpus': options.workers, 'include_dashboard': False}
    task = ray.remote(num_cpus=1, num_gpus=options.gpus, max_retries=3,
                      retry_exceptions=[ConnectionError])(answers)
    with ray.init(address=options.address, **own), open(options.lines, encoding='utf-8') as file:
        output = open(options.output, 'w', encoding='utf-8') if options.output else sys.stdout
        with output:
            # Twice as many pieces as there are workers: none waits for the one that writes.
            done = write_all(lambda piece: task.remote(command, *request_of(options, piece)),
                             pieces_of(file, options.piece), 2 * options.workers, output)
    print(f'{sum(done.values())} lines by {len(done)} workers', file=sys.stderr)


if __name__ == '__main__':
    main()
