# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples of its operators through torch.compile's backend, beside PyTorch's results.

    check_torch.py [--samples N] [--core] [--count] [-v] [NAME ...]

takes the first N samples in f32 of each operator of op_db, or of those named, and says how many are
computed by kiln alone, with PyTorch's help, and wrong; with --count without running them. --core lists
Core ATen instead: what has a row, what is decomposed into such, and what PyTorch computes."""
import argparse
import collections
import logging
import sys
import warnings

import torch
from functorch.compile import aot_function
from torch._subclasses.fake_tensor import (DataDependentOutputException,
                                           DynamicOutputShapeException)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

import kiln.torch
from kiln._torch_operators import ROWS

# Results that no two computations share: memory that nobody wrote, random numbers.
UNDEFINED = ('empty', 'new_empty', 'rand', 'dropout', 'bernoulli', 'multinomial', 'normal', 'uniform',
             'exponential', 'geometric', 'cauchy', 'log_normal', 'rrelu')


class Refusals(logging.Handler):
    """What kiln.torch says that PyTorch computes."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.words = []

    def emit(self, record):
        self.words += record.args


class Counted(Exception):
    """The graph is compiled, and need not run."""


def compiled(function, sample, runs):
    """The sample's call as torch.compile would compile it, and its tensors."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in places]

    def call(*given):
        filled = list(leaves)
        for i, tensor in zip(places, given):
            filled[i] = tensor
        x, arguments, named = pytree.tree_unflatten(filled, spec)
        return [t for t in pytree.tree_leaves(function(x, *arguments, **named))
                if isinstance(t, torch.Tensor)]

    def compile_(gm, inputs):
        made = kiln.torch._compile(gm, inputs)
        if not runs:
            raise Counted
        return made
    return call, aot_function(call, compile_, decompositions=kiln.torch.decompositions()), tensors


def seeded(function, tensors):
    torch.manual_seed(1)
    return function(*[t.clone() for t in tensors])


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4, equal_nan=True)


def outcome(function, sample, runs):
    """How one sample ends: "kiln", "helped", "untraced", or what is wrong."""
    heard = Refusals()
    log = logging.getLogger('kiln.torch')
    log.addHandler(heard)
    kiln.torch._told.clear()
    try:
        with torch.no_grad():
            call, by_kiln, tensors = compiled(function, sample, runs)
            if any(t.layout != torch.strided for t in tensors):
                return 'untraced', 'a sparse tensor'
            try:
                expected = seeded(call, tensors)
            except Exception as error:
                return 'untraced', f'PyTorch refuses it: {error}'
            try:
                got = seeded(by_kiln, tensors)
            except Counted:
                return ('helped' if heard.words else 'kiln'), ', '.join(heard.words)
            try:
                close(got, expected)
            except AssertionError:
                # A graph may draw other random numbers than the call: also PyTorch's, without kiln.
                close(got, seeded(aot_function(call, lambda gm, _: gm), tensors))
    except (DataDependentOutputException, DynamicOutputShapeException,
            GuardOnDataDependentSymNode) as error:
        return 'untraced', str(error).split('\n', 1)[0]  # PyTorch has no graph of it
    except Exception as error:
        return 'wrong', ' '.join(str(error).split())[:300]
    finally:
        log.removeHandler(heard)
    return ('helped' if heard.words else 'kiln'), ', '.join(heard.words)


def check_operators(names, samples, verbose, runs):
    from torch.testing._internal.common_methods_invocations import op_db
    counts, operators, refusals = (collections.Counter() for _ in range(3))
    for operator in op_db:
        if torch.float32 not in operator.dtypes or (names and operator.name not in names) or \
                any(word in operator.name for word in UNDEFINED):
            continue
        ends = set()
        inputs = operator.sample_inputs('cpu', torch.float32, requires_grad=False)
        for _, sample in zip(range(samples), inputs):
            end, words = outcome(operator.op, sample, runs)
            counts[end] += 1
            ends.add(end)
            if end == 'helped':
                refusals.update(set(words.split('), ')))
            if end == 'wrong' or verbose:
                print(f'{end}: {operator.name} {operator.variant_test_name}: {words}', flush=True)
        operators[next((e for e in ('wrong', 'helped', 'kiln', 'untraced') if e in ends), 'none')] += 1
    print('samples:', dict(counts))
    print('operators:', dict(operators))
    for name, count in refusals.most_common():
        print(f'  {count} {name}')
    return counts['wrong']


def check_core():
    """Each operator of Core ATen by what becomes of it."""
    decomposed = {str(op) for op in kiln.torch.decompositions()}
    found = collections.defaultdict(list)
    for name in sorted(dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, 'overloads') else ():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags:
                text = str(operator)
                found['rows' if text in ROWS else 'decomposed' if text in decomposed else
                      'by PyTorch'].append(text)
    for kind, names in found.items():
        print(f'{kind}: {len(names)}' + ('' if kind == 'rows' else ' ' + ' '.join(names)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('names', nargs='*')
    parser.add_argument('--samples', type=int, default=2)
    parser.add_argument('--core', action='store_true')
    parser.add_argument('--count', action='store_true')
    parser.add_argument('-v', '--verbose', action='store_true')
    options = parser.parse_args()
    warnings.simplefilter('ignore')
    logging.getLogger('kiln.torch').propagate = False
    if options.core:
        check_core()
        return 0
    return min(1, check_operators(options.names, options.samples, options.verbose,
                                  not options.count))


if __name__ == '__main__':
    sys.exit(main())
