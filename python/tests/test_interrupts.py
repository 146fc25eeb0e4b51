# SPDX-License-Identifier: Apache-2.0
"""Exceptions in the middle, as of Ctrl-C: one is raised at every line of the package that runs during an
evaluation, in turn, and what is computed next is right, or an error, and right after that. Then a visit,
as of a signal handler or a finaliser, which uses the package at that line: nothing hangs, and all is right.

A line is met once, those of tapes once for each scene; with $KILN_INTERRUPTS=all each is as often as it
runs, and so is each instruction of Python's. Finalisers are left out: Python itself drops what they raise."""
import asyncio
import collections
import contextlib
import faulthandler
import gc
import logging
import os
import pathlib
import sys
import tempfile
import time
import unittest

import numpy as np

import kiln
from test_onnx import W, model

FOLDER = str(pathlib.Path(kiln.__file__).parent)
ALL = os.environ.get('KILN_INTERRUPTS') == 'all'
X = np.arange(8, dtype=np.float32)
HANGS = 120  # seconds


class Interrupt(KeyboardInterrupt):
    """The one that is raised here."""


class Injection:
    """Raises at the line, or instruction, number `at` of those that count; or calls `visit` there."""

    elsewhere = set()  # what earlier scenes have met

    def __init__(self, at, event, every, visit=None):
        self.visit = visit
        self.left, self.event, self.every = at, event, every
        self.met, self.raised = set(), False

    def start(self, frame, event, _):
        code = frame.f_code
        caller = frame.f_back
        if not code.co_filename.startswith(FOLDER) or code.co_name == '_release' or \
                caller and caller.f_code.co_name == '_release':
            return None
        frame.f_trace_opcodes = self.event == 'opcode'
        return self.line

    def line(self, frame, event, _):
        if event == self.event and not self.raised and self.counts(frame):
            self.left -= 1
            if self.left < 0:
                self.raised = True
                if self.visit is None:
                    raise Interrupt
                with contextlib.suppress(kiln.Error):  # such as: no value can be had now
                    self.visit()
        return self.line

    def counts(self, frame):
        place = frame.f_code, frame.f_lasti if self.event == 'opcode' else frame.f_lineno
        counted = self.every or place not in self.met and (*place, self.visit is None) not in self.elsewhere
        self.met.add(place)
        return counted

    def leave_to_this(self):
        """What it has met need not be met again."""
        self.elsewhere.update((*place, self.visit is None) for place in self.met
                              if not place[0].co_filename.endswith('_tape.py'))

    def run(self, act):
        """Whether `act` ended before the exception came."""
        sys.settrace(self.start)
        try:
            act()
        except Interrupt:
            pass
        except kiln.Error:
            if not self.raised:
                raise
        finally:
            sys.settrace(None)
        return not self.raised


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


class Scene:
    """Something that is evaluated again and again: act(), and what has to be true then: check()."""

    spare = 12  # objects that it may hold at times

    def act(self):
        raise NotImplementedError

    def check(self):
        np.testing.assert_array_equal((kiln.tensor(X) + 1).numpy(), X + 1)

    def visit(self):
        """What a signal handler does meanwhile."""
        np.testing.assert_array_equal((kiln.tensor(X) + 2).numpy(), X + 2)
        kiln.default_context().stats


class Tensors(Scene):
    """What the thread's usual batch holds, by reading and on the device."""

    def __init__(self):
        self.before = kiln.tensor(X) - 1

    def act(self):
        y = kiln.tensor(X) * 5
        np.testing.assert_array_equal((self.before + y).numpy(), X * 6 - 1)
        self.kept = (y.sum() + X).named('kept').eval()
        self.before = kiln.tensor(X) - 1
        kiln.evaluate(self.kept, y)

    def check(self):
        super().check()
        np.testing.assert_array_equal((self.before * 2).numpy(), X * 2 - 2)
        np.testing.assert_array_equal(self.kept.numpy(), X + 140)


