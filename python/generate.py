# SPDX-License-Identifier: Apache-2.0
"""Make the generated modules of the package from kiln's tables of operations and public headers.

    python3 generate.py SOURCE FOLDER

reads lib/ops/*.def and include/kiln/*.h of the source tree, and writes _table.py (constants,
structures, prototypes) and _operations.py (a function for each row, and for each recording function
of the headers whose parameters explain themselves) into the folder. So a new row, or a new function,
is a function of the package without a line of Python.
"""
import math
import os
import re
import sys

# What a module of the package says anew, for all of numpy's forms: no part of what kiln has of these.
REPLACED = ('arange', 'concat', 'matmul', 'stack', 'where')

HEAD = '# SPDX-License-Identifier: Apache-2.0\n# Made by python/generate.py; not to be edited.\n'


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


# ---- the tables of operations ----

ROW = re.compile(
    r'^KILN_(OP|REDUCE)\((\w+),\s*(?:(\d)(N*)(?:\(([^)]*)\))?,\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+),'
    r'\s*(\w+)(?:,\s*(\w+))?', re.M)


def one_text(literals):
    """The text of adjacent string literals of C."""
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', literals)
    return ''.join(parts).replace('\\"', '"')


def rows(source):
    """(name, kind, arity, numbers, types, sentence) of each row that has a public function."""
    for table in ('elementwise', 'reduce'):
        for row in ROW.finditer(read(os.path.join(source, 'lib', 'ops', table + '.def'))):
            kind, name, arity, _, numbers, literals, first, second = row.groups()
            numbers = re.findall(r'\w+', numbers or '')
            types = second if kind == 'REDUCE' else first
            yield name, kind, int(arity or 1), numbers, types, one_text(literals)


def types(source):
    """(name, value, bytes, C type) of each data type."""
    pattern = r'^KILN_TYPE\((\w+), (\d+), (\d+), (\w+)'
    text = read(os.path.join(source, 'lib', 'ops', 'types.def'))
    return [(name.lower(), int(value), int(size), ctype)
            for name, value, size, ctype in re.findall(pattern, text, re.M)]


def block_types(source):
    """(name, value, bytes, elements) of each type of blocks."""
    pattern = r'^KILN_BLOCK_TYPE\((\w+), (\d+), (\d+), (\d+)'
    text = read(os.path.join(source, 'lib', 'ops', 'types.def'))
    return [(name.lower(), *map(int, numbers))
            for name, *numbers in re.findall(pattern, text, re.M)]


# ---- headers ----

def headers(source):
    folder = os.path.join(source, 'include', 'kiln')
    names = sorted(name for name in os.listdir(folder) if name.endswith('.h'))
    made_from_tables = ('elementwise.h', 'reductions.h', 'typemap.h', 'version.h')
    return [(name, read(os.path.join(folder, name))) for name in names
            if name not in made_from_tables and name != 'opencl.h']


def plain(comment):
    """A Doxygen comment as text."""
    lines = [re.sub(r'^\s*(/\*\*<?|\*/|\*)? ?', '', line) for line in comment.split('\n')]
    return in_python(re.sub(r'\s*\*/\s*$', '', '\n'.join(lines)).strip())


def in_python(text):
    """Functions in a sentence by the names that they have in Python."""
    return re.sub(r'\bkiln_(\w+)\(', r'kiln.\1(', text)


def without_comments(text):
    return re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)


def split_parameter(text):
    """("const size_t *", "dims") of `const size_t *dims`; an array is a pointer."""
    text = ' '.join(text.split())
    match = re.match(r'^(.*?)(\w+)(\[\w*\])?$', text)
    if not match:  # such as a pointer to a function
        return 'void *', '', ''
    kind, name, array = match.groups()
    return (kind.strip() + (' *' if array else '')).replace('* ', '*'), name, array or ''


FUNCTION = re.compile(
    r'(/\*\*(?:(?!\*/).)*\*/)?\s*KILN_API\s+(?:KILN_MUST_CHECK\s+)?([\w ]+?[ *]+(?:const \*)?)(kiln_\w+)'
    r'\(([^;]*?)\);', re.S)


def functions(text):
    for comment, result, name, parameters in FUNCTION.findall(text):
        # A comment that belongs to something else ended before.
        parameters = [] if parameters.strip() == 'void' else [
            split_parameter(p) for p in parameters.split(',')]
        yield name, ' '.join(result.split()), parameters, plain(comment)


