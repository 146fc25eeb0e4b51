# SPDX-License-Identifier: Apache-2.0
"""ONNX files with random weights, as exporters write such networks, beside ONNX Runtime; some with shapes
that change from run to run."""

import numpy as np


class Network:
    """`make` gives the model's bytes, `runs` the inputs of each run of the job."""

    def __init__(self, make, runs):
        self.make, self.runs, self.made = make, runs, None

    def data(self):
        self.made = self.made or (self.make(), self.runs(np.random.default_rng(1)))
        return self.made

    def reference(self, data):
        return None

    def kiln(self, data, device):
        import kiln
        model = kiln.Model(data[0])
        return {"model": lambda: [r for feeds in data[1] for r in model(**feeds).values()]}

    def onnxruntime(self, data, device):
        import onnxruntime
        session = onnxruntime.InferenceSession(data[0], providers=["CPUExecutionProvider"])
        return {"cpu": lambda: [r for feeds in data[1] for r in session.run(None, feeds)]}


class Graph:
    """Nodes and weights, one after the other; a value is its name."""

    def __init__(self):
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(0)

    def weight(self, *shape, scale=None):
        """Random numbers, so that what they are multiplied with keeps its size."""
        scale = np.prod(shape[1:]) ** -0.5 if scale is None else scale
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value):
        self.weights.append(np.asarray(value))
        return f"w{len(self.weights) - 1}"

    def add(self, operator, *inputs, outputs=1, **attributes):
        from onnx import helper
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def bytes(self, inputs, outputs, kind=1):
        """Of the model with these inputs, {name: shape}, of ONNX's type `kind` (1: FLOAT), and values as
        outputs, {name: value}."""
        from onnx import TensorProto, helper, numpy_helper
        ends = [helper.make_node("Identity", [value], [name]) for name, value in outputs.items()]
        graph = helper.make_graph(
            self.nodes + ends, "network",
            [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(self.weights)])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                 ir_version=8).SerializeToString()