class Written(Scene):
    """A buffer that counts: `old` is its content at some time, asked for when it is written."""

    def __init__(self):
        self.w = kiln.Buffer(np.zeros(8, np.float32))
        self.at_least = 0

    def act(self):
        self.old = self.w * 1
        self.step()

    def step(self):
        self.w[...] = self.w + 1

    def check(self):
        super().check()
        content = self.w.numpy()
        count = content[0]
        np.testing.assert_array_equal(content, np.full(8, count))
        assert self.at_least <= count <= self.at_least + self.most, (self.at_least, count)
        try:
            np.testing.assert_array_equal((self.old + 0).numpy(), np.full(8, self.at_least))
        except kiln.Error as error:
            assert 'written since' in str(error), error
        self.at_least = count
        self.old = self.w * 1
        np.testing.assert_array_equal((self.w * 2).numpy(), content * 2)

    most = 1


class Parts(Written):
    """Its parts, from arrays and in the host's memory."""

    def step(self):
        count = self.w.numpy()[0]
        self.w[...] = np.full(8, count + 1, np.float32)
        with self.w.mapped() as memory:
            memory[:] = np.full(8, count + 2)
        self.w[2:6] = self.w[2:6]

    most = 2


class Block(Written):
    """The same in a `with kiln.batch()`, run twice."""

    def step(self):
        with kiln.batch() as b:
            self.w[...] = self.w + 1
            total = b.read(self.w.sum())
            b.explain()
            after = b.read(self.w * 1)
        np.testing.assert_array_equal(after.numpy() * 8, total.numpy())
        b.run()

    most = 2


class Functions(Written):
    """The same in a kiln.function."""

    def __init__(self):
        super().__init__()

        def step(x):
            self.w[...] = self.w + 1
            return x * 3
        self.function = kiln.function(step)
        self.fresh = lambda: kiln.function(step)
        self.doubled = kiln.function(lambda x: x * 2)

    def step(self):
        self.function = self.fresh()  # which is recorded now
        self.function(X)
        self.function(X)
        self.doubled(X)

    def visit(self):
        super().visit()
        np.testing.assert_array_equal(self.doubled(X).numpy(), X * 2)

    def check(self):
        super().check()
        np.testing.assert_array_equal(self.function(X + 1).numpy(), (X + 1) * 3)
        np.testing.assert_array_equal(self.doubled(X + 1).numpy(), X * 2 + 2)
        self.at_least += 1
        self.old = self.w * 1

    most = 2


class Steps(Written):
    """The same by an optimiser, alone, in a batch and in a function with gradients."""

    def __init__(self):
        super().__init__()
        self.optimizer = kiln.optim.SGD([self.w], learning_rate=1)
        self.function = kiln.function(self.descend)

    def descend(self):
        value, gradients = kiln.value_and_grad(lambda w: -w.sum())(self.w)
        self.optimizer.step([gradients])
        return value

    def step(self):
        self.descend()
        with kiln.batch():
            self.descend()
        self.function()

    most = 3


class Gradients(Scene):
    """Gradients, of gradients, of what has several outputs."""

    def act(self):
        first = kiln.grad(lambda x: (x * x * x + kiln.split(x, 2)[0].sum()).sum())
        second = kiln.grad(lambda x: first(x).sum())(X)
        np.testing.assert_array_equal(second.numpy(), 6 * X)
        x = kiln.tensor(X) * 2
        (value, more), gradient = kiln.value_and_grad(lambda y: (y.sum(), y * 2), has_aux=True)(x)
        np.testing.assert_array_equal(gradient.numpy(), np.ones(8))
        np.testing.assert_array_equal(more.numpy(), X * 4)

    def check(self):
        super().check()
        np.testing.assert_array_equal(kiln.grad(lambda x: (x * X).sum())(X).numpy(), X)


class Random(Scene):
    """Keys of a generator: none twice."""

    def __init__(self):
        self.generator = kiln.random.Generator(3)
        self.function = kiln.function(lambda: self.generator.uniform(4))
        self.seen = set()

    def act(self):
        self.note(self.generator.uniform(4))
        self.note(self.function())

    def note(self, drawn):
        numbers = tuple(drawn.tolist())
        assert numbers not in self.seen, 'numbers that were drawn before'
        self.seen.add(numbers)

    def check(self):
        super().check()
        self.act()