def enums(text):
    """(type, {constant: value}) of every enum that is written out; plain numbers are of type ""."""
    text = without_comments(text)
    for body, name in re.findall(r'typedef enum \w+ \{(.*?)\} (\w+);', text, re.S):
        values, following = {}, 0
        for constant, value in re.findall(r'(KILN_\w+)(?:\s*=\s*(-?\d+))?\s*(?:,|$)', body.strip()):
            values[constant] = following = int(value) if value else following
            following += 1
        yield name, values
    yield '', {name: int(value)
               for name, value in re.findall(r'^#define (KILN_\w+) (\d+)$', text, re.M)}


ONE = r'\**\w+(?:\[[^\]]*\])?'
DECLARATION = rf'^(\w+(?: \w+)*?) ({ONE}(?:, ?{ONE})*)$'


FUNCTIONS_OF = r'^[\w ]+ ?\(\*(\w+)((?:\[\d+\])*)\)\(.*\)$'


def fields_of(body):
    """[(C type, field, array length)] of a structure's body; None where one is of another kind."""
    fields = []
    body = body.replace('*const *', '**')
    for line in filter(None, (' '.join(part.split()) for part in body.split(';'))):
        match = re.match(FUNCTIONS_OF, line)
        if match:
            count = math.prod(map(int, re.findall(r'\d+', match.group(2))))
            fields.append(('void *', match.group(1), str(count) if match.group(2) else ''))
            continue
        match = re.match(DECLARATION, line)
        if not match:
            return None
        kind, declared = match.groups()
        for stars, name, length in re.findall(r'(\**)(\w+)(?:\[([^\]]*)\])?(?:, ?|$)', declared):
            fields.append((kind + (' ' + stars if stars else ''), name, length))
    return fields


def structs(text):
    """(name, [(C type, field, array length)]) of each structure of the public interface."""
    text = without_comments(text)
    for name, body in re.findall(r'typedef struct (kiln_\w+) \{([^{}]*)\}', text):
        fields = fields_of(body)
        if fields:
            yield name, fields


def initialisers(text):
    """(macro, structure, values) of each KILN_X_INIT."""
    text = without_comments(text).replace('\\\n', ' ')
    for macro, body in re.findall(r'#define (KILN_\w+_INIT)\s+\{(.*?)\}\s*$', text, re.M):
        struct = re.search(r'sizeof\((\w+)\)', body)
        if struct:
            while '{' in body:  # arrays
                body = re.sub(r'\{[^{}]*\}', '0', body)
            yield macro, struct.group(1), [value.strip() for value in body.split(',')]


# ---- Python functions for recording functions ----

# Defaults where C has none; a tensor that may be left out is None.
DEFAULTS = {
    'epsilon': '1e-5', 'correction': '0.0', 'keep_dims': 'False', 'reverse': 'False',
    'transpose_a': 'False', 'transpose_b': 'False', 'upper': 'True', 'diagonal': '0',
    'batch_dims': '0', 'mode': "'set'", 'descending': 'False',
    'interleaved': 'False',
}
OPTIONAL = {
    ('layer_norm', 'scale'), ('layer_norm', 'shift'), ('rms_norm', 'scale'), ('attention', 'mask'),
    ('attention_with_lengths', 'mask'), ('matmul_quantized', 'a_scale'), ('matmul_quantized', 'b_scale'), ('batch_norm', 'scale'),
    ('batch_norm', 'shift'), ('group_norm', 'scale'), ('group_norm', 'shift'),
    ('instance_norm', 'scale'), ('instance_norm', 'shift'),
}
# Over the last dimension unless told: what networks mean.
LAST_AXIS = {'softmax', 'log_softmax', 'layer_norm', 'rms_norm', 'sort', 'argsort'}
NUMBERS = {'double': 'float', 'int': 'int', 'size_t': 'int', 'int64_t': 'int', 'uint32_t': 'int',
           'uint64_t': 'int', 'int32_t': 'int', 'unsigned': 'int'}
PYTHON_NAMES = {'keep_dims': 'keepdims', 'type': 'dtype', 'lambda': 'factor', 'from': 'start'}


