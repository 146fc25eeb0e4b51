# SPDX-License-Identifier: Apache-2.0
"""Makes the models beside it, which are checked in: python3 make.py, with the package onnx."""
import numpy as np
from onnx import TensorProto as T, helper as h, numpy_helper as n, save


def write(name, nodes, inputs, outputs, weights=()):
    graph = h.make_graph(nodes, name, [h.make_tensor_value_info(*i) for i in inputs],
                         [h.make_tensor_value_info(*o) for o in outputs],
                         [n.from_array(w, k) for k, w in weights])
    save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), name + ".onnx")


# y = max(x w + b, 0)
write("layer", [h.make_node("MatMul", ["x", "w"], ["xw"]), h.make_node("Add", ["xw", "b"], ["s"]),
                h.make_node("Relu", ["s"], ["y"])],
      [("x", T.FLOAT, ["batch", 3])], [("y", T.FLOAT, ["batch", 2])],
      [("w", np.array([[1, -1], [2, 0], [0, 3]], np.float32)),
       ("b", np.array([0.5, -0.25], np.float32))])

# Something that nobody has.
write("unknown", [h.make_node("Nonesuch", ["x"], ["y"])], [("x", T.FLOAT, [2])],
      [("y", T.FLOAT, [2])])

# An encoder whose token vectors are rows of a table: number i is [i, 1, 0, -1].
table = np.array([[i, 1, 0, -1] for i in range(12)], np.float32)
write("encoder", [h.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
      [(k, T.INT64, ["batch", "sequence"]) for k in ("input_ids", "attention_mask")],
      [("last_hidden_state", T.FLOAT, ["batch", "sequence", 4])], [("table", table)])

# One that wants what no tokenizer gives.
write("pictures", [h.make_node("Relu", ["pixels"], ["y"])], [("pixels", T.FLOAT, ["batch", 4])],
      [("y", T.FLOAT, ["batch", 4])])

# One that does not say which of its outputs is the last.
write("layers", [h.make_node("Gather", ["table", "input_ids"], ["first"]),
                 h.make_node("Relu", ["first"], ["second"])],
      [("input_ids", T.INT64, ["batch", "sequence"])],
      [(k, T.FLOAT, ["batch", "sequence", 4]) for k in ("first", "second")], [("table", table)])

# Attention as exporters write it, of x to itself.
write("attention", [h.make_node("Transpose", ["x"], ["keys"]),
                    h.make_node("MatMul", ["x", "keys"], ["scores"]),
                    h.make_node("Softmax", ["scores"], ["weights"], axis=-1),
                    h.make_node("MatMul", ["weights", "x"], ["y"])],
      [("x", T.FLOAT, ["n", 4])], [("y", T.FLOAT, ["n", 4])])