class Requests(Scene):
    """An executor's: waited for, forgotten, cancelled, awaited by two."""

    spare = 80  # which are swept when there are 64

    def __init__(self):
        self.executor = kiln.Executor(lambda x: x[0] * 2, [kiln.Row((8,))], max_batch=4, max_wait=0)

    def visit(self):
        super().visit()
        row, called = X.reshape(1, 8), []
        future = self.executor.submit(row)
        if hasattr(self, 'future'):
            self.future.add_done_callback(called.append)
            self.future.result(60)
            wait_until(lambda: called == [self.future])  # by a thread of the executor
        np.testing.assert_array_equal(future.result(60), row * 2)

    def act(self):
        rows = np.stack([X, X + 1])
        self.executor.submit(rows)
        future = self.executor.submit(rows, deadline=60)
        self.future = future
        future.add_done_callback(lambda _: None)
        np.testing.assert_array_equal(future.result(60), rows * 2)
        np.testing.assert_array_equal(self.executor.run(rows), rows * 2)
        self.executor.submit(rows).cancel()
        asyncio.run(self.awaited(rows))

    async def awaited(self, rows):
        future = self.executor.submit(rows)

        async def one():
            return await future
        for result in await asyncio.wait_for(asyncio.gather(one(), one()), 60):
            np.testing.assert_array_equal(result, rows * 2)

    def check(self):
        super().check()
        row = X.reshape(1, 8)
        np.testing.assert_array_equal(self.executor.submit(row).result(60), row * 2)
        self.executor.stats
        self.executor.metrics()


class Made(Scene):
    """Executors and contexts themselves, and closing them."""

    def act(self):
        with kiln.Context() as context:
            context.host_array(4)[:] = 1
            with kiln.Executor(lambda x: x[0] + 1, [kiln.Row((8,))], max_batch=2,
                               contexts=[context]) as executor:
                executor.submit(X.reshape(1, 8))
        kiln.default_context().stats


class Models(Scene):
    """A model of ONNX, run and recorded."""

    def __init__(self):
        self.model = kiln.Model(model())

    def visit(self):
        super().visit()
        self.check_model(np.float32([[1, 4]]))

    def act(self):
        self.check_model(np.float32([[1, 2], [-3, 1]]))
        self.model = kiln.Model(model())
        x = np.float32([[1, 2]])
        np.testing.assert_array_equal((self.model.record(x)['y'] + 1).numpy(),
                                      np.maximum(x @ W, 0) + 1)

    def check_model(self, x):
        np.testing.assert_array_equal(self.model(x=x)['y'], np.maximum(x @ W, 0))

    def check(self):
        super().check()
        self.check_model(np.float32([[2, 5], [1, 1]]))


class Files(Scene):
    """Buffers saved and loaded: old content or new, never a part."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, 'a.safetensors')
        self.w = kiln.Buffer(X)
        self.count = 0

    def act(self):
        self.count += 1
        kiln.save(self.path, {'w': kiln.tensor(X + self.count), 'more': [X]})
        np.testing.assert_array_equal(kiln.load(self.path)['w'].numpy(), X + self.count)
        before = self.w.numpy()
        self.old, self.before = self.w * 1, before
        kiln.load_into(self.path, {'w': self.w})

    def check(self):
        super().check()
        if os.path.exists(self.path):
            found = kiln.load(self.path)['w'].numpy() - X
            np.testing.assert_array_equal(found, np.full(8, found[0]))
        content = self.w.numpy() - X
        np.testing.assert_array_equal(content, np.full(8, content[0]))
        if hasattr(self, 'old'):
            try:
                np.testing.assert_array_equal(self.old.numpy(), self.before)
            except kiln.Error as error:
                assert 'written since' in str(error), error


class Shown:
    """What has DLPack, and no more."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **options):
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Capsules(Scene):
    """Memory that goes by DLPack: bf16, tensors and buffers."""

    def __init__(self):
        self.x = kiln.tensor(X).astype('bf16').eval()
        self.w = kiln.Buffer(X, 'bf16')
        self.twice = kiln.function(lambda x: x * 2)

    def act(self):
        self.x.__dlpack__()
        for x in self.x, self.w:
            np.testing.assert_array_equal((kiln.from_dlpack(Shown(x)) + 1).numpy(), X + 1)
        np.testing.assert_array_equal(self.twice(Shown(self.w)).numpy(), X * 2)
        np.testing.assert_array_equal(kiln.asarray(Shown(self.x), copy=False).astype('f32').numpy(), X)


