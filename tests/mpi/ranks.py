# SPDX-License-Identifier: Apache-2.0
"""Ranks of mpi4py train a linear model together, beside numpy in float64: tests/mpi/test_mpi.sh."""
import mpi4py
mpi4py.rc.thread_level = 'serialized'
from mpi4py import MPI  # noqa: E402
import numpy as np  # noqa: E402

import kiln  # noqa: E402

STEPS, ROWS, RATE = 5, 12, 0.1
comm = MPI.COMM_WORLD
random = np.random.RandomState(3)
x, y = random.rand(ROWS, 4).astype('f'), random.rand(ROWS, 1).astype('f')

# Alone, on all rows.
wanted, losses = np.ones((4, 1)), []
for _ in range(STEPS):
    error = x.astype('d') @ wanted - y
    losses.append((error ** 2).mean())
    wanted -= RATE * 2 / ROWS * x.astype('d').T @ error

# Together: the last rank has the rest of the rows, and only the first knows the first weights.
first = ROWS // 3 * comm.rank
own = slice(first, ROWS if comm.rank == comm.size - 1 else first + ROWS // 3)
context = kiln.Context()
w = kiln.Buffer(np.full((4, 1), 1 if comm.rank == 0 else np.nan, 'f'), context=context)
optimizer = kiln.optim.SGD(w, learning_rate=RATE)
rows = own.stop - own.start

with kiln.Ranks(comm, bucket_bytes=8) as ranks:
    stale = w + 1
    ranks.broadcast({'w': w, 'optimizer': optimizer.state})
    try:
        stale.numpy()
        raise SystemExit('a tensor of what was there before the broadcast has a value')
    except kiln.Error:
        pass
    with kiln.Parallel(
            lambda i: kiln.value_and_grad(lambda p: kiln.mean((x[own] @ p - y[own]) ** 2))(w),
            lambda i, gradients: optimizer.step(gradients), [context], shares=[rows],
            ranks=ranks) as parallel:
        for wanted_loss in losses:
            loss = comm.allreduce(parallel.step()[0].item() * rows / ROWS)
            np.testing.assert_allclose(loss, wanted_loss, 1e-5)
    np.testing.assert_allclose(w.numpy(), wanted, 1e-5)
    assert comm.bcast(w.numpy().tobytes()) == w.numpy().tobytes(), 'weights differ'

    # Each rank keeps a part of what the optimiser remembers: the weights of one alone. A whole optimiser
    # of the first rank gets the state, and gives it back.
    large = random.rand(64, 65).astype('f')
    def train(parameter, optimizer, **more):
        def loss(p):
            return kiln.mean((p * (comm.rank + 1)) ** 2)
        return kiln.Parallel(lambda i: kiln.value_and_grad(loss)(parameter),
                             lambda i, gradients: optimizer.step(gradients), [context], ranks=ranks,
                             **more)
    alone, apart = (kiln.Buffer(large, context=context) for _ in range(2))
    whole = kiln.optim.AdamW(alone)
    shard = ranks.shards([apart])[0]
    mine = kiln.optim.AdamW(shard)
    assert shard.shape == (2080,), shard.shape
    assert ranks.shards({'w': w})['w'] is w
    with train(alone, whole) as one, train(apart, mine, weights=apart, shards=[shard]) as other:
        for _ in range(3):
            before = apart + 0
            one.step(), other.step()
            try:
                before.numpy()
                raise SystemExit('a tensor of the weights before a step has a value')
            except kiln.Error:
                pass
    assert alone.numpy().tobytes() == apart.numpy().tobytes(), 'parts make other weights'
    state = [buffer.numpy() for buffer in mine.state]
    full = kiln.optim.AdamW(kiln.Buffer(large, context=context)) if comm.rank == 0 else None
    ranks.gather(mine.state, full and full.state)
    for found, known in zip(full.state if full else [], whole.state):
        assert found.numpy().tobytes() == known.numpy().tobytes(), 'another state when put together'
    for buffer in mine.state:
        buffer[...] = buffer * 0
    ranks.scatter(full and full.state, mine.state)
    for found, known in zip(mine.state, state):
        assert found.numpy().tobytes() == known.tobytes(), 'another state when given back'
    for wrong in (lambda: train(apart, mine, weights=[w, w], shards=[shard]),
                  lambda: ranks.gather(mine.state, [w])):
        try:
            wrong()
            raise SystemExit('lists of other lengths are taken')
        except ValueError:
            pass

    # What is raised in one rank, the others are told.
    def record(i):
        if comm.rank == comm.size - 1:
            raise KeyError('not here')
        return kiln.value_and_grad(lambda p: kiln.mean(p))(w)
    try:
        kiln.Parallel(record, lambda i, g: optimizer.step(g), [context], ranks=ranks)
        raise SystemExit('an error of another rank is not told')
    except KeyError:
        assert comm.rank == comm.size - 1
    except kiln.Error as error:
        assert f'rank {comm.size - 1} of {comm.size} has failed' in str(error), error
    late = kiln.Parallel(lambda i: kiln.value_and_grad(lambda p: kiln.mean(p))(w),
                         lambda i, gradients: optimizer.step(gradients), [context], ranks=ranks)
    try:
        kiln.Ranks(1)
        raise SystemExit('1 is a communicator')
    except TypeError:
        pass
for call in lambda: ranks.broadcast(w), late.step:
    try:
        call()
        raise SystemExit('ranks that have parted go on')
    except kiln.Error:
        pass
if comm.rank == 0:
    print('python: well')
