# SPDX-License-Identifier: Apache-2.0
"""The generated functions are those of the headers, and each records."""
import ast
import os
import pathlib
import re
import unittest

import kiln
from kiln import _operations, _table
from kiln._library import Library, lib


# Functions of the headers that the package does not have: Python has other words for the same,
# or nobody has asked for them yet.
LEFT = {'kiln_' + name for name in """
    attention_options_init context_options_init conv_options_init cross_entropy_options_init
    custom_kernel_init loop_options_init
    executor_options_init executor_options_init_latency executor_options_init_throughput model_init
    optimizer_options_init pool_options_init recurrent_init reducer_init request_options_init resize_options_init
    training_init window_options_init
    error_set status_text type_block type_name type_size device_find buffer_bytes buffer_set_source npy_read npy_write
    slice slice_clipped future_wait future_descriptor buffer_retain context_retain executor_retain
    now_add now_div now_dot now_gelu now_matmul now_mul now_relu now_scale now_sigmoid now_sub now_swish
    now_tanh
    batch_fail batch_submit event_notify event_poll event_release event_wait
    cache_export cache_export_used cache_get_stats cache_import cache_list cache_prune
    batch_buffer_count batch_list_works batch_operation_count batch_read_count context_get_tunable
    context_tune
    context_recall context_remember executor_get_context_stats
    model_choose_batch model_create_gradient model_create_lerp model_create_slerp name_calls
    optimizer_state_names pad_by shard_range
    """.split()}


def header(name):
    folder = os.environ.get('KILN_HEADERS')
    if not folder:
        raise unittest.SkipTest('$KILN_HEADERS does not say where the made headers are')
    with open(os.path.join(folder, name), encoding='utf-8') as file:
        return file.read()


def prototypes(text):
    """{name: [kinds of parameters]} of a header, read in another way than the package is made."""
    found = {}
    for name, parameters in re.findall(r'kiln_tensor (kiln_\w+)\(([^)]*)\);', text):
        kinds = [re.sub(r'\w+$', '', ' '.join(p.split())).strip() for p in parameters.split(',')]
        found[name] = kinds
    return found


class Table(unittest.TestCase):
    def check_header(self, name):
        found = prototypes(header(name))
        self.assertGreater(len(found), 5)
        for function, kinds in found.items():
            self.assertEqual(_table.FUNCTIONS[function], ('kiln_tensor', kinds), function)
            self.assertTrue(callable(getattr(kiln, function[len('kiln_'):])))

    def test_rows(self):
        """each row of the elementwise header is a function, with the same parameters"""
        self.check_header('elementwise.h')

    def test_reductions(self):
        """each row of the reductions' header is a function, with the same parameters"""
        self.check_header('reductions.h')

    def test_types(self):
        """the types are those of the header"""
        rows = re.findall(r'X\((\w+), (\d+), (\d+), ([a-z]\w+)\)', header('typemap.h'))
        self.assertEqual([(n.lower(), int(v), int(b), c) for n, v, b, c in rows], _table.TYPES)
        rows = re.findall(r'X\((\w+), (\d+), (\d+), (\d+)\)', header('typemap.h'))
        self.assertEqual([(n.lower(), int(v), int(b), int(e)) for n, v, b, e in rows],
                         _table.BLOCK_TYPES)

    def test_sentences(self):
        """help() reads the sentences of the tables"""
        self.assertIn('The larger of a and 0; NaN stays NaN.', kiln.relu.__doc__)
        self.assertIn('The arithmetic mean', kiln.mean.__doc__)
        self.assertIn('without computing the softmax', kiln.log_softmax.__doc__)

    def test_documented(self):
        """everything public has words"""
        for name in kiln.__all__:
            value = getattr(kiln, name)
            if callable(value) and name != 'Array':
                self.assertTrue(value.__doc__, name)
                for inner, method in vars(value).items() if isinstance(value, type) else ():
                    if not inner.startswith('_') and callable(method):
                        self.assertTrue(method.__doc__, f'{name}.{inner}')

    def test_exports_can_be_read(self):
        """what a module exports is said by lists alone, and lists of modules: mypy --strict reads no more"""
        for path in pathlib.Path(kiln.__file__).parent.rglob('*.py'):
            for line in ast.walk(ast.parse(path.read_text())):
                targets = getattr(line, 'targets', [getattr(line, 'target', None)])
                if any(isinstance(t, ast.Name) and t.id == '__all__' for t in targets):
                    is_list = isinstance(line.value, ast.List) and \
                        all(isinstance(e, ast.Constant) for e in line.value.elts)
                    is_other = isinstance(line.value, ast.Attribute) and line.value.attr == '__all__'
                    self.assertTrue(is_list or isinstance(line, ast.AugAssign) and is_other,
                                    f'{path.name}:{line.lineno}')
        self.assertEqual([name for name in kiln.__all__ if not hasattr(kiln, name)], [])

    def test_library_has_all(self):
        """the library has every function that the headers declare"""
        missing = [name for name in _table.FUNCTIONS if not hasattr(lib._cdll, name)]
        self.assertEqual(missing, [])

    def test_package_has_all(self):
        """the package has every function of the headers, or LEFT says why not: so it cannot lag"""
        folder = pathlib.Path(kiln.__file__).parent
        text = '\n'.join(path.read_text('utf-8') for path in folder.rglob('*.py')
                         if path.name != '_table.py')
        missing = {name for name in _table.FUNCTIONS
                   if not re.search(rf'\b{name}\b', text)
                   and not re.search(rf'\b(def |row\(\'|\'){name[5:]}\b', text)}
        self.assertEqual(sorted(missing - LEFT), [])
        self.assertEqual(sorted(LEFT - missing), [], 'the package has these now')

    def test_older_library(self):
        """a library without a function says so when it is called"""
        class Old:
            pass
        with self.assertRaisesRegex(kiln.Error, 'older than this package'):
            Library(Old(), 'libold.so', _table.FUNCTIONS).kiln_add

    def test_each_row_records(self):
        """each row records, with operands of its types, and has numpy's shape"""
        floats = kiln.zeros((2, 1)), kiln.zeros((3,)), kiln.zeros((2, 3))
        words = tuple(x.astype('i32') for x in floats)
        with open(_operations.__file__, encoding='utf-8') as file:
            names = re.findall(r"return row\('(\w+)'", file.read())
        self.assertGreater(len(names), 50)
        for name in names:
            function = getattr(_operations, name)
            code = function.__code__
            parameters = code.co_varnames[:code.co_argcount]
            tensors = [n for n in parameters if n in 'abc']
            numbers = [1.0] * (len(parameters) - len(tensors))
            try:
                result = function(*floats[:len(tensors)], *numbers)
            except kiln.Error as error:
                self.assertEqual(error.status, 'TYPE_MISMATCH', name)
                result = function(*words[:len(tensors)], *numbers)
            self.assertEqual(result.shape, [(2, 1), (2, 3), (2, 3)][len(tensors) - 1], name)


if __name__ == '__main__':
    unittest.main()
