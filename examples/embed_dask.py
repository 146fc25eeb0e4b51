#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kiln embed` by the workers of Dask, on this machine or on many:

    python3 examples/embed_dask.py --model FOLDER --output vectors.txt lines.txt
    python3 examples/embed_dask.py --scheduler tcp://host:8786 --model FOLDER lines.txt

The lines are cut into pieces, and a worker gives each to a `kiln embed` of its own, whose model and
kernels come from files: pieces of some 10,000 lines make up for the start. A piece whose worker dies
is given to another one. Only this process writes, in the order of the lines and once each, so that
nothing is there twice or missing. With --scheduler all machines have kiln and the model where this
one has them, and `dask worker --nthreads 1` runs once for each device.

It needs Dask: `pip install distributed`, or Debian's python3-distributed.
"""
import argparse
import collections
import itertools
import logging
import subprocess
import sys

import distributed


def embed(command, lines):
    """The vectors of these lines, one a line, as `kiln embed` prints them. In a worker."""
    done = subprocess.run(command, input=b''.join(lines), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    vectors = done.stdout.splitlines(keepends=True)
    if done.returncode or len(vectors) != len(lines):
        said = done.stderr.decode(errors='replace').strip()
        raise RuntimeError(f'{" ".join(command)}: {len(vectors)} vectors of {len(lines)} lines, '
                           f'status {done.returncode}: {said}')
    return distributed.get_worker().address, vectors


def pieces_of(file, size):
    """Lists of so many lines, each with its end."""
    while piece := [line if line.endswith(b'\n') else line + b'\n'
                    for line in itertools.islice(file, size)]:
        yield piece


def write_all(client, command, pieces, ahead, output):
    """How many lines each worker has done. `ahead` pieces at most are under way."""
    done, under_way = collections.Counter(), collections.deque()
    for piece in itertools.chain(pieces, itertools.repeat(None)):
        if piece:
            # pure=False: equal pieces are computed as often as they come.
            under_way.append(client.submit(embed, command, piece, pure=False))
        elif not under_way:
            return done
        if not piece or len(under_way) == ahead:
            worker, vectors = under_way.popleft().result()
            output.writelines(vectors)
            done[worker] += len(vectors)


def parsed():
    parser = argparse.ArgumentParser(description='`kiln embed` by the workers of Dask.')
    parser.add_argument('--kiln', default='kiln', help='the program, on each worker (%(default)s)')
    parser.add_argument('--model', required=True, help='as kiln embed has it, on each worker')
    parser.add_argument('--scheduler', help="of workers that run already; none: this machine's own")
    parser.add_argument('--workers', type=int, default=2, help='without --scheduler (%(default)s)')
    parser.add_argument('--piece', type=int, default=10000, help='lines at once (%(default)s)')
    parser.add_argument('--output', help='a text file; none: the standard output')
    parser.add_argument('lines', help='a file of lines')
    parser.add_argument('more', nargs='*', help='options of kiln embed, behind --')
    return parser.parse_args()


def main():
    options = parsed()
    command = [options.kiln, 'embed', '--model', options.model, *options.more, '-']
    if options.scheduler:
        client = distributed.Client(options.scheduler)
    else:
        client = distributed.Client(n_workers=options.workers, threads_per_worker=1, processes=True,
                                    dashboard_address=None, silence_logs=logging.ERROR)
    with client, open(options.lines, 'rb') as file:
        output = open(options.output, 'wb') if options.output else sys.stdout.buffer
        with output:
            done = write_all(client, command, pieces_of(file, options.piece),
                             4 * max(len(client.nthreads()), 1), output)
    print(f'{sum(done.values())} lines by {len(done)} workers', file=sys.stderr)


if __name__ == '__main__':  # workers import this file
    main()