def floats(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def growing_cache(layers, width, length, steps):
    """A decoder's token: keys and values so far are inputs, and one longer outputs."""
    heads = width // 64

    def make():
        g = Graph()
        x, inputs, outputs = "x", {"x": [1, 1, width]}, {}
        heads_first = g.constant(np.array([1, 1, heads, 64]))
        for i in range(layers):
            q, k, v = [g.add("Transpose", g.add("Reshape", g.add("MatMul", x, g.weight(
                width, width, scale=width ** -0.5)), heads_first), perm=[0, 2, 1, 3]) for _ in "qkv"]
            for name, new in ((f"k{i}", k), (f"v{i}", v)):
                inputs[name] = [1, heads, f"past", 64]
                outputs[f"new_{name}"] = g.add("Concat", name, new, axis=2)
            keys, values = outputs[f"new_k{i}"], outputs[f"new_v{i}"]
            scores = g.add("MatMul", q, g.add("Transpose", keys, perm=[0, 1, 3, 2]))
            scores = g.add("Softmax", g.add("Mul", scores, g.constant(np.float32(0.125))), axis=-1)
            a = g.add("Transpose", g.add("MatMul", scores, values), perm=[0, 2, 1, 3])
            a = g.add("Reshape", a, g.constant(np.array([1, 1, width])))
            x = g.add("Add", x, g.add("MatMul", a, g.weight(width, width, scale=width ** -0.5)))
            h = g.add("Relu", g.add("MatMul", x, g.weight(width, 4 * width, scale=width ** -0.5)))
            x = g.add("Add", x, g.add("MatMul", h, g.weight(4 * width, width, scale=0.02)))
            x = g.add("LayerNormalization", x, g.constant(np.ones(width, np.float32)), axis=-1)
        return g.bytes(inputs, {"y": x, **outputs})

    def runs(random):
        return [{"x": floats(random, 1, 1, width),
                 **{f"{n}{i}": floats(random, 1, heads, length + step, 64)
                    for i in range(layers) for n in "kv"}} for step in range(steps)]

    return Network(make, runs)


def recogniser(count):
    """A line of text: convolutions that halve the height, then an LSTM along the width, both ways."""
    def make():
        g = Graph()
        x, channels = "x", 3
        for out, stride in ((32, 2), (64, 2), (128, 2)):
            x = g.add("Conv", x, g.weight(out, channels, 3, 3), g.weight(out, scale=0.1),
                      strides=[stride, stride if out < 128 else 1], pads=[1, 1, 1, 1])
            x, channels = g.add("Relu", x), out
        x = g.add("ReduceMean", x, axes=[2], keepdims=0)
        x = g.add("Transpose", x, perm=[2, 0, 1])
        h = g.add("LSTM", x, g.weight(2, 4 * 96, channels, scale=0.08), g.weight(2, 4 * 96, 96, scale=0.08),
                  g.weight(2, 8 * 96, scale=0.1), outputs=3, hidden_size=96, direction="bidirectional")[0]
        h = g.add("Reshape", g.add("Transpose", h, perm=[2, 0, 1, 3]), g.constant(np.array([1, -1, 192])))
        y = g.add("Softmax", g.add("MatMul", h, g.weight(192, 6000, scale=0.07)), axis=-1)
        return g.bytes({"x": [1, 3, 48, "width"]}, {"y": y})

    def runs(random):
        return [{"x": floats(random, 1, 3, 48, 160 + 4 * i)} for i in range(count)]

    return Network(make, runs)


def recurrent(kind, steps, width, layers=1, convolutions=0):
    """One sequence through recurrent layers; before them convolutions along the steps."""
    gates = {"GRU": 3, "LSTM": 4}[kind]

    def make():
        g = Graph()
        x, given = "x", 40 if convolutions else width
        if convolutions:
            for i in range(convolutions):
                x = g.add("Conv", x, g.weight(width, given if not i else width, 3), g.weight(width, scale=0.1),
                          pads=[1, 1])
                x = g.add("Relu", x)
            x, given = g.add("Transpose", x, perm=[2, 0, 1]), width
        for _ in range(layers):
            options = {"linear_before_reset": 1} if kind == "GRU" else {}
            h = g.add(kind, x, g.weight(1, gates * width, given, scale=given ** -0.5),
                      g.weight(1, gates * width, width, scale=width ** -0.5),
                      g.weight(1, 2 * gates * width, scale=0.1),
                      outputs=2 if kind == "GRU" else 3, hidden_size=width, **options)[0]
            x, given = g.add("Squeeze", h, g.constant(np.array([1]))), width
        y = g.add("Sigmoid", g.add("MatMul", x, g.weight(width, 64, scale=width ** -0.5)))
        return g.bytes({"x": [1, 40, steps] if convolutions else [steps, 1, width]}, {"y": y})

    def runs(random):
        return [{"x": floats(random, 1, 40, steps) if convolutions else floats(random, steps, 1, width)}]

    return Network(make, runs)


def residual(size):
    """ResNet-18's shape (He et al. 2015), batch norms folded into the convolutions."""
    def make():
        g = Graph()

        def convolve(x, given, out, kernel, stride):
            return g.add("Conv", x, g.weight(out, given, kernel, kernel), g.weight(out, scale=0.1),
                         strides=[stride] * 2, pads=[kernel // 2] * 4)

        x = g.add("Relu", convolve("x", 3, 64, 7, 2))
        x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        given = 64
        for out in (64, 128, 256, 512):
            for block in range(2):
                stride = 2 if out > 64 and not block else 1
                y = g.add("Relu", convolve(x, given, out, 3, stride))
                y = convolve(y, out, out, 3, 1)
                x = x if given == out else convolve(x, given, out, 1, stride)
                x, given = g.add("Relu", g.add("Add", x, y)), out
        x = g.add("Flatten", g.add("GlobalAveragePool", x))
        return g.bytes({"x": [1, 3, size, size]}, {"y": g.add("Gemm", x, g.weight(512, 1000, scale=0.04))})

    def runs(random):
        return [{"x": floats(random, 1, 3, size, size)}]

    return Network(make, runs)
