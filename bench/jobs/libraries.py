# SPDX-License-Identifier: Apache-2.0
"""What networks are made of, under the same names by kiln and by PyTorch; all else is the library's own
function of that name. Nothing is imported before it is used."""


class _Kiln:
    def __getattr__(self, name):
        import kiln
        return getattr(kiln, name)

    @staticmethod
    def linear(x, w, b):
        return x @ w + b

    @staticmethod
    def convolution(x, w):
        import kiln
        return kiln.conv(x, w, layout="channels_first", before=1, after=1)

    @staticmethod
    def pool(x):
        import kiln
        return kiln.max_pool(x, [2, 2], layout="channels_first")

    @staticmethod
    def rows(table, numbers):
        import kiln
        return kiln.gather(table, numbers, 0)

    @staticmethod
    def before(length, lengths, rows):
        """[rows, length], true at places before each row's length."""
        import kiln
        return kiln.iota((1, length), 1) < lengths.reshape(rows, 1)

    @staticmethod
    def attention(q, k, v, *mask, causal=False):
        import kiln
        return kiln.attention(q, k, v, *mask, causal=int(causal))

    @staticmethod
    def norm(x, scale, shift, epsilon=1e-5):
        import kiln
        return kiln.layer_norm(x, scale, shift, epsilon=epsilon)

    @staticmethod
    def floats(x):
        return x.astype("f32")

    @staticmethod
    def gru(x, w, r, bias):
        import kiln
        return kiln.gru(x, w[None], r[None], bias[None], gates="pytorch", linear_before_reset=1)[0][:, 0]


class _Torch:
    def __getattr__(self, name):
        import torch
        return getattr(torch, name)

    @staticmethod
    def linear(x, w, b):
        return x @ w + b

    @staticmethod
    def convolution(x, w):
        import torch
        return torch.nn.functional.conv2d(x, w, padding=1)

    @staticmethod
    def pool(x):
        import torch
        return torch.nn.functional.max_pool2d(x, 2)

    @staticmethod
    def rows(table, numbers):
        return table[numbers]

    @staticmethod
    def before(length, lengths, rows):
        import torch
        return torch.arange(length, device=lengths.device)[None] < lengths.reshape(rows, 1)

    @staticmethod
    def attention(q, k, v, *mask, causal=False):
        import torch
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, *mask, is_causal=causal)

    @staticmethod
    def norm(x, scale, shift, epsilon=1e-5):
        import torch
        return torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, epsilon)

    @staticmethod
    def gelu(x):
        import torch
        return torch.nn.functional.gelu(x)

    @staticmethod
    def cross_entropy(logits, labels):
        import torch
        return torch.nn.functional.cross_entropy(logits, labels.long())

    @staticmethod
    def transpose(x, axes):
        return x.permute(axes)

    @staticmethod
    def floats(x):
        return x.float()

    @staticmethod
    def gru(x, w, r, bias):
        import torch
        zero = torch.zeros(1, x.shape[1], r.shape[1], device=x.device)
        half = bias.shape[0] // 2
        return torch.gru(x, zero, [w, r, bias[:half], bias[half:]], True, 1, 0.0, True, False, False)[0]


Kiln, Torch = _Kiln(), _Torch()