class Training(Scene):
    """Steps on several contexts."""

    def __init__(self):
        self.context = kiln.Context()
        self.w = kiln.Buffer(np.zeros(8, np.float32), context=self.context)

        def update(_, gradients):
            self.w[...] = self.w - gradients[0]
        self.training = kiln.Parallel(
            lambda _: kiln.value_and_grad(lambda w: -w.sum(), 0)(self.w), update, [self.context])

    def act(self):
        before = self.w.numpy()
        self.old, self.before = self.w * 1, before
        self.training.step()

    def check(self):
        content = self.w.numpy()
        np.testing.assert_array_equal(content, np.full(8, content[0]))
        assert content[0] - self.before[0] in (0, 1)
        try:
            np.testing.assert_array_equal(self.old.numpy(), self.before)
        except kiln.Error as error:
            assert 'written since' in str(error), error
        self.before = content
        super().check()


def alive():
    gc.collect()
    return len(kiln._library._alive)


class Everywhere(unittest.TestCase):
    counts = collections.Counter()

    @classmethod
    def setUpClass(cls):
        # What Python drops: in a callback that the library calls in this thread.
        cls.hook, sys.unraisablehook = sys.unraisablehook, cls.note_dropped
        logging.getLogger('asyncio').setLevel(logging.CRITICAL)

    @classmethod
    def note_dropped(cls, dropped):
        if isinstance(dropped.exc_value, Interrupt):
            cls.counts['dropped by Python'] += 1
        else:
            cls.hook(dropped)

    @classmethod
    def tearDownClass(cls):
        sys.unraisablehook = cls.hook
        logging.getLogger('asyncio').setLevel(logging.NOTSET)
        print('# ' + ', '.join(f'{n} {what}' for what, n in cls.counts.items()))

    def play(self, kind, event, every, visited=False):
        scene = kind()
        scene.act()
        scene.check()
        base = most = alive()
        at = 0
        while True:
            faulthandler.dump_traceback_later(HANGS, exit=True)
            injection = Injection(at, event, every, scene.visit if visited else None)
            if injection.run(scene.act):
                if event == 'line':
                    injection.leave_to_this()
                break
            self.counts[('visits at ' if visited else 'interrupts at ') + event + 's'] += 1
            try:
                scene.check()
            except kiln.Error as error:
                self.counts['errors that follow'] += 1
                first = str(error)
                try:
                    scene.check()
                except kiln.Error as error:
                    self.fail(f'{kind.__name__}, {event} {at}: {first}; then {error}')
            except AssertionError as error:
                self.fail(f'{kind.__name__}, {event} {at}: {error}')
            if at % 50 == 0:
                most = max(most, alive())
            at += 1
        faulthandler.cancel_dump_traceback_later()
        self.assertGreater(at, 10)
        self.assertLessEqual(most, base + kind.spare, 'objects that nobody releases')

    def scene(self, kind):
        self.play(kind, 'line', ALL)
        self.play(kind, 'line', ALL, visited=True)
        if ALL:
            self.play(kind, 'opcode', False)


def _add(kind):
    def test(self):
        self.scene(kind)
    test.__doc__ = 'an exception at each line: ' + kind.__doc__[0].lower() + kind.__doc__[1:]
    setattr(Everywhere, 'test_' + kind.__name__.lower(), test)


for _kind in (Tensors, Written, Parts, Block, Functions, Steps, Gradients, Random, Requests, Made,
              Models, Files, Capsules, Training):
    _add(_kind)


if __name__ == '__main__':
    unittest.main()
