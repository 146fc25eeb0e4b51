# SPDX-License-Identifier: Apache-2.0
"""The tests that PyPI's package `onnx` carries, as files: make-cases.py FOLDER

FOLDER/KIND/TEST/model.onnx with test_data_set_N/input_N.pb and output_N.pb. Those of kind "node" are
made by the package's own code, inputs and expected outputs, from a seed, so that they are the same
each time; the others lie in the package. The light models are networks whole, with weights that are
computed; a file `tolerance` says how far their outputs may be off."""
import os
import shutil
import sys

import numpy as np
import onnx
import onnx.backend.test.case.model as models
import onnx.backend.test.case.node as nodes
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

DATA = os.path.join(os.path.dirname(onnx.__file__), 'backend', 'test', 'data')
WRITERS = {'map_type': numpy_helper.from_dict, 'sequence_type': numpy_helper.from_list,
           'optional_type': numpy_helper.from_optional, 'tensor_type': numpy_helper.from_array}


def write(path, message):
    with open(path, 'wb') as file:
        file.write(message.SerializeToString())


def message_of(value, info):
    if isinstance(value, onnx.TensorProto):
        return value
    return WRITERS[info.type.WhichOneof('value')](value, info.name)


def write_case(case, folder):
    os.makedirs(folder)
    write(os.path.join(folder, 'model.onnx'), case.model)
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data_set = os.path.join(folder, f'test_data_set_{number}')
        os.mkdir(data_set)
        for word, values, infos in (('input', inputs, case.model.graph.input),
                                    ('output', outputs, case.model.graph.output)):
            for i, value in enumerate(values):
                write(os.path.join(data_set, f'{word}_{i}.pb'), message_of(value, infos[i]))


def write_light(case, folder):
    """The network's input as onnx's own runner makes it, its output from the package."""
    name = os.path.basename(case.url)[:-len('.onnx')]
    data_set = os.path.join(folder, 'test_data_set_0')
    os.makedirs(data_set)
    shutil.copy(os.path.join(DATA, 'light', name + '.onnx'), os.path.join(folder, 'model.onnx'))
    shutil.copy(os.path.join(DATA, 'light', name + '_output_0.pb'),
                os.path.join(data_set, 'output_0.pb'))
    graph = onnx.load(os.path.join(folder, 'model.onnx')).graph
    weights = {weight.name for weight in graph.initializer}
    for i, info in enumerate(x for x in graph.input if x.name not in weights):
        value = Runner.generate_dummy_data(info)
        write(os.path.join(data_set, f'input_{i}.pb'), numpy_helper.from_array(value, info.name))
    with open(os.path.join(folder, 'tolerance'), 'w', encoding='ascii') as file:
        file.write(f'{case.rtol} {case.atol}\n')


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    np.random.seed(0)
    for case in nodes.collect_testcases():
        write_case(case, os.path.join(folder, 'node', case.name))
    for case in models.collect_testcases():
        if case.kind == 'real':
            write_light(case, os.path.join(folder, 'light', case.name))
        else:
            write_case(case, os.path.join(folder, case.kind, case.name))
    for kind in ('pytorch-converted', 'pytorch-operator'):
        shutil.copytree(os.path.join(DATA, kind), os.path.join(folder, kind))


main(sys.argv[1])
