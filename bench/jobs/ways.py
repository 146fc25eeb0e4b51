# SPDX-License-Identifier: Apache-2.0
"""The ways in which PyTorch runs a function of arrays: eager, compiled, and on a GPU as a CUDA graph."""

import torch


def place(device):
    return "cuda" if device == "gpu" else "cpu"


def tensors(arrays, device):
    return [torch.from_numpy(a).to(place(device)) for a in arrays]


def host(results):
    results = results if isinstance(results, (list, tuple)) else [results]
    return [r.float().cpu().numpy() for r in results]


def graph(function, inputs):
    """`function` of tensors that stay, captured; gives a function that replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = function(*inputs)

    def replay():
        captured.replay()
        return results

    replay.holds = function  # The graph knows addresses alone: what is behind them has to live on.
    return replay


def of(function, arrays, device, inference=True):
    """The ways of a function without state: from arrays of the host to arrays of the host."""
    def runs(call):
        def step():
            with torch.inference_mode(inference):
                return host(call(*tensors(arrays, device)))
        return step

    ways = {"eager": runs(function), "compiled": runs(torch.compile(function))}
    if device == "gpu":
        inputs = tensors(arrays, device)
        with torch.no_grad():
            replay = graph(torch.compile(function), inputs)

        def by_graph():
            for held, given in zip(inputs, arrays, strict=True):
                held.copy_(torch.from_numpy(given), non_blocking=True)
            return host(replay())

        ways["graph"] = by_graph
    return ways