def explain_parameters(name, parameters, struct_fields, named_enums):
    """[(Python parameters), (arguments of record())], or None where C's do not explain themselves."""
    signature, arguments, later = [], [], []
    i = 1
    while i < len(parameters):
        kind, parameter, array = parameters[i]
        following = parameters[i + 1] if i + 1 < len(parameters) else ('', '', '')
        python = PYTHON_NAMES.get(parameter, parameter)
        if kind == 'kiln_tensor':
            optional = (name, parameter) in OPTIONAL
            signature.append(f'{python}: Optional[Array]' if optional else f'{python}: Array')
            if optional:
                later.append(python)
            arguments.append(f"('tensor', {python})")
        elif kind == 'size_t' and following[:2] == ('const int *', 'axes'):
            signature.append('axis: Axis')
            later.append('axis')
            arguments.append("('axes', axis)")
            i += 1
        elif kind == 'size_t' and following[:2] == ('const size_t *', 'dims'):
            signature.append('shape: Shape')
            arguments.append("('shape', shape)")
            i += 1
        elif kind == 'size_t' and following[0] == 'const kiln_tensor *':
            python = PYTHON_NAMES.get(following[1], following[1])
            signature.append(f'{python}: Sequence[Array]')
            arguments.append(f"('tensors', {python})")
            i += 1
        elif kind == 'kiln_type':
            signature.append('dtype: Type')
            arguments.append("('type', dtype)")
        elif kind in named_enums:
            signature.append(f'{python}: Union[int, str]')
            if parameter in DEFAULTS:
                later.append(python)
            arguments.append(f"('word', ('{kind}', {python}))")
        elif kind in NUMBERS:
            python_type = NUMBERS[kind]
            if DEFAULTS.get(parameter) in ('False', 'True'):
                python_type = 'bool'
            signature.append(f'{python}: {python_type}')
            if parameter in DEFAULTS or parameter == 'axis' and name in LAST_AXIS:
                later.append(python)
            arguments.append(f"('number', {python})")
        elif kind.startswith('const kiln_') and kind.endswith('_options *'):
            struct = kind[len('const '):-2]
            fields = [f for f in struct_fields[struct] if f[1] != 'size']
            if any('*' in f[0] or f[0] == 'kiln_tensor' for f in fields):
                return None
            signature.append('*')
            for field_kind, field, length in fields:
                hint = NUMBERS.get(field_kind, 'Union[int, str]')
                if length:
                    hint = 'Union[int, Sequence[int]]'
                signature.append(f'{field}: {hint} = 0')
            pairs = ', '.join(f"'{f[1]}': {f[1]}" for f in fields)
            arguments.append(f"('options', ('{struct}', {{{pairs}}}))")
        else:
            return None
        i += 1
    return with_defaults(name, signature, later), arguments


def default_of(name, parameter):
    if parameter == 'axis':
        return '-1' if name in LAST_AXIS else 'None'
    c_name = {v: k for k, v in PYTHON_NAMES.items()}.get(parameter, parameter)
    return DEFAULTS.get(c_name, 'None')


def with_defaults(name, signature, later):
    """Defaults from the first parameter on behind which each has one."""
    result, open_end = [], True
    star = signature.index('*') if '*' in signature else len(signature)
    for part in reversed(signature[:star]):
        parameter, hint = part.split(': ', 1)
        open_end = open_end and parameter in later
        result.insert(0, f'{part} = {default_of(name, parameter)}' if open_end else part)
    return result + signature[star:]


def indent(text):
    return '\n'.join('    ' + line if line else '' for line in text.split('\n')).strip()


def function_text(name, signature, doc, body):
    lines = f'def {name}({", ".join(signature)}) -> Tensor:\n'
    doc = in_python(doc).replace('\\', '\\\\').replace('"""', "'''")
    return f'\n\n{lines}    """{indent(doc)}\n    """\n    return {body}\n'


def row_function(name, kind, arity, numbers, kinds, sentence):
    if kind == 'REDUCE':
        signature = ['x: Array', 'axis: Axis = None', 'keepdims: bool = False']
        doc = sentence + '\n\nOver the dimensions `axis`, an int or several; None: all of them.'
        return function_text(name, signature, doc,
                             f"reduce('{name}', '{kinds}', x, axis, keepdims)")
    operands = ['a', 'b', 'c'][:arity]
    signature = [f'{o}: Array' for o in operands] + [f'{n}: float' for n in numbers]
    values = ', '.join(operands) + (',' if arity == 1 else '')
    return function_text(name, signature, sentence,
                         f"row('{name}', '{kinds}', ({values}), ({''.join(n + ', ' for n in numbers)}))")


