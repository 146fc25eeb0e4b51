# SPDX-License-Identifier: Apache-2.0
"""Modules: their parameters and states, gradients by them, modes, functions, threads, first values."""
import copy
import math
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import kiln

nn = kiln.nn


def random(*shape, seed=1):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


class Network(nn.Module):
    """Parts in attributes, a list and a dict; two names of one weight; a buffer that is no parameter."""

    def __init__(self):
        self.layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.heads = {'a': nn.Linear(4, 2)}
        self.shift = kiln.Buffer(random(4))
        self.layers[1].weight = self.layers[0].weight
        self.register_buffer('seen', kiln.Buffer(np.ones(4, np.float32)))
        self.register_buffer('scratch', kiln.Buffer(np.zeros(2, np.float32)), persistent=False)
        self.rows = kiln.Buffer(np.int32([1, 2]))

    def forward(self, x):
        for layer in self.layers:
            x = kiln.tanh(layer(x))
        return self.heads['a'](x + self.shift * self.seen)


def squares(model, x):
    return kiln.sum(kiln.square(model(x)))


class Modules(unittest.TestCase):
    def test_names(self):
        model = Network()
        self.assertEqual([name for name, _ in model.named_parameters()], [
            'shift', 'layers.0.weight', 'layers.0.bias', 'layers.1.bias', 'heads.a.weight', 'heads.a.bias'])
        self.assertEqual([name for name, _ in model.named_buffers()], ['seen', 'scratch', 'rows'])
        self.assertEqual(list(model.state_dict()), [
            'layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias', 'heads.a.weight',
            'heads.a.bias', 'shift', 'seen', 'rows'])
        self.assertEqual([name for name, _ in model.named_modules()], ['', 'layers.0', 'layers.1', 'heads.a'])
        self.assertEqual(len(model.parameters()), 6)
        model.itself = model  # a circle is no trouble
        self.assertEqual(len(list(model.modules())), 4)
        self.assertEqual(len(model.state_dict()), 9)

    def test_containers(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.ModuleDict({'a': nn.Linear(3, 3)})['a'])
        self.assertEqual(list(model.state_dict()), ['0.weight', '0.bias', '2.weight', '2.bias'])
        self.assertEqual(len(model[1:]), 2)
        self.assertIs(model[1:][1], model[2])
        parts = nn.ModuleList([nn.Identity()]).append(nn.Tanh())
        self.assertEqual([type(part) for part in parts], [nn.Identity, nn.Tanh])
        self.assertEqual(list(nn.ModuleDict({'a': model}).state_dict())[0], 'a.0.weight')
        with self.assertRaisesRegex(TypeError, 'int is no kiln.nn.Module'):
            parts.append(3)

    def test_repr(self):
        model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Sequential(nn.ReLU()))
        self.assertEqual(repr(model), textwrap.dedent('''\
            Sequential(
              (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
              (1): Sequential(
                (0): ReLU()
              )
            )'''))
        self.assertIn('(heads.a): Linear(in_features=4, out_features=2, bias=True)', repr(Network()))

    # ---- gradients ----

    def test_gradients_are_those_of_plain_buffers(self):
        model, x = Network(), random(3, 4)
        value, found = kiln.value_and_grad(squares)(model, x)
        names = list(found)
        buffers = dict(model.named_parameters())

        def plain(p, x):
            for i in range(2):
                x = kiln.tanh(x @ p['layers.0.weight'].T + p[f'layers.{i}.bias'])
            return kiln.sum(kiln.square((x + p['shift']) @ p['heads.a.weight'].T + p['heads.a.bias']))
        wanted_value, wanted = kiln.value_and_grad(plain)(buffers, x)
        np.testing.assert_allclose(value.numpy(), wanted_value.numpy(), rtol=1e-5)
        self.assertEqual(names, list(buffers))
        for name in names:
            np.testing.assert_allclose(found[name].numpy(), wanted[name].numpy(), rtol=1e-4, atol=1e-5)

    def test_ways_to_the_module(self):
        """as an argument, from elsewhere, beside other arguments, and twice derived"""
        model, x = nn.Linear(4, 1), random(3, 4)
        wanted = kiln.grad(squares)(model, x)['weight'].numpy()
        found = kiln.grad(lambda _: squares(model, x))(model)['weight']
        np.testing.assert_array_equal(found.numpy(), wanted)
        of_model, of_x = kiln.grad(squares, (0, 1))(model, x)
        np.testing.assert_array_equal(of_model['weight'].numpy(), wanted)
        np.testing.assert_allclose(of_x.numpy(), 2 * model(x).numpy() * model.weight.numpy(), rtol=1e-5)
        nested = kiln.grad(lambda tree: squares(tree['m'][0], x) + kiln.sum(tree['s']))({'m': [model], 's': x})
        np.testing.assert_array_equal(nested['m'][0]['weight'].numpy(), wanted)
        # d/dw of |d/dw sum (wx + b)^2|^2 = 2 g . dg/dw, dg/dw = 2 x'x
        twice = kiln.grad(lambda m: kiln.sum(kiln.square(kiln.grad(squares)(m, x)['weight'])))(model)
        np.testing.assert_allclose(twice['weight'].numpy(), 2 * wanted @ (2 * x.T @ x), rtol=1e-4)

    def test_frozen(self):
        model, x = Network(), random(3, 4)
        model.layers[0].requires_grad_(False)
        names = ['shift', 'layers.1.bias', 'heads.a.weight', 'heads.a.bias']
        # The weight that is frozen has another name in a layer that is not.
        self.assertEqual(sorted(kiln.grad(squares)(model, x)), sorted([*names, 'layers.1.weight']))
        model.layers[1].requires_grad_(False)
        before = {name: b.numpy() for name, b in model.state_dict().items()}
        kiln.optim.SGD(model).step(kiln.grad(squares)(model, x))
        changed = [name for name, b in model.state_dict().items() if (b.numpy() != before[name]).any()]
        self.assertEqual(sorted(changed), ['heads.a.bias', 'heads.a.weight', 'shift'])

    def test_a_parameter_is_not_written_meanwhile(self):
        model = nn.Linear(2, 2)

        def loss(model):
            model.weight[...] = np.zeros((2, 2), np.float32)
            return kiln.sum(model.weight)
        with self.assertRaisesRegex(kiln.Error, 'a parameter is written while kiln.grad derives by it'):
            kiln.grad(loss)(model)
        self.assertTrue(model.weight.numpy().any())
        model.weight[...] = np.zeros((2, 2), np.float32)  # nothing is left of it

    def test_buffers_are_written_behind_a_derivation(self):
        count = kiln.Buffer(np.zeros(2, np.float32))

        def loss(x):
            count[...] = count + x
            count[...] = count * 2  # lines that follow mean the new content
            return kiln.sum(count * x)
        x = np.float32([1, 3])
        value, slope = kiln.value_and_grad(loss)(x)
        self.assertEqual(count.numpy().tolist(), [2, 6])
        self.assertEqual((float(value), slope.numpy().tolist()), (20, [4, 12]))
        twice = kiln.grad(lambda x: kiln.sum(kiln.grad(loss)(x)))(x)
        self.assertEqual((count.numpy().tolist(), twice.numpy().tolist()), ([6, 18], [4, 4]))
        with self.assertRaisesRegex(kiln.Error, 'a buffer is written while'):
            kiln.loop(2, lambda i, x: kiln.value_and_grad(loss)(x)[1], x)

    def test_clipped(self):
        model, x = nn.Linear(4, 1), random(3, 4)
        gradients = kiln.grad(squares)(model, x)
        clipped, norm = kiln.clip_by_norm(gradients, 0.5)
        size = math.sqrt(sum((g.numpy() ** 2).sum() for g in gradients.values()))
        np.testing.assert_allclose(norm.numpy(), size, rtol=1e-5)
        np.testing.assert_allclose(clipped['bias'].numpy(), gradients['bias'].numpy() * 0.5 / size, rtol=1e-5)

    # ---- functions and modes ----

    def test_a_second_call_compiles_and_records_nothing(self):
        model, x = Network(), random(3, 4)
        optimizer, recorded = kiln.optim.Adam(model), []

        @kiln.function
        def step(x):
            recorded.append(1)
            value, gradients = kiln.value_and_grad(squares)(model, x)
            optimizer.step(gradients)
            return value
        first = float(step(x))
        before = model.shift.context.stats
        rest = [float(step(x)) for _ in range(3)]
        after = model.shift.context.stats
        self.assertEqual((len(recorded), after.kernels_compiled), (1, before.kernels_compiled))
        self.assertLess(rest[-1], first)

    def test_a_module_is_an_argument_of_a_function(self):
        f = kiln.function(lambda model, x: model(x))
        one, other, x = nn.Linear(4, 2), nn.Linear(4, 2), random(3, 4)
        for model in one, other, one:
            np.testing.assert_array_equal(f(model, x).numpy(), model(x).numpy())
        self.assertEqual(f.recordings, 2)

    def test_modes(self):
        model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5))
        recorded = []

        @kiln.function
        def f(x):
            recorded.append(model[1].training)
            return model(x)
        x = random(3, 4)
        self.assertTrue((f(x).numpy() != f(x).numpy()).any())
        model.eval()
        self.assertFalse(model[1].training)
        np.testing.assert_array_equal(f(x).numpy(), f(x).numpy())
        model.train()
        self.assertTrue((f(x).numpy() != f(x).numpy()).any())
        model.eval()
        np.testing.assert_array_equal(f(x).numpy(), model(x).numpy())
        self.assertEqual(recorded, [True, False])

    def test_threads(self):
        model, xs = Network(), [random(3, 4, seed=i) for i in range(4)]
        derive = kiln.value_and_grad(squares)
        wanted = [(v.numpy(), {n: g.numpy() for n, g in gs.items()}) for v, gs in (derive(model, x) for x in xs)]
        start, step = threading.Barrier(4), kiln.function(lambda x: derive(model, x))

        def work(i):
            start.wait()
            for turn in range(6):
                value, gradients = (step if turn % 2 else lambda x: derive(model, x))(xs[i])
                plain = squares(model, xs[i])  # of the buffers themselves
                np.testing.assert_allclose(plain.numpy(), wanted[i][0], rtol=1e-5)
                np.testing.assert_allclose(value.numpy(), wanted[i][0], rtol=1e-5)
                for name, gradient in gradients.items():
                    np.testing.assert_allclose(gradient.numpy(), wanted[i][1][name], rtol=1e-4, atol=1e-5)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

    # ---- running averages ----

    def followed(self, xs, momentum=0.1):
        mean, var = np.zeros(2), np.ones(2)
        for i, x in enumerate(xs):
            share = 1 / (i + 1) if momentum is None else momentum
            mean += share * (x.mean((0, 2)) - mean)
            var += share * (x.var((0, 2), ddof=1) - var)
        return mean, var

    def test_running_averages(self):
        xs = [random(3, 2, 4, seed=i) * 2 + 1 for i in range(4)]

        def twice(model, x):
            return kiln.sum(model(x)) + kiln.sum(model(x))
        for momentum in 0.1, 0.3, None:
            for way, uses in (('call', 1), ('gradient', 2), ('function', 1), ('step', 2)):
                with self.subTest(way, momentum=momentum):
                    model = nn.BatchNorm1d(2, momentum=momentum)
                    run = {'call': model, 'gradient': lambda x: kiln.value_and_grad(twice)(model, x),
                           'function': kiln.function(model),
                           'step': kiln.function(lambda x: kiln.grad(twice)(model, x))}[way]
                    for x in xs:
                        run(x)
                    mean, var = self.followed([x for x in xs for _ in range(uses)], momentum)
                    np.testing.assert_allclose(model.running_mean.numpy(), mean, rtol=1e-5)
                    np.testing.assert_allclose(model.running_var.numpy(), var, rtol=1e-5)
        self.assertEqual(model.num_batches_tracked.numpy(), 8)

    def test_running_averages_stay_where_nothing_trains(self):
        model = nn.BatchNorm1d(2).eval()
        model(random(3, 2))
        self.assertEqual(model.running_mean.numpy().tolist(), [0, 0])
        loose = nn.BatchNorm1d(2, track_running_stats=False).eval()
        x = random(3, 2)
        np.testing.assert_allclose(loose(x).numpy().mean(0), [0, 0], atol=1e-6)
        self.assertEqual(list(loose.state_dict()), ['weight', 'bias'])

    # ---- random numbers ----

    def test_dropout(self):
        x = np.ones(20000, np.float32)
        layer = nn.Dropout(0.3)
        y = layer(x).numpy()
        self.assertEqual(set(y.tolist()), {0.0, float(np.float32(1 / np.float32(0.7)))})
        self.assertAlmostEqual((y == 0).mean(), 0.3, delta=0.02)
        self.assertIs(layer.eval()(x).numpy().all(), np.True_)
        self.assertFalse(nn.Dropout(1.0)(x).numpy().any())
        with self.assertRaisesRegex(ValueError, 'a probability is from 0 to 1, not 1.5'):
            nn.Dropout(1.5)

    def test_dropped_channels(self):
        x = np.ones((3, 200, 2, 2), np.float32)
        y = nn.Dropout2d(0.25)(x).numpy()
        self.assertEqual(set(y.ravel().tolist()), {0.0, float(np.float32(1 / np.float32(0.75)))})
        np.testing.assert_array_equal(y, np.broadcast_to(y[:, :, :1, :1], y.shape))
        self.assertAlmostEqual((y == 0).mean(), 0.25, delta=0.1)
        self.assertFalse((y[0] == y[1]).all())
        self.assertEqual(nn.Dropout3d()(x).shape, x.shape)  # without N
        np.testing.assert_array_equal(nn.Dropout1d().eval()(x[0]).numpy(), x[0])
        with self.assertRaisesRegex(kiln.Error, r'Dropout2d.*x \[3,200\] is not \[N,channels,...\] of 4 dimensions'):
            nn.Dropout2d()(x[:, :, 0, 0])

    def test_applied(self):
        model, seen = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU())), []

        def start(module):
            seen.append(type(module).__name__)
            if isinstance(module, nn.Linear):
                nn.init.constant_(module.weight, 2.0)
        self.assertIs(model.apply(start), model)
        self.assertEqual(seen, ['Linear', 'Linear', 'ReLU', 'Sequential', 'Sequential'])
        self.assertTrue((model[1][0].weight.numpy() == 2).all())

        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(np.ones(3, np.float32))
        self.assertEqual([name for name, _ in Own().named_parameters()], ['scale'])

    def test_one_seed_gives_the_same(self):
        x = np.ones((4, 8), np.float32)

        def made(seed):
            kiln.random.seed(seed)
            model = nn.Sequential(nn.Linear(8, 8), nn.Dropout())
            f = kiln.function(model)
            return [model(x).numpy(), model(x).numpy(), f(x).numpy(), f(x).numpy()]
        first, again, other = made(5), made(5), made(6)
        for i in range(4):
            np.testing.assert_array_equal(first[i], again[i])
            self.assertTrue((first[i] != other[i]).any())
        self.assertTrue((first[0] != first[1]).any() and (first[2] != first[3]).any())

        def own():
            return nn.Dropout(generator=kiln.random.Generator(3))(x).numpy()
        np.testing.assert_array_equal(own(), own())
        with self.assertRaisesRegex(ValueError, 'a seed is from 0'):
            kiln.random.seed(-1)

    def test_a_generator_that_begins_in_a_function(self):
        with kiln.Context() as context:
            f = kiln.function(nn.Dropout(), context=context)
            x = np.ones(64, np.float32)
            self.assertTrue((f(x).numpy() != f(x).numpy()).any())

    # ---- first values ----

    def check_uniform(self, values, bound):
        values = values.numpy()
        self.assertLessEqual(abs(values).max(), bound)
        self.assertGreater(abs(values).max(), 0.97 * bound)
        self.assertAlmostEqual(values.std() * math.sqrt(3) / bound, 1, delta=0.05)
        self.assertAlmostEqual(values.mean() / bound, 0, delta=0.05)

    def test_layers_start_as_pytorchs(self):
        kiln.random.seed(0)
        for buffer, bound in ((nn.Linear(100, 80).weight, 0.1), (nn.Linear(100, 2000).bias, 0.1),
                              (nn.Conv2d(8, 64, 3, groups=2).weight, 1 / 6),
                              (nn.ConvTranspose2d(16, 32, 3).weight, 1 / math.sqrt(32 * 9)),
                              (nn.LSTM(20, 64).weight_hh_l0, 1 / 8), (nn.GRU(20, 64, 2).weight_ih_l1, 1 / 8),
                              (nn.MultiheadAttention(64, 4).in_proj_weight, math.sqrt(6 / 256)),
                              (nn.MultiheadAttention(64, 4).out_proj.weight, 1 / 8)):
            self.check_uniform(buffer, bound)
        table = nn.Embedding(100, 50).weight.numpy()
        self.assertAlmostEqual(table.std(), 1, delta=0.05)
        self.assertFalse(nn.MultiheadAttention(64, 4).in_proj_bias.numpy().any())

    def test_init(self):
        init, b = nn.init, kiln.Buffer.zeros((60, 20, 2, 2))
        fan_in, fan_out = 80, 240
        self.check_uniform(init.xavier_uniform_(b, 2.0), 2 * math.sqrt(6 / (fan_in + fan_out)))
        self.check_uniform(init.kaiming_uniform_(b, nonlinearity='relu'), math.sqrt(6 / fan_in))
        self.check_uniform(init.kaiming_uniform_(b, math.sqrt(5)), 1 / math.sqrt(fan_in))
        self.check_uniform(init.uniform_(b, -3, 3), 3)
        for draw, std in ((lambda: init.xavier_normal_(b, seed=1), math.sqrt(2 / (fan_in + fan_out))),
                          (lambda: init.kaiming_normal_(b, mode='fan_out', nonlinearity='tanh'),
                           5 / 3 / math.sqrt(fan_out)),
                          (lambda: init.normal_(b, 0, 0.02), 0.02)):
            found = draw().numpy()
            self.assertAlmostEqual(found.std() / std, 1, delta=0.05)
            self.assertGreater(abs(found).max(), 3 * std)
        cut = init.trunc_normal_(b, 1.0, 2.0, 0.0, 2.0).numpy()
        self.assertTrue(0 <= cut.min() and cut.max() <= 2)
        for shape in (4, 12), (12, 2, 2):
            w = init.orthogonal_(kiln.Buffer.zeros(shape), 2.0).numpy().reshape(shape[0], -1)
            square = w @ w.T if shape[0] == 4 else w.T @ w
            np.testing.assert_allclose(square, 4 * np.eye(4), atol=1e-5)
        self.assertEqual(init.constant_(kiln.Buffer.zeros(2, 'f16'), 3).numpy().tolist(), [3, 3])
        self.assertEqual((init.ones_(b).numpy().min(), init.zeros_(b).numpy().max()), (1, 0))
        once, again = (init.normal_(kiln.Buffer.zeros(5), seed=2).numpy() for _ in range(2))
        np.testing.assert_array_equal(once, again)
        for wrong in (lambda: init.xavier_uniform_(kiln.Buffer.zeros(3)), lambda: init.calculate_gain('what'),
                      lambda: init.kaiming_normal_(b, mode='in'), lambda: init.trunc_normal_(b, 0, 1, 50, 60),
                      lambda: init.orthogonal_(kiln.Buffer.zeros(3))):
            self.assertRaises(ValueError, wrong)

    # ---- states ----

    def test_files(self):
        model, other = Network(), Network()
        optimizer = kiln.optim.Adam(model)
        optimizer.step(kiln.grad(squares)(model, random(3, 4)))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'model.safetensors')
            kiln.save(path, model.state_dict())
            other.load_state_dict(kiln.load(path))
            for name, buffer in model.state_dict().items():
                np.testing.assert_array_equal(buffer.numpy(), other.state_dict()[name].numpy())
            kiln.save(path, {'model': model, 'optimizer': optimizer.state})
            self.assertIn('model.heads.a.weight', kiln.saved(path))
            third = Network()
            kiln.load_into(path, {'model': third, 'optimizer': kiln.optim.Adam(third).state})
            np.testing.assert_array_equal(third.shift.numpy(), model.shift.numpy())

    def test_states_that_do_not_fit(self):
        model = nn.Linear(3, 2)
        before = model.weight.numpy()
        good = {'weight': np.zeros((2, 3)), 'bias': np.zeros(2)}
        with self.assertRaisesRegex(kiln.Error, r'^a state of Linear: of other shapes: bias is \[2\], given \[3\]$'):
            model.load_state_dict({**good, 'bias': np.zeros(3)})
        with self.assertRaisesRegex(kiln.Error, '^a state of Linear: missing: bias; not known: scale$'):
            model.load_state_dict({'weight': good['weight'], 'scale': 1})
        np.testing.assert_array_equal(model.weight.numpy(), before)
        model.load_state_dict({'weight': kiln.tensor(good['weight'], 'bf16'), 'scale': 1}, strict=False)
        self.assertFalse(model.weight.numpy().any())
        names = 'weight', 'bias', 'running_mean', 'running_var'
        nn.BatchNorm1d(2).load_state_dict({**{name: np.ones(2) for name in names},
                                           'num_batches_tracked': np.int64(7)})

    def test_other_types_and_contexts(self):
        model, x = Network(), random(3, 4)
        before = model(x).numpy()
        model.to('bf16')
        self.assertEqual([str(b.dtype) for b in model.buffers()][-1], str(kiln.i32))
        self.assertIs(model.layers[0].weight, model.layers[1].weight)
        self.assertEqual(model.heads['a'].bias.dtype, kiln.bf16)
        np.testing.assert_allclose(model(x).numpy(), before, atol=0.1)
        optimizer = kiln.optim.SGD(model, 0.1)
        optimizer.step(kiln.grad(squares)(model, x))
        with kiln.Context() as context:
            half = nn.Linear(4, 2, dtype='f16', context=context)
            self.assertIs(half(x).context, context)
            before = model.to('f32')(x).numpy()
            np.testing.assert_allclose(model.to(context=context)(x).numpy(), before, rtol=1e-5)
            self.assertEqual(model.rows.numpy().tolist(), [1, 2])
            self.assertIs(kiln.grad(squares)(model, x)['shift'].context, context)
            self.assertIs(kiln.function(lambda m, x: m(x))(model, x).context, context)

    def test_hooks(self):
        """functions around forward() see and change what goes in and comes out, until they are removed"""
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        x, said = np.float32([[1, -2]]), []
        plain = model(x).numpy()
        names = list(model.state_dict()), [name for name, _ in model.named_modules()]
        seen = model[0].register_forward_hook(lambda m, given, y: said.append((m, given, y)))
        before = model[0].register_forward_pre_hook(lambda m, given: said.append(given))
        np.testing.assert_array_equal(model(x).numpy(), plain)
        (first,), (module, given, y) = said
        self.assertTrue(first is x is given[0] and module is model[0] and y.shape == (1, 2))
        before.remove()
        before.remove()
        said.clear()
        doubled = model.register_forward_hook(lambda m, given, y: y * 2)
        with model.register_forward_pre_hook(lambda m, given: given[0] * 0), \
                model.register_forward_pre_hook(lambda m, given: (given[0] + x,)):
            np.testing.assert_array_equal(model(x).numpy(), plain * 2)
        model.register_forward_hook(model[1])  # a module is a function, and no part by that
        copied = copy.deepcopy(model).to('f32')
        for hooked in model, copied:
            self.assertEqual((list(hooked.state_dict()), [name for name, _ in hooked.named_modules()]), names)
            hooked.register_forward_hook(lambda m, given, y: y + 1)
        doubled.remove()
        with self.assertRaises(TypeError):  # the module takes one argument
            model(x)
        model._forward_hooks = model._forward_hooks[1:]
        np.testing.assert_array_equal(model(x).numpy(), plain + 1)
        said.clear()
        f = kiln.function(model)
        for _ in range(3):
            np.testing.assert_array_equal(f(x).numpy(), plain + 1)
        self.assertEqual(len(said), 1)
        seen.remove()

    def test_copies(self):
        model, x = Network(), random(3, 4)
        for other in copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
            np.testing.assert_array_equal(other(x).numpy(), model(x).numpy())
            self.assertIs(other.layers[0].weight, other.layers[1].weight)
            other.shift[...] = other.shift + 1
            self.assertTrue((other(x).numpy() != model(x).numpy()).any())

    # ---- mistakes ----

    def test_mistakes(self):
        x = np.zeros((2, 7), np.float32)
        deep = nn.Sequential(nn.Identity(), nn.ModuleList([nn.Sequential(nn.Linear(3, 2))])[0])
        for call, said in (
                (lambda: deep(x), '1.0: Linear(in_features=3, out_features=2, bias=True): x [2,7] has no 3 '
                                  'features along its last dimension'),
                (lambda: nn.Conv2d(3, 2, 3)(np.zeros((1, 2, 4, 4))),
                 'Conv2d(3, 2, kernel_size=(3, 3), stride=(1, 1)): x [1,2,4,4] is not [N,3 channels,...] of 4 dimensions, nor one without N'),
                (lambda: nn.MaxPool2d(2)(x), 'MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0)): '
                 'x [2,7] is not [N,channels,...] of 4 dimensions, nor one without N'),
                (lambda: nn.AdaptiveAvgPool1d(2)(x),
                 'AdaptiveAvgPool1d(output_size=(2,)): x [1,2,7] has no [2] equal parts'),
                (lambda: nn.LayerNorm(3)(x), 'LayerNorm((3,), eps=1e-05, elementwise_affine=True): x [2,7] does not end '
                 'with [3]'),
                (lambda: nn.GroupNorm(1, 3)(x), 'GroupNorm(1, 3, eps=1e-05, affine=True): x [2,7] has no 3 channels in '
                 'dimension 1'),
                (lambda: nn.BatchNorm1d(3)(x), 'BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, '
                 'track_running_stats=True): x [2,7] is not [N,3,...] of 2 or 3 dimensions'),
                (lambda: nn.BatchNorm1d(7)(x[:1]), 'BatchNorm1d(7, eps=1e-05, momentum=0.1, affine=True, '
                 'track_running_stats=True): x [1,7] has one value of each channel, and no variance to train by'),
                (lambda: nn.Embedding(3, 2)(x), 'Embedding(3, 2): x [2,7] is of f32, and rows are numbered by integers'),
                (lambda: nn.GRU(3, 2)(x), 'GRU(3, 2): x [2,7] is not [T,N,3], nor [T,3]'),
                (lambda: nn.GRUCell(3, 2, bias=False)(x), 'GRUCell(3, 2, bias=False): x [2,7] is not [N,3], nor [3]'),
                (lambda: nn.LSTMCell(7, 2)(x, (np.zeros((2, 2)), np.zeros(2))),
                 'LSTMCell(7, 2): the state c is [2], not [2,2]'),
                (lambda: nn.LSTM(7, 2)(x, (np.zeros((1, 3)), np.zeros((1, 2)))),
                 'LSTM(7, 2): the state h is [1,1,3], not [1,1,2]'),
                (lambda: nn.MultiheadAttention(4, 2)(x), 'MultiheadAttention(4, 2, batch_first=False): query [2,7] is '
                 'not [L,N,4], nor [L,4]'),
                (lambda: nn.MultiheadAttention(7, 1)(x, attn_mask=x), 'MultiheadAttention(7, 1, batch_first=False): '
                 'attn_mask [2,7] is not [2,2] or [1,2,2]'),
                (lambda: nn.Flatten(2)(x), 'Flatten(start_dim=2, end_dim=-1): x [2,7] has no such dimensions'),
                (lambda: nn.mse_loss(x, x[0]), 'mse_loss: input [2,7] and target [7] are of other shapes'),
                (lambda: nn.cross_entropy(x, np.int32([1])), 'cross_entropy: target [1] is not one for each row, [2], '
                 "nor of the logits' shape")):
            with self.assertRaises(kiln.Error) as caught:
                call()
            self.assertEqual((caught.exception.status, str(caught.exception)), ('SHAPE_MISMATCH', said))
        for wrong in (lambda: nn.Conv2d(3, 4, 3, groups=2), lambda: nn.Conv2d(1, 1, (3, 3, 3)),
                      lambda: nn.Conv2d(1, 1, 3, padding='what'), lambda: nn.Conv2d(1, 1, 3, 2, padding='same'),
                      lambda: nn.ConvTranspose2d(1, 1, 3, padding='same'), lambda: nn.GroupNorm(2, 3),
                      lambda: nn.MultiheadAttention(4, 3), lambda: nn.GELU('what'), lambda: nn.LSTM(1, 0), lambda: nn.RNNCell(1, 0),
                      lambda: nn.TransformerEncoderLayer(4, 1, activation='what'), lambda: nn.Embedding(3, 2, 3),
                      lambda: nn.mse_loss(x, x, 'what'), lambda: nn.huber_loss(x, x, delta=0)):
            self.assertRaises(ValueError, wrong)
        with self.assertRaisesRegex(AttributeError, 'forward'):
            nn.Module()(x)

    def test_what_is_recorded_has_the_layers_name(self):
        class Wrong(nn.Module):
            def forward(self, x):
                return x + kiln.zeros((3,))
        with self.assertRaisesRegex(kiln.Error, 'kiln_add.*"inner.0"|"inner.0".*kiln_add'):
            model = nn.ModuleDict({'inner': nn.Sequential(Wrong())})
            model.forward = lambda x: model['inner'](x)
            model(np.zeros((2, 7), np.float32))
        with kiln.batch() as b:
            with kiln.names('net'):
                b.read(nn.Sequential(nn.Linear(3, 2))(np.zeros((2, 3), np.float32)))
        self.assertIn('net.0', b.explain())

    # ---- all of it ----

    def test_documented(self):
        """everything public has words"""
        for module in nn, nn.init, kiln.random:
            for name in getattr(module, '__all__', ['seed', 'default_generator', 'Generator']):
                value = getattr(module, name)
                self.assertTrue(value.__doc__, name)
                for inner, method in vars(value).items() if isinstance(value, type) else ():
                    if not inner.startswith('_') and callable(method):
                        self.assertTrue(method.__doc__, f'{name}.{inner}')

    def test_mypy(self):
        """mypy --strict has nothing to say of a program with layers"""
        program = textwrap.dedent('''\
            import numpy as np
            import kiln
            from kiln import nn

            class Block(nn.Module):
                def __init__(self, width: int) -> None:
                    self.norm = nn.LayerNorm(width)
                    self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                    self.drop = nn.Dropout(0.1, generator=kiln.random.Generator(1))

                def forward(self, x: kiln.Tensor) -> kiln.Tensor:
                    y: kiln.Tensor = self.drop(self.inner(self.norm(x)))
                    return x + y

            model = nn.Sequential(*(Block(8) for _ in range(2)))
            optimizer = kiln.optim.AdamW(model)
            nn.init.xavier_normal_(kiln.Buffer.zeros((2, 2)))
            model.load_state_dict(model.state_dict())
            names: list[str] = [name for name, buffer in model.named_parameters() if buffer.ndim > 1]

            def loss(model: nn.Module, x: kiln.Array) -> kiln.Tensor:
                return nn.mse_loss(model(x), x)

            value, gradients = kiln.value_and_grad(loss)(model.train(), np.zeros((2, 8), np.float32))
            print(float(value))
            optimizer.step(gradients)
            y, (h, c) = nn.LSTM(8, 4).forward(np.zeros((3, 2, 8), np.float32))
            print(names, h.shape, model)
            ''')
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'program.py')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(program)
            package = os.path.dirname(os.path.dirname(kiln.__file__))
            done = subprocess.run([sys.executable, '-m', 'mypy', '--strict', '--follow-imports=silent', '--cache-dir',
                                   os.path.join(folder, 'cache'), path], capture_output=True, text=True,
                                  env={**os.environ, 'MYPYPATH': package})
            if 'No module named mypy' in done.stderr:
                self.skipTest('there is no mypy')
            self.assertEqual((done.stdout.strip(), done.returncode), ('Success: no issues found in 1 source file', 0))
            ran = subprocess.run([sys.executable, path], capture_output=True, text=True)
            self.assertEqual((ran.stderr, ran.returncode), ('', 0))


if __name__ == '__main__':
    unittest.main()
