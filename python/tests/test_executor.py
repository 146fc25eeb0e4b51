# SPDX-License-Identifier: Apache-2.0
"""Executors, and random keys that are others in each run."""
import asyncio
import ctypes
import sys
import threading
import unittest
import unittest.mock

import numpy as np

import kiln


class Executors(unittest.TestCase):
    def test_requests(self):
        """requests of threads and of asyncio get their own rows back"""
        w = kiln.Buffer(np.float32([[1, 2, 3]]))
        failures = []

        def ask(executor, number):
            try:
                x = np.full((2, 3), number, np.float32)
                y, z = executor.submit(x, np.int32([number, 1])).result(60)
                np.testing.assert_array_equal(y, x * [[1, 2, 3]] + 1)
                np.testing.assert_array_equal(z, [number + 2, 3])
            except Exception as error:
                failures.append(error)

        async def ask_all(executor):
            return await asyncio.gather(*(ask_one(executor, k) for k in range(4)))

        async def ask_one(executor, number):
            return (await executor.submit(np.full((1, 3), number), [number]))[1].item()

        with kiln.Executor(lambda x: [x[0] * w + 1, x[1] + 2], [kiln.Row((3,)), kiln.Row((), 'i32')],
                           outputs=2, max_batch=8) as executor:
            threads = [threading.Thread(target=ask, args=(executor, n)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(asyncio.run(ask_all(executor)), [2, 3, 4, 5])
            self.assertEqual(executor.run(np.ones((20, 3)), np.arange(20))[1].tolist(),
                             list(range(2, 22)))
            self.assertGreaterEqual(executor.stats.completed, 8)
            self.assertIn('requests', executor.metrics())
            for _ in range(100):  # nobody waits for these
                executor.submit(np.ones((1, 3)), [1])
            with self.assertRaisesRegex(ValueError, r'not \[rows, 3\]'):
                executor.submit(np.ones((1, 4)), [1])
        with self.assertRaisesRegex(kiln.Error, 'closed'):
            executor.submit(np.ones((1, 3)), [1])

    def test_callbacks(self):
        """what is to be called when a request has completed is, also too late and several times"""
        called, done = [], threading.Event()
        with kiln.Executor(lambda inputs: inputs[0] * 2, [((4,), 'f32')]) as executor:
            future = executor.submit(np.ones((3, 4), np.float32))
            future.add_done_callback(called.append)
            future.add_done_callback(lambda _: done.set())
            self.assertTrue(done.wait(60))
            future.add_done_callback(called.append)
            self.assertEqual(called, [future, future])
            np.testing.assert_array_equal(future.result(), np.full((3, 4), 2, np.float32))

    def test_callback_that_raises(self):
        """those behind a callback that raises are called"""
        called, told = threading.Event(), []
        with kiln.Executor(lambda x: x[0], [kiln.Row((4,))], max_batch=8, min_batch=8,
                           max_wait=600) as executor, \
                unittest.mock.patch('sys.unraisablehook', told.append):
            future = executor.submit(np.ones((1, 4)))
            future.add_done_callback(lambda _: 1 / 0)
            future.add_done_callback(lambda _: called.set())
            executor.submit(np.ones((7, 4)))  # with which the batch is full, and runs
            self.assertTrue(called.wait(60))
        self.assertIs(told[0].exc_type, ZeroDivisionError)

    def test_awaited_by_many(self):
        """tasks of two loops await one request, one of them in vain, while a thread waits for it"""
        with kiln.Executor(lambda x: x[0] * 2, [kiln.Row((4,))], max_batch=64, min_batch=64,
                           max_wait=600) as executor:
            future = executor.submit(np.ones((1, 4)))
            results = []

            async def one():
                results.append((await future).tolist())

            async def main():
                tasks = [asyncio.create_task(one()) for _ in range(4)]
                await asyncio.sleep(0.05)
                tasks[1].cancel()
                await asyncio.sleep(0)
                ready.wait(60)
                await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

            async def leave():
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(one(), 0.01)
            asyncio.run(leave())  # whose loop is closed when the request completes
            ready = threading.Barrier(3)
            threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
            threads.append(threading.Thread(target=lambda: results.append(future.result(60).tolist())))
            for thread in threads:
                thread.start()
            ready.wait(60)
            executor.submit(np.ones((63, 4)))  # with which the batch is full, and runs
            for thread in threads:
                thread.join(60)
            self.assertEqual(results, [[[2] * 4]] * 7)
            late = executor.submit(np.ones((1, 4)))
            late.cancel()

            async def cancelled():
                with self.assertRaisesRegex(kiln.Error, 'cancelled'):
                    await late
            asyncio.run(cancelled())

    def test_sequences(self):
        """rows of several lengths, and outputs that are as long"""
        def model(inputs):
            x, lengths, mask = inputs
            return [x * 2, kiln.where(mask, x, 0).sum(axis=1), lengths]
        with kiln.Executor(model, [kiln.Row((16,), sequence=True)], outputs=3, max_batch=2) as executor:
            futures = [executor.submit(np.ones((1, n)), length=n) for n in (3, 5)]
            for n, future in zip((3, 5), futures):
                doubled, sums, lengths = future.result(60)
                self.assertEqual(doubled.tolist(), [[2] * n])
                self.assertEqual((sums.item(), lengths.item()), (n, n))

    def test_sizes_of_lengths(self):
        """lengths between powers of two, and batches of a bounded number of elements"""
        def sizes(**options):
            seen = set()

            def model(inputs):
                seen.add(inputs[0].shape)
                return inputs[0] * 2
            with kiln.Executor(model, [kiln.Row((64,), sequence=True)], max_batch=8, prepare=True, retry=1,
                               **options) as executor:
                self.assertEqual(executor.submit(np.ones((1, 20)), length=20).result(60).tolist(), [[2] * 20])
            return seen
        all_rows = {(rows, length) for rows in (2, 4, 8) for length in (8, 16, 32, 64)}
        self.assertEqual(sizes(), all_rows)
        self.assertEqual(sizes(close_lengths=True) - all_rows, {(r, n) for r in (2, 4, 8) for n in (24, 48)})
        self.assertEqual(sizes(max_elements=128), {(r, n) for r, n in all_rows if r * n <= 128})

    def test_closed_meanwhile(self):
        """what one thread uses another may close: the call ends, and later ones say it is closed"""
        executor = kiln.Executor(lambda x: x[0] + 1, [kiln.Row((3,))], max_batch=2)
        context = kiln.Context()
        for owner, word in ((executor, 'executor'), (context, 'context')):
            held = owner._held()
            closer = threading.Thread(target=owner.close)
            closer.start()
            closer.join()
            # Closed, and not freed: the call holds it.
            if word == 'context':
                kiln._library.check(kiln._library.lib.kiln_context_finish(held))
            else:
                stats = kiln._library.struct('kiln_executor_stats')()
                kiln._library.check(kiln._library.lib.kiln_executor_get_stats(
                    held, *kiln._library.by_size(stats)))
            with self.assertRaisesRegex(kiln.Error, f'the {word} is closed'):
                owner.stats
            owner.close()

    def test_swept_while_submitting(self):
        """memory of a request stays lent if others are swept just before it is submitted"""
        x, kept = np.ones((1, 4), np.float32), []
        with kiln.Executor(lambda inputs: inputs[0] * 2, [kiln.Row((4,))]) as executor:
            def trace(frame, event, _):
                return sweep if frame.f_code is kiln.Executor.submit.__code__ else None

            def sweep(frame, event, _):
                future = frame.f_locals.get('future')
                if future is not None and id(future) in executor._waiting and not kept:
                    executor._sweep = 0
                    executor._sweep_waiting()
                    kept.append(id(future) in executor._waiting)
                return sweep
            sys.settrace(trace)
            try:
                future = executor.submit(x)
            finally:
                sys.settrace(None)
            np.testing.assert_array_equal(future.result(60), x * 2)
        self.assertEqual(kept, [True])

    def test_refused(self):
        """a function that cannot be recorded says why"""
        with self.assertRaisesRegex(kiln.Error, 'do not broadcast'):
            kiln.Executor(lambda x: x[0] + np.zeros(7, np.float32), [kiln.Row((3,))])
        with self.assertRaises(ZeroDivisionError):
            kiln.Executor(lambda x: 1 / 0, [kiln.Row((3,))])
        with self.assertRaisesRegex(ValueError, 'gives 2 outputs'):
            kiln.Executor(lambda x: [x[0], x[0]], [kiln.Row((3,))])

    def test_random(self):
        """keys: another in each call and in each run, the same of one seed"""
        def draw():
            generator = kiln.random.Generator(7)
            f = kiln.function(lambda: (generator.uniform(8), generator.uniform(8)))
            return [x.numpy().tolist() for x in
                    (*f(), *f(), generator.uniform(8), generator.uniform(8))]
        drawn = draw()
        self.assertEqual(len({tuple(x) for x in drawn}), 6)
        self.assertEqual(drawn, draw())


if __name__ == '__main__':
    unittest.main()
