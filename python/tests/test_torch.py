# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="kiln") beside PyTorch's own results; skipped without PyTorch."""
import copy
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec('torch'):
    import torch
    import torch.nn.functional as F
    from torch import nn
    import kiln
    import kiln.torch


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend=kiln.torch.backend, fullgraph=True, **options)


@unittest.skipUnless(importlib.util.find_spec('torch'), 'PyTorch is not there')
class Compiled(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def same(self, function, *inputs, **options):
        """Results, their types and layouts are as without kiln, in a second call, too."""
        call = compiled(function, **options)
        for _ in range(2):
            expected, got = function(*inputs), call(*inputs)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
            for a, b in zip(*map(torch.utils._pytree.tree_leaves, (got, expected))):
                if isinstance(b, torch.Tensor):
                    self.assertEqual((a.dtype, a.stride()), (b.dtype, b.stride()))
        return call

    def test_inference(self):
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                              nn.Linear(12, 4)).eval()
        with torch.no_grad():
            self.same(model, torch.randn(2, 2, 6, 6))

    def test_training(self):
        """Steps of training with dropout, whose losses are those without kiln."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
                self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 9)

            def forward(self, tokens):
                x = self.norm(self.table(tokens)).view(2, 4, 2, 4).transpose(1, 2)
                x = x + F.scaled_dot_product_attention(x, x, x, is_causal=True)
                return self.last(self.drop(x.transpose(1, 2).reshape(2, 4, 8)))
        first = Net()
        tokens = torch.randint(9, (2, 4))
        losses = []
        with self.assertLogs('kiln.torch', 'INFO') as log:
            self.train(first, tokens, losses)
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        self.assertLess(losses[1][-1], losses[1][0])
        self.assertEqual([line[-12:] for line in log.output if 'batches' in line], ['in 1 batches'] * 2)

    def test_batch_norm(self):
        """Training of it, and of normalised weights, is a batch forward and one backward; its running
        averages are as without kiln."""
        models = [nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3), dim=0),
                                nn.BatchNorm2d(3), nn.ReLU()) for _ in range(2)]
        models[1].load_state_dict(models[0].state_dict())
        x = torch.randn(4, 2, 5, 5)
        with self.assertLogs('kiln.torch', 'INFO') as log:
            for model, call in ((models[0], models[0]), (models[1], compiled(models[1]))):
                call(x).square().sum().backward()
        self.assertEqual([line[-12:] for line in log.output], ['in 1 batches'] * 2)
        for a, b in zip(models[1].parameters(), models[0].parameters()):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(models[1].state_dict(), models[0].state_dict())

    def train(self, first, tokens, losses):
        for model in (first, copy.deepcopy(first)):
            call = compiled(model) if losses else model
            torch.manual_seed(1)
            optimizer = torch.optim.Adam(model.parameters(), 0.02)
            losses.append([])
            for _ in range(5):
                optimizer.zero_grad()
                loss = F.cross_entropy(call(tokens).flatten(0, 1), tokens.flatten())
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())

    def test_fallback(self):
        """What kiln lacks runs in PyTorch, between batches, and one line of the log says so."""
        kiln.torch._told.clear()
        with self.assertLogs('kiln.torch', 'WARNING') as log:
            self.same(lambda x: torch.lgamma(x * x + 1) * 2 - x, torch.randn(5))
        self.assertEqual(len(log.output), 1)
        self.assertIn('lgamma.default (no row)', log.output[0])

    def test_part_of_a_row(self):
        """An operator of which a result is wanted that its row does not give runs in PyTorch."""
        def function(x):
            return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x)
        self.same(function, torch.randn(1, 2, 3, 4))

    def test_types(self):
        """Doubles stay PyTorch's; integers and masks are what they are."""
        def function(a, b, mask):
            return a + b, a // 3, a * 2.5, (a > b) & mask, b.to(torch.float64) / 3, ~mask
        self.same(function, torch.arange(-4, 4), torch.arange(8, dtype=torch.int32).flip(0),
                  torch.arange(8) % 2 == 0)

    def test_signs(self):
        self.same(lambda x: (x.sign(), torch.sgn(x)), torch.tensor([float('nan'), -2, -0.0, 3]))

    def test_orders(self):
        """Running results and orders, with equal elements and NaN among them."""
        nan = float('nan')
        x = torch.tensor([[2., 1, 2, -0.0, 2], [nan, 1, nan, 3, 3], [0, -1, -1, 4, 0]])
        self.same(lambda x: (x.cummax(1), x.cummin(1), x.cumprod(0), x.logcumsumexp(1)), x)
        self.same(lambda x: (x.median(1), x.nanmedian(1), x.nanmedian(), x.kthvalue(2, 1)), x)
        self.same(lambda x: (x.mode(1), x.cumprod(1), x.cummin(0)), torch.arange(12).view(3, 4) % 3)
        most = 2 ** 63 - 1  # which no double is
        first, places = torch.tensor([most, most, 5, -most - 1]), torch.tensor([0, 0, 1, 2])
        self.same(lambda x, i: (x.cummin(0), x.cummax(0), x.cummin(0)[0] == most,
                                x.scatter_reduce(0, i, x, 'amin', include_self=False) == most), first, places)

    def test_searching(self):
        """Where values belong among rows in order, on either side of equal ones."""
        rows = torch.tensor([[1., 2, 2, 5, 9], [0, 0, 0, 7, 7]])
        values = torch.tensor([[2., 0, 9, 10], [0, 7, -1, float('nan')]])
        self.same(lambda r, v: (torch.searchsorted(r, v), torch.searchsorted(r, v, right=True),
                                torch.bucketize(v, r[0], out_int32=True)), rows, values)
        self.same(lambda x: (x.histc(4, 0, 3), x.histc(5), x.histc(4, 2, 2)), torch.tensor([0., 3, 1, 2.5, 4, -1]))
        self.same(lambda x: torch.searchsorted(x, 2.5), torch.tensor([1, 2, 3]))

    def test_far_values(self):
        """Infinite elements, exponents of floats, a scale of 0, indices beyond a tensor."""
        inf, nan = float('inf'), float('nan')
        self.same(lambda x, y: torch.hypot(x, y), torch.tensor([inf, nan, 0, 3]), torch.tensor([nan, inf, 0, -4]))
        self.same(lambda x: (x ** 2.0, x ** 2), torch.tensor([100000, -3], dtype=torch.int32))
        self.same(lambda x: F.scaled_dot_product_attention(x, x, x, scale=0.0), torch.randn(1, 2, 3, 4))
        x = torch.randn(1, 1, 5, 6)
        x[0, 0, 0, 0] = inf
        self.same(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), x)
        at, also = torch.tensor([0, -9, 1]), torch.tensor([5, 0, 1])
        put = compiled(lambda x: x.index_put((at, also), torch.tensor(9.)))(torch.zeros(2, 3))
        self.assertEqual(put.tolist(), [[0, 0, 0], [0, 9, 0]])
        put = compiled(lambda x: x.index_put((at,), torch.tensor(9.)))(torch.zeros(4))
        self.assertEqual(put.tolist(), [9, 9, 0, 0])

    def test_putting(self):
        x, index = torch.arange(12.).view(4, 3), torch.tensor([0, 2, 0])
        values, mask = torch.randn(3, 3), torch.arange(12).view(4, 3) % 5 == 0
        self.same(lambda x, i, v, m: (
            x.masked_scatter(m, v), x.put(torch.tensor([1, -1, 5]), v[0], accumulate=True),
            *[x.index_reduce(0, i, v, kind, include_self=own) for own in (True, False)
              for kind in ('mean', 'amax', 'prod')],
            *[x.scatter_reduce(0, i.view(1, 3), v, kind, include_self=own) for own in (True, False)
              for kind in ('mean', 'amin', 'sum')]), x, index, values, mask)

    def test_classes(self):
        """The gradients of a loss by classes and of a small table are no scatters: some launches, not some for
        each. What is infinite or NaN in one row is in no other."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(7, 4, padding_idx=2)

            def forward(self, tokens):
                return F.cross_entropy(self.table(tokens) @ self.table.weight.t(), tokens, ignore_index=3)
        model, tokens = Net(), torch.tensor([0, 2, 3, 6, 0, 1])
        call = compiled(model)
        for _ in range(2):
            start = kiln.default_context().stats.launches
            call(tokens).backward()
            launches = kiln.default_context().stats.launches - start
        got = model.table.weight.grad
        model.table.weight.grad = None
        (model(tokens) * 2).backward()  # both calls' sum
        torch.testing.assert_close(got, model.table.weight.grad, rtol=1e-5, atol=1e-6)
        self.assertLessEqual(launches, 14)

        table, far = torch.zeros(7, 2, requires_grad=True), torch.tensor([float('nan'), 1, float('inf')])
        read = compiled(lambda table, tokens: F.embedding(tokens, table) * far[:, None])
        read(table, torch.tensor([5, 6, 0])).sum().backward()
        torch.testing.assert_close(table.grad[:, 0], torch.tensor([far[2], 0, 0, 0, 0, far[0], 1]),
                                   equal_nan=True)
        x, index = torch.randn(2, 3, 4), torch.tensor([[[1, 0, 2, 1]], [[2, 2, 0, 0]]])
        self.same(lambda x, i: (x.scatter(1, i, 2.5), x.scatter(-2, i[:, :, :3], 1), i.scatter(1, i * 0, 7)), x, index)

    def test_extents(self):
        """Pictures of other extents, and the gradients of that."""
        def function(x):
            made = [F.interpolate(x, size=(5, 4), mode=mode) for mode in
                    ('nearest', 'nearest-exact', 'bilinear', 'bicubic')]
            made += [F.interpolate(x, scale_factor=1.7, mode='bilinear', align_corners=True),
                     F.interpolate(x, scale_factor=0.6, mode='bilinear', antialias=True),
                     F.adaptive_avg_pool2d(x, (2, 5)), F.max_pool2d(x, 3, 2, 1)]
            return torch.cat([m.flatten() for m in made])
        x = torch.randn(2, 3, 7, 6, requires_grad=True)
        weights = torch.randn(function(x).shape)
        expected, = torch.autograd.grad((function(x) * weights).sum(), x)
        got, = torch.autograd.grad((compiled(function)(x) * weights).sum(), x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    def test_layouts(self):
        """Inputs that are no rows, results that are views, one that is an input."""
        x = torch.randn(3, 4)
        self.same(lambda x: (x + 1, x.t() * 2, x, x[1:]), x.t())
        self.same(lambda x: x * 2, x[:, ::2])
        self.same(lambda x: x * 2, torch.randn(1, 4).expand(3, 4))

    def test_mutation(self):
        def function(x, y):
            x.add_(1)
            y[1] = x.sum()
            return x * y
        expected = [torch.ones(3), torch.zeros(3)]
        got = copy.deepcopy(expected)
        product = function(*expected)
        torch.testing.assert_close(compiled(function)(*got), product)
        torch.testing.assert_close(got, expected)

    def test_other_sizes(self):
        """A size that changes is no new graph of PyTorch's after the second."""
        calls = []
        torch._dynamo.reset()

        def counting(gm, inputs, **options):
            calls.append(gm)
            return kiln.torch.backend(gm, inputs, **options)
        call = torch.compile(lambda x: (x * 2 + 1).sum(0), backend=counting, fullgraph=True)
        for rows in (2, 3, 5, 3, 7):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(call(x), (x * 2 + 1).sum(0))
        self.assertEqual(len(calls), 2)

    def test_weights(self):
        """A device with memory of its own keeps parameters, and gets them again when they change."""
        before = kiln.default_context()
        with kiln.Context(host_memory='separate') as context:
            kiln.set_default_context(context)
            try:
                self.weights_are_kept(context)
            finally:
                kiln.set_default_context(before)
                torch._dynamo.reset()

    def weights_are_kept(self, context):
        model, x = nn.Linear(4, 3), torch.randn(2, 4)
        call = compiled(model)
        of_input, of_all = 2 * 4 * 4, 2 * 4 * 4 + 3 * 4 * 4 + 3 * 4
        with torch.no_grad():
            for change, sent in ((None, of_all), (None, of_input),
                                 (model.weight.mul_, of_all - 3 * 4), (None, of_input)):
                if change:
                    change(2)
                start = context.stats.upload_bytes
                torch.testing.assert_close(call(x), model(x))
                self.assertEqual(context.stats.upload_bytes - start, sent)

    def test_no_copies(self):
        """Where the device works in the host's memory no step of training copies a tensor."""
        context = kiln.default_context()
        if not context.shares_host_memory:
            self.skipTest('the device has memory of its own')
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        call, x = compiled(model), torch.randn(3, 8)
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(3):
            start = context.stats
            call(x).square().sum().backward()
            optimizer.step()
            end = context.stats
            self.assertEqual((end.upload_bytes, end.download_bytes),
                             (start.upload_bytes, start.download_bytes))
            self.assertEqual(end.plans_made - start.plans_made, 0 if step else 2)

    def test_shared_inputs(self):
        """What several products read, and keep views of for their gradients, is written once: no copies."""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.parts = nn.Linear(4, 4), nn.ModuleList(nn.Linear(4, 3) for _ in range(3))

            def forward(self, x):
                y = self.first(x).tanh()
                return sum(part(y).square().sum() for part in self.parts)
        model, context = Net(), kiln.default_context()
        call, x = compiled(model), torch.randn(2, 3, 4)
        call(x).backward()
        got = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(x).backward()
        torch.testing.assert_close(got, [p.grad for p in model.parameters()])
        if context.shares_host_memory:
            start = context.stats.downloads
            call(x).backward()
            self.assertEqual(context.stats.downloads, start)

    def test_second_process(self):
        """What one process has compiled, the next one takes from the disk."""
        program = """if True:
            import sys, torch, kiln.torch
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
            call = torch.compile(model, backend=kiln.torch.backend)
            call(torch.randn(3, 8)).square().sum().backward()
            context = kiln.default_context()
            context.sync_cache()
            print(context.stats.kernels_compiled, context.stats.kernels_from_disk)"""
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, 'KILN_CACHE_DIR': os.path.join(folder, 'kiln'),
                           'POCL_CACHE_DIR': os.path.join(folder, 'pocl')}
            first, second = (list(map(int, subprocess.run(
                [sys.executable, '-c', program], env=environment, check=True, stdout=subprocess.PIPE
            ).stdout.split())) for _ in range(2))
        self.assertGreater(first[0], 0)
        self.assertEqual(second, [0, first[0]])

    def test_views(self):
        """Results that are views of inputs and of other results."""
        def function(x, w):
            y = x @ w.t() + 1
            return y, y.view(-1), y.t(), w.t(), w[1:] * 2
        x, w = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)
        call = self.same(function, x, w)
        sum((t * t).sum() for t in call(x, w)).backward()
        got, w.grad = w.grad, None
        sum((t * t).sum() for t in function(x, w)).backward()
        torch.testing.assert_close(got, w.grad)


        def parts_of(x):
            y = x + 1
            return y, y[:, ::2], y[0].expand(2, 4)
        whole, *parts = self.same(parts_of, x)(x)
        whole.zero_()
        self.assertEqual([part.count_nonzero() for part in parts], [0, 0])

    def test_many_sizes(self):
        """Sizes that change with every call compile no kernel after the second graph's first call."""
        call = compiled(lambda x: torch.softmax(x @ x.t(), 1).sum(0))
        context = kiln.default_context()
        for rows in (5, 9, 6, 11, 7, 13, 8):
            x = torch.randn(rows, 4)
            start = context.stats.kernels_compiled + context.stats.kernels_from_disk
            torch.testing.assert_close(call(x), torch.softmax(x @ x.t(), 1).sum(0))
            made = context.stats.kernels_compiled + context.stats.kernels_from_disk - start
            if rows not in (5, 9):
                self.assertEqual(made, 0, f'{rows} rows')

    def test_sizes_by_content(self):
        """A graph with a size that its content decides runs in PyTorch."""
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            self.same(lambda x: x.nonzero() + 1, torch.tensor([0., 2., 3.]))

    def test_random_order(self):
        """Random numbers are drawn in the order in which they are without kiln."""
        def function(x):
            a = torch.bernoulli((x * 2).clamp(0, 1))
            return a, torch.rand(3), torch.rand(2) * 2
        x = torch.rand(4)
        call = compiled(function)
        torch.manual_seed(3)
        expected = function(x)
        torch.manual_seed(3)
        torch.testing.assert_close(call(x), expected)

    def test_steps_of_dropout(self):
        """A mask is drawn into its tensor: the zeros that it is drawn for are not computed in each call."""
        made, compiled_graph = [], kiln.torch.Compiled

        def kept(*arguments):
            made.append(compiled_graph(*arguments))
            return made[-1]
        kiln.torch.Compiled = kept
        try:
            call = compiled(lambda x, w: F.dropout(x, 0.4) @ w.t())
            x, w = torch.randn(3, 4), torch.randn(5, 4)
            torch.manual_seed(3)
            expected = F.dropout(x, 0.4) @ w.t()
            torch.manual_seed(3)
            torch.testing.assert_close(call(x, w), expected)
        finally:
            kiln.torch.Compiled = compiled_graph
        self.assertEqual([len(graph.steps) for graph in made], [2])  # the mask, the batch

    def test_memory_of_results(self):
        """Whether results lie where those of the call before did or not, each call writes its own."""
        call, kept = compiled(lambda x: (x + 1, x * 2)), []
        for i in range(20):
            more, twice = call(torch.full((3,), float(i)))
            self.assertEqual((more.tolist(), twice.tolist()), ([i + 1] * 3, [i * 2] * 3))
            if i % 3 == 0:
                kept.append((i, more))
            del more, twice
        for i, more in kept:
            self.assertEqual(more.tolist(), [i + 1] * 3)

    def test_fresh_results(self):
        """Each call's result has memory of its own."""
        call = compiled(lambda x: x + 1)
        first = call(torch.zeros(4))
        second = call(torch.ones(4))
        self.assertEqual((first.tolist(), second.tolist()), ([1] * 4, [2] * 4))


if __name__ == '__main__':
    unittest.main()
