# SPDX-License-Identifier: Apache-2.0
"""kiln for Python: tensors on OpenCL devices that are recorded, fused and run together.

    import kiln, numpy as np
    x = kiln.tensor(np.array([-1, 2, -3, 4], np.float32))
    y = kiln.relu(x) * 2 + [10, 20, 30, 40]       # recorded: nothing has run yet
    print(y.numpy())                              # one kernel

kiln.Context(), kiln.batch(), kiln.Buffer, kiln.function(), kiln.grad(), kiln.nn and kiln.optim are the rest of
it; doc/python.md tells how they go together. Errors of the library are kiln.Error. The module is a
namespace of the Python array API standard (2024.12).

$KILN_LIBRARY names the shared library, if the usual search does not find the right one.
"""
from ._library import Error, library_version
from ._table import VERSION as __version__
from ._types import BY_NAME as _types, DType
from ._context import Context, Device, default_context, devices, set_default_context
from ._tensor import Array, Tensor, evaluate, tensor
from ._buffer import Buffer
from ._batch import Batch, batch, names
from ._function import Function, function
from ._gradient import grad, value_and_grad
from ._tree import tree_map
from ._files import load, load_into, save, saved
from ._lm import LanguageModel
from ._onnx import Model
from ._executor import Executor, Future, Row
from ._kernel import Kernel, elementwise, kernel
from ._loop import loop, scan, while_loop
from ._parallel import Parallel
from ._mpi import Ranks
# Functions of tensors: the generated ones, and over them what takes more than those do.
from ._operations import *  # noqa: F401,F403
from ._functions import *  # noqa: F401,F403
from ._arithmetic import *  # noqa: F401,F403
from ._creation import *  # noqa: F401,F403
from ._gather import *  # noqa: F401,F403
from ._indexing import *  # noqa: F401,F403
from ._manipulation import *  # noqa: F401,F403
from ._search import *  # noqa: F401,F403
from ._statistics import *  # noqa: F401,F403
from ._namespace import *  # noqa: F401,F403
from ._namespace import __array_api_version__, __array_namespace_info__
from .linalg import matmul, tensordot, vecdot
from . import (_arithmetic, _creation, _functions, _gather, _indexing, _manipulation, _namespace,
               _operations, _search, _statistics, linalg, nn, optim, random)

f32, i32, u8 = _types['f32'], _types['i32'], _types['u8']
f16, bf16, i64, i8, bool_ = (_types[name] for name in ('f16', 'bf16', 'i64', 'i8', 'bool'))
q8_0, q4_0, q4_1, q5_0, q5_1 = (_types[name] for name in ('q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1'))
q4_k, q5_k, q6_k, q4_z, q8_z = (_types[name] for name in ('q4_k', 'q5_k', 'q6_k', 'q4_z', 'q8_z'))
# The standard's names; `bool` is no part of __all__, because it is one of Python's.
float32, float16, int64, int32, int8, uint8, bool = f32, f16, i64, i32, i8, u8, bool_

# So that a type checker reads it.
__all__ = [
    'Array', 'Batch', 'Buffer', 'Context', 'DType', 'Device', 'Error', 'Executor', 'Function', 'Future',
    'Kernel', 'LanguageModel', 'Model', 'Parallel', 'Ranks', 'Row', 'Tensor', 'batch', 'bf16', 'bool_',
    'default_context', 'devices', 'elementwise', 'evaluate', 'f16', 'f32', 'float16', 'float32',
    'function', 'grad', 'i32', 'i64', 'i8', 'int32', 'int64', 'int8', 'kernel', 'library_version',
    'linalg', 'load', 'load_into', 'loop', 'matmul', 'names', 'nn', 'optim', 'q4_0', 'q4_1', 'q4_k', 'q4_z',
    'q5_0', 'q5_1', 'q5_k', 'q6_k', 'q8_0', 'q8_z', 'random', 'save', 'saved', 'scan', 'set_default_context', 'tensor', 'tensordot',
    'tree_map', 'u8', 'uint8', 'value_and_grad', 'vecdot',
    'while_loop',
]
__all__ += _arithmetic.__all__
__all__ += _creation.__all__
__all__ += _functions.__all__
__all__ += _gather.__all__
__all__ += _indexing.__all__
__all__ += _manipulation.__all__
__all__ += _namespace.__all__
__all__ += _operations.__all__
__all__ += _search.__all__
__all__ += _statistics.__all__