def recording_functions(all_functions, struct_fields, named_enums, row_names):
    for name, result, parameters, doc in all_functions:
        short = name[len('kiln_'):]
        if result != 'kiln_tensor' or not parameters or parameters[0][0] != 'kiln_batch *':
            continue
        if short in row_names:
            continue
        explained = explain_parameters(short, parameters, struct_fields, named_enums)
        if explained:
            signature, arguments = explained
            if not any('Array' in part for part in signature):
                star = signature.index('*') if '*' in signature else None
                if star is None:
                    signature.append('*')
                signature.append('context: Optional[Context] = None')
                arguments.append("('context', context)")
            yield short, function_text(short, signature, doc,
                                       f"record('{short}', [{', '.join(arguments)}])")


OPERATIONS_HEAD = HEAD + '''"""Functions that record one operation each."""
from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Union

from ._record import record, reduce, row

if TYPE_CHECKING:
    from ._context import Context
    from ._tensor import Array, Axis, Shape, Tensor
    from ._types import Type
'''


def generate(source, folder):
    all_rows = list(rows(source))
    all_headers = headers(source)
    all_functions = [f for _, text in all_headers for f in functions(text)]
    struct_fields = {name: fields for _, text in all_headers for name, fields in structs(text)}
    all_enums = [pair for _, text in all_headers for pair in enums(text)]
    constants = {name: value for _, values in all_enums for name, value in values.items()}
    named_enums = {name: values for name, values in all_enums if name and values}
    statuses = re.findall(r'X\((\w+), (-?\d+), "([^"]*)"\)', dict(all_headers)['status.h'])
    inits = {macro: (struct, values) for _, text in all_headers
             for macro, struct, values in initialisers(text)}

    libraries = {f[0]: header for header in ('lm.h', 'mpi.h', 'onnx.h')
                 for f in functions(dict(all_headers).get(header, ''))}
    prototypes = [(name, result, [kind for kind, _, _ in parameters])
                  for name, result, parameters, _ in all_functions]
    for name, kind, arity, numbers, _, _ in all_rows:
        kinds = ['kiln_batch *'] + ['kiln_tensor'] * arity + ['double'] * len(numbers)
        if kind == 'REDUCE':
            kinds += ['size_t', 'const int *', 'int']
        prototypes.append(('kiln_' + name, 'kiln_tensor', kinds))

    version = re.search(r'AC_INIT\(\[kiln\], \[([^]]+)\]',
                        read(os.path.join(source, 'configure.ac'))).group(1)
    parts = [HEAD, '"""What the headers and tables say."""\n']
    parts.append(f'VERSION = {version!r}\n')
    for title, value in (
            ('TYPES', types(source)),
            ('BLOCK_TYPES', block_types(source)),
            ('STATUSES', [(name, int(value), text) for name, value, text in statuses]),
            ('CONSTANTS', constants),
            ('ENUMS', named_enums),
            ('STRUCTS', struct_fields),
            ('INITIALISERS', inits)):
        items = value.items() if isinstance(value, dict) else value
        lines = ''.join(f'    {k!r}: {v!r},\n' for k, v in items) if isinstance(value, dict) else \
            ''.join(f'    {item!r},\n' for item in items)
        opening, closing = ('{', '}') if isinstance(value, dict) else ('[', ']')
        parts.append(f'\n{title} = {opening}\n{lines}{closing}\n')
    for title, header in (('FUNCTIONS', None), ('LM_FUNCTIONS', 'lm.h'), ('MPI_FUNCTIONS', 'mpi.h'),
                          ('ONNX_FUNCTIONS', 'onnx.h')):
        lines = ''.join(f'    {name!r}: ({result!r}, {kinds!r}),\n'
                        for name, result, kinds in prototypes if libraries.get(name) == header)
        parts.append(f'\n# name: result, parameters\n{title} = {{\n{lines}}}\n')

    names = {name for name, *_ in all_rows}
    made = [(row[0], row_function(*row)) for row in all_rows]
    made += recording_functions(all_functions, struct_fields, named_enums, names)
    listed = ''.join(f'    {name!r},\n' for name, _ in sorted(made) if name not in REPLACED)
    text = OPERATIONS_HEAD + f'\n__all__ = [\n{listed}]\n' + ''.join(text for _, text in made)

    os.makedirs(folder, exist_ok=True)
    for name, content in (('_table.py', '\n'.join(parts)), ('_operations.py', text)):
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
            file.write(content)


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    generate(sys.argv[1], sys.argv[2])
