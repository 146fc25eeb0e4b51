# SPDX-License-Identifier: Apache-2.0
"""Attention of several heads, and the encoder of transformers, as PyTorch has them."""
from __future__ import annotations

import copy
import math
from typing import Any, Callable, Dict, Optional, Tuple, Union

import numpy as np

from . import _functions as _f
from . import _operations as _o
from ._context import Context
from ._manipulation import permute_dims, reshape
from ._nn_layers import Dropout, Linear
from ._nn_init import drawn
from ._nn_module import Module, ModuleList, dims, parameter, shown
from ._nn_norms import LayerNorm
from ._tensor import Array, Tensor
from ._types import Type

__all__ = ['MultiheadAttention', 'TransformerEncoder', 'TransformerEncoderLayer']


class MultiheadAttention(Module):
    """Attention of num_heads heads, each with embed_dim / num_heads of the features.

    x is [L, N, embed_dim], or [N, L, embed_dim] with batch_first, or [L, embed_dim]. A bool mask says
    with True what is *not* seen, as PyTorch's do; one of floats is added to the scores. A row that sees
    nothing is 0.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 batch_first: bool = False, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f'{embed_dim} features do not make up {num_heads} heads')
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.dropout = Dropout(dropout)
        bound = math.sqrt(6 / (4 * embed_dim)) if embed_dim else 0.0
        zeros = np.zeros(3 * embed_dim, np.float32)
        self.in_proj_weight = parameter(drawn((3 * embed_dim, embed_dim), bound), dtype, context)
        self.in_proj_bias = parameter(zeros, dtype, context) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, context=context)
        if self.out_proj.bias is not None:
            self.out_proj.bias = parameter(zeros[:embed_dim], dtype, context)

    def _projected(self, x: Tensor, first: int, last: int) -> Tensor:
        """x by some of the three matrices."""
        rows = slice(first * self.embed_dim, last * self.embed_dim)
        y = _o.matmul_transposed(x, False, self.in_proj_weight[rows], True)
        return y if self.in_proj_bias is None else y + self.in_proj_bias[rows]

    def _heads(self, x: Tensor) -> Tensor:
        """[N, heads, L, features of a head] of [N, L, embed_dim]."""
        n, length, _ = x.shape
        x = reshape(x, (n, length, self.num_heads, self.embed_dim // self.num_heads))
        return permute_dims(x, (0, 2, 1, 3))

    def _sequence(self, name: str, x: Array) -> Tensor:
        """[N, L, embed_dim]"""
        x = self._operand(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.embed_dim:
            order = 'N,L' if self.batch_first else 'L,N'
            self._refuse(f'{name} {shown(x)} is not [{order},{self.embed_dim}], nor [L,{self.embed_dim}]')
        if x.ndim == 2:
            return reshape(x, (1, *x.shape))
        return x if self.batch_first else permute_dims(x, (1, 0, 2))

    def _mask(self, attn_mask: Optional[Array], key_padding_mask: Optional[Array], n: int, length: int,
              keys: int) -> Optional[Tensor]:
        """What hides keys, as the library has it: u8 of the seen ones, or floats to add."""
        made: Optional[Tensor] = None
        heads = self.num_heads
        of_attention = {(length, keys): (1, 1, length, keys), (n * heads, length, keys): (n, heads, length, keys)}
        of_keys: Dict[Tuple[int, ...], Tuple[int, ...]] = {(n, keys): (n, 1, 1, keys)}
        if n == 1:
            of_keys[keys,] = 1, 1, 1, keys
        for name, mask, shapes in (('attn_mask', attn_mask, of_attention),
                                   ('key_padding_mask', key_padding_mask, of_keys)):
            if mask is None:
                continue
            mask = self._operand(mask)
            if mask.shape not in shapes:
                self._refuse(f'{name} {shown(mask)} is not {" or ".join(map(dims, shapes))}')
            mask = reshape(mask, shapes[mask.shape])
            mask = mask if mask.dtype.is_floating else _o.logical_not(mask)
            if made is None:
                made = mask
            elif made.dtype.is_floating or mask.dtype.is_floating:
                made = _added(made) + _added(mask)
            else:
                made = _o.logical_and(made, mask)
        return made

    def forward(self, query: Array, key: Optional[Array] = None, value: Optional[Array] = None,
                key_padding_mask: Optional[Array] = None, need_weights: bool = False,
                attn_mask: Optional[Array] = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
        """(what the heads see of value, the weights or None); key is query unless given, and value key.
        `attn_mask` is [L, S] or [N * num_heads, L, S], `key_padding_mask` [N, S]. With `is_causal` row i
        sees keys 0 to i, without a mask. Weights, which take memory, come with `need_weights`, the mean
        over the heads of them or each."""
        batched = self._operand(query).ndim != 2
        q = self._sequence('query', query)
        if key is None and value is None or key is query and value is query:
            together = self._projected(q, 0, 3)
            q, k, v = (together[:, :, i * self.embed_dim:(i + 1) * self.embed_dim] for i in range(3))
        else:
            key = query if key is None else key
            k = self._projected(self._sequence('key', key), 1, 2)
            v = self._projected(self._sequence('value', key if value is None else value), 2, 3)
            q = self._projected(q, 0, 1)
            if k.shape != v.shape or k.shape[0] != q.shape[0]:
                self._refuse(f'query, key and value are {shown(q)}, {shown(k)} and {shown(v)}, batch first')
        q, k, v = self._heads(q), self._heads(k), self._heads(v)
        n, _, length, _ = q.shape
        mask = self._mask(attn_mask, key_padding_mask, n, length, k.shape[2])
        weights: Optional[Tensor] = None
        if need_weights or (self.dropout.p and self.training):
            y, weights = with_weights(q, k, v, mask, is_causal, self.dropout)
        else:
            y = _f.attention(q, k, v, mask, causal=int(is_causal))
        y = self.out_proj(reshape(permute_dims(y, (0, 2, 1, 3)), (n, length, self.embed_dim)))
        if weights is not None and average_attn_weights:
            weights = _o.mean(weights, 1, False)
        if not batched:
            return reshape(y, y.shape[1:]), \
                reshape(weights, weights.shape[1:]) if need_weights and weights is not None else None
        return y if self.batch_first else permute_dims(y, (1, 0, 2)), weights if need_weights else None

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}'


def with_weights(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor], is_causal: bool,
                 dropout: Callable[[Tensor], Tensor], scale: Optional[float] = None) -> Tuple[Tensor, Tensor]:
    """kiln.attention() with the weights in memory, and these."""
    scores = _o.matmul_transposed(q, False, k, True) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        seen = np.tril(np.ones(scores.shape[-2:], np.bool_))
        scores = _o.where(seen, scores, -math.inf)
    if mask is not None:
        scores = scores + _added(mask)
    highest = _o.max(scores, -1, True)
    weights = dropout(_o.where(_o.isinf(highest), 0.0, _o.softmax(scores, -1)))
    return _o.matmul(weights, v), weights


def _added(mask: Tensor) -> Tensor:
    """A mask as what is added to scores."""
    return mask if mask.dtype.is_floating else _o.where(mask, 0.0, -math.inf)


_ACTIVATIONS = {'relu': _o.relu, 'gelu': _o.gelu}


class TransformerEncoderLayer(Module):
    """Attention of a sequence to itself and two linear layers, each with what it gets added to what it
    gives, and normalised behind that, or with norm_first before."""

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Union[str, Callable[[Any], Any]] = 'relu', layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True, *,
                 dtype: Type = 'f32', context: Optional[Context] = None) -> None:
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ValueError(f'activation is "relu", "gelu" or a function, not {activation!r}')
        self.norm_first = norm_first
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first, dtype=dtype,
                                            context=context)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype, context=context)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, context=context)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, context=context)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype, context=context)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(self, src: Array, src_mask: Optional[Array] = None,
                src_key_padding_mask: Optional[Array] = None, is_causal: bool = False) -> Tensor:
        """Of src's shape; masks are as MultiheadAttention takes them."""
        x = self._operand(src)

        def attended(x: Tensor) -> Tensor:
            y, _ = self.self_attn(x, key_padding_mask=src_key_padding_mask, attn_mask=src_mask,
                                  is_causal=is_causal)
            dropped: Tensor = self.dropout1(y)
            return dropped

        def fed_forward(x: Tensor) -> Tensor:
            dropped: Tensor = self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
            return dropped
        if self.norm_first:
            x = x + attended(self.norm1(x))
            return x + fed_forward(self.norm2(x))
        x = self.norm1(x + attended(x))
        made: Tensor = self.norm2(x + fed_forward(x))
        return made


class TransformerEncoder(Module):
    """num_layers copies of an encoder layer, one behind the other, and a norm behind them if given."""

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int,
                 norm: Optional[Module] = None) -> None:
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm = norm

    def forward(self, src: Array, mask: Optional[Array] = None,
                src_key_padding_mask: Optional[Array] = None, is_causal: bool = False) -> Tensor:
        """Of src's shape."""
        x = self._operand(src)
        for layer in self.layers:
            x = layer(x, mask, src_key_padding_mask, is_causal)
        return x if self.norm is None else self.norm(x)
