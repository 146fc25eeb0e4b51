# SPDX-License-Identifier: Apache-2.0
"""Layers as functions, with torch.nn.functional's names and arguments, over what kiln and kiln.nn have.

    import kiln.nn.functional as F
    y = F.relu(F.linear(x, weight, bias))

`inplace` is taken, and says nothing: what goes in keeps its value.
"""
from __future__ import annotations

import inspect
import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Type, Union

from .. import _functions as _f
from .. import _nn_activations as _a
from .. import _nn_layers as _l
from .. import _nn_norms as _n
from .. import _operations as _o
from .. import linalg as _linalg
from .._library import Error
from .._manipulation import pad as _padded, reshape
from .._nn_attention import with_weights
from .._nn_losses import (binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, huber_loss,
                          kl_div, l1_loss, mse_loss, nll_loss, smooth_l1_loss)
from .._nn_module import Module, shown
from .._record import operands
from .._tensor import Array, Tensor, known

__all__ = [
    'adaptive_avg_pool1d', 'adaptive_avg_pool2d', 'adaptive_max_pool1d', 'adaptive_max_pool2d', 'avg_pool1d',
    'avg_pool2d', 'avg_pool3d', 'batch_norm', 'binary_cross_entropy', 'binary_cross_entropy_with_logits', 'celu',
    'conv1d', 'conv2d', 'conv3d', 'conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d', 'cosine_similarity',
    'cross_entropy', 'dropout', 'dropout1d', 'dropout2d', 'dropout3d', 'elu', 'embedding', 'gelu', 'glu',
    'group_norm', 'hardshrink', 'hardsigmoid', 'hardswish', 'hardtanh', 'huber_loss', 'instance_norm',
    'interpolate', 'kl_div', 'l1_loss', 'layer_norm', 'leaky_relu', 'linear', 'log_softmax', 'logsigmoid',
    'max_pool1d', 'max_pool2d', 'max_pool3d', 'mish', 'mse_loss', 'nll_loss', 'normalize', 'one_hot', 'pad',
    'pixel_shuffle', 'pixel_unshuffle', 'prelu', 'relu', 'relu6', 'rms_norm', 'scaled_dot_product_attention',
    'selu', 'sigmoid', 'silu', 'smooth_l1_loss', 'softmax', 'softmin', 'softplus', 'softshrink', 'softsign',
    'tanh', 'tanhshrink',
]


# ---- layers without weights ----

def _call_of(layer: Type[Module]) -> Callable[..., Tensor]:
    """The function of a tensor and of what the layer is made with."""
    def function(input: Array, *arguments: Any, **named: Any) -> Tensor:
        made: Tensor = layer(*arguments, **named)(input)
        return made
    function.__doc__ = f'kiln.nn.{layer.__name__}: {layer.__doc__}'
    own = [p for p in inspect.signature(layer).parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter('input', inspect.Parameter.POSITIONAL_OR_KEYWORD), *own])
    return function


relu, relu6, elu, selu = _call_of(_a.ReLU), _call_of(_a.ReLU6), _call_of(_a.ELU), _call_of(_a.SELU)
gelu, silu, mish, glu = _call_of(_a.GELU), _call_of(_a.SiLU), _call_of(_a.Mish), _call_of(_a.GLU)
leaky_relu, softplus, softsign = _call_of(_a.LeakyReLU), _call_of(_a.Softplus), _call_of(_a.Softsign)
sigmoid, logsigmoid, tanh = _call_of(_a.Sigmoid), _call_of(_a.LogSigmoid), _call_of(_a.Tanh)
hardsigmoid, hardswish, hardtanh = _call_of(_a.Hardsigmoid), _call_of(_a.Hardswish), _call_of(_a.Hardtanh)
softmax, log_softmax = _call_of(_a.Softmax), _call_of(_a.LogSoftmax)
max_pool1d, max_pool2d, max_pool3d = _call_of(_l.MaxPool1d), _call_of(_l.MaxPool2d), _call_of(_l.MaxPool3d)
avg_pool1d, avg_pool2d, avg_pool3d = _call_of(_l.AvgPool1d), _call_of(_l.AvgPool2d), _call_of(_l.AvgPool3d)
adaptive_avg_pool1d, adaptive_avg_pool2d = _call_of(_l.AdaptiveAvgPool1d), _call_of(_l.AdaptiveAvgPool2d)
adaptive_max_pool1d, adaptive_max_pool2d = _call_of(_l.AdaptiveMaxPool1d), _call_of(_l.AdaptiveMaxPool2d)


def celu(input: Array, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha (exp(x / alpha) - 1)."""
    x, = operands(input)
    return _o.elu(x / alpha, 1.0) * alpha


def softmin(input: Array, dim: int = -1) -> Tensor:
    """softmax() of -x."""
    x, = operands(input)
    return _o.softmax(-x, dim)


def tanhshrink(input: Array) -> Tensor:
    """x - tanh(x)."""
    x, = operands(input)
    return x - _o.tanh(x)


def hardshrink(input: Array, lambd: float = 0.5) -> Tensor:
    """x where |x| is above lambd, else 0."""
    x, = operands(input)
    return _o.where(abs(x) <= lambd, 0.0, x)


def softshrink(input: Array, lambd: float = 0.5) -> Tensor:
    """x, by lambd nearer to 0; 0 where |x| is no more than that."""
    x, = operands(input)
    return x - _o.clamp(x, -lambd, lambd)


def _dropped(layer: Type[_l.Dropout]) -> Callable[..., Tensor]:
    def function(input: Array, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        made: Tensor = layer(p).train(training)(input)
        return made
    function.__doc__ = f'kiln.nn.{layer.__name__}, with `training=self.training` in a module: {layer.__doc__}'
    return function


dropout, dropout1d = _dropped(_l.Dropout), _dropped(_l.Dropout1d)
dropout2d, dropout3d = _dropped(_l.Dropout2d), _dropped(_l.Dropout3d)


# ---- with weights ----

def _tensors(*given: Optional[Array]) -> List[Any]:
    """What is given, as tensors of one context."""
    made = iter(operands(*(x for x in given if x is not None)))
    return [None if x is None else next(made) for x in given]


def _with(layer: Type[Any], **attributes: Any) -> Any:
    """A layer with these weights; nothing is drawn for it."""
    made = object.__new__(layer)
    vars(made).update(attributes)
    return made


def _refuse_rank(name: str, weight: Tensor, rank: int) -> None:
    if weight.ndim != rank:
        raise Error('SHAPE_MISMATCH', f'{name}: weight {shown(weight)} is not of {rank} dimensions')


def linear(input: Array, weight: Array, bias: Optional[Array] = None) -> Tensor:
    """x weight' + bias over the last dimension of x; the weight is [out_features, in_features]."""
    x, w, b = _tensors(input, weight, bias)
    _refuse_rank('linear', w, 2)
    made: Tensor = _with(_l.Linear, in_features=w.shape[1], out_features=w.shape[0], weight=w, bias=b)(x)
    return made


def embedding(input: Array, weight: Array, padding_idx: Optional[int] = None) -> Tensor:
    """The rows of a table that x, of integers, says; the one of `padding_idx` has no gradient."""
    x, w = _tensors(input, weight)
    _refuse_rank('embedding', w, 2)
    rows, width = w.shape
    place = padding_idx if padding_idx is None or padding_idx >= 0 else padding_idx + rows
    made: Tensor = _with(_l.Embedding, num_embeddings=rows, embedding_dim=width, padding_idx=place, weight=w)(x)
    return made


def prelu(input: Array, weight: Array) -> Tensor:
    """x where it is positive, else weight x; the weight is one number, or one for each channel."""
    x, w = _tensors(input, weight)
    made: Tensor = _with(_a.PReLU, num_parameters=w.size, weight=reshape(w, (-1,)))(x)
    return made


def _conv(layer: Type[Any], x: Tensor, weight: Tensor, bias: Any, groups: int, *options: Any) -> Any:
    made = object.__new__(layer)
    _refuse_rank(layer.__name__, weight, made._dimensions + 2)
    first, second, *window = weight.shape
    ends = (first, second * groups) if made._transposed else (second * groups, first)
    made._arrange(*ends, window, *options, groups)
    made.weight, made.bias = weight, bias
    return made


def _convolving(layer: Type[Any]) -> Callable[..., Tensor]:
    def function(input: Array, weight: Array, bias: Optional[Array] = None, stride: _l.Sizes = 1,
                 padding: Union[str, _l.Sizes] = 0, dilation: _l.Sizes = 1, groups: int = 1) -> Tensor:
        x, w, b = _tensors(input, weight, bias)
        made: Tensor = _conv(layer, x, w, b, groups, stride, padding, dilation)(x)
        return made
    function.__doc__ = f'kiln.nn.{layer.__name__} with this weight: {layer.__doc__}'
    return function


def _transposing(layer: Type[Any]) -> Callable[..., Tensor]:
    def function(input: Array, weight: Array, bias: Optional[Array] = None, stride: _l.Sizes = 1,
                 padding: _l.Sizes = 0, output_padding: _l.Sizes = 0, groups: int = 1,
                 dilation: _l.Sizes = 1) -> Tensor:
        x, w, b = _tensors(input, weight, bias)
        made = _conv(layer, x, w, b, groups, stride, padding, dilation)
        made.output_padding = _l._each(output_padding, made._dimensions, 'output_padding')
        y: Tensor = made(x)
        return y
    function.__doc__ = f'kiln.nn.{layer.__name__} with this weight: {layer.__doc__}'
    return function


conv1d, conv2d, conv3d = _convolving(_l.Conv1d), _convolving(_l.Conv2d), _convolving(_l.Conv3d)
conv_transpose1d, conv_transpose2d = _transposing(_l.ConvTranspose1d), _transposing(_l.ConvTranspose2d)
conv_transpose3d = _transposing(_l.ConvTranspose3d)


# ---- normalisations ----

def layer_norm(input: Array, normalized_shape: Union[int, Sequence[int]], weight: Optional[Array] = None,
               bias: Optional[Array] = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) weight + bias over the last dimensions."""
    x, w, b = _tensors(input, weight, bias)
    made: Tensor = _with(_n.LayerNorm, normalized_shape=_shape(normalized_shape), weight=w, bias=b, eps=eps,
                         elementwise_affine=w is not None)(x)
    return made


def rms_norm(input: Array, normalized_shape: Union[int, Sequence[int]], weight: Optional[Array] = None,
             eps: Optional[float] = None) -> Tensor:
    """x / sqrt(mean of x^2 + eps) weight over the last dimensions; eps is f32's, 2^-23, unless given."""
    x, w = _tensors(input, weight)
    made: Tensor = _with(_n.RMSNorm, normalized_shape=_shape(normalized_shape), weight=w,
                         eps=2.0 ** -23 if eps is None else eps, elementwise_affine=w is not None)(x)
    return made


def _shape(given: Union[int, Sequence[int]]) -> Tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def _channels(name: str, x: Tensor) -> int:
    if x.ndim < 2:
        raise Error('SHAPE_MISMATCH', f'{name}: input {shown(x)} has no channels in dimension 1')
    return x.shape[1]


def group_norm(input: Array, num_groups: int, weight: Optional[Array] = None, bias: Optional[Array] = None,
               eps: float = 1e-5) -> Tensor:
    """Each of num_groups groups of channels of each x [N, channels, ...] by its own mean and variance."""
    x, w, b = _tensors(input, weight, bias)
    _channels('group_norm', x)
    return _o.group_norm(x, w, b, num_groups, 1, eps)


def instance_norm(input: Array, running_mean: None = None, running_var: None = None,
                  weight: Optional[Array] = None, bias: Optional[Array] = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """group_norm() of groups of one channel. There are no running averages of it."""
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise ValueError('instance_norm: there are no running averages of it')
    x, w, b = _tensors(input, weight, bias)
    _channels('instance_norm', x)
    return _o.instance_norm(x, w, b, 1, eps)


def batch_norm(input: Array, running_mean: Any, running_var: Any, weight: Optional[Array] = None,
               bias: Optional[Array] = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> Tensor:
    """Each channel of x [N, channels, ...] by running_mean and running_var. While it trains by the batch's,
    which these follow by the share `momentum`, if they are given: they are kiln.Buffers then."""
    x, w, b = _tensors(input, weight, bias)
    count = _channels('batch_norm', x)
    if not training and (running_mean is None or running_var is None):
        raise ValueError('batch_norm: without training it takes running_mean and running_var')
    layer = _with(_n._BatchNorm, num_features=count, eps=eps, momentum=momentum, affine=w is not None, weight=w,
                  bias=b, track_running_stats=running_mean is not None, running_mean=running_mean,
                  running_var=running_var, num_batches_tracked=None, _ranks=(x.ndim,), _trains=training)
    made: Tensor = layer(x)
    return made


def normalize(input: Array, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along a dimension, eps at least."""
    x, = operands(input)
    return x / _o.maximum(_linalg.vector_norm(x, axis=dim, keepdims=True, ord=p), eps)


def cosine_similarity(x1: Array, x2: Array, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (|x1| |x2|) along a dimension; a norm is eps at least. The other dimensions broadcast."""
    x, y = operands(x1, x2)
    return _o.sum(normalize(x, dim=dim, eps=eps) * normalize(y, dim=dim, eps=eps), dim, False)


# ---- attention, shapes ----

def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Optional[Array] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: Optional[float] = None, enable_gqa: bool = False) -> Tensor:
    """kiln.attention(): softmax(scale q k' + mask) v, of q [..., L, d], k [..., S, d] and v [..., S, e]. A
    mask of bools says with True what is seen. Unless dropout_p is 0 the weights are in memory. With
    `enable_gqa` several of q's heads, dimension -3, share one of k's and v's."""
    q, k, v, mask = _tensors(query, key, value, attn_mask)
    shape = (*q.shape[:-1], v.shape[-1])
    if enable_gqa and q.ndim > 2 and k.ndim > 2 and q.shape[-3] != k.shape[-3]:
        heads = k.shape[-3]
        if not heads or q.shape[-3] % heads or v.shape[-3] != heads:
            raise Error('SHAPE_MISMATCH', f'scaled_dot_product_attention: the heads of query {shown(q)} do not share '
                                          f'those of key {shown(k)} and value {shown(v)}')
        q = reshape(q, (*q.shape[:-3], heads, q.shape[-3] // heads, *q.shape[-2:]))
        k, v = (reshape(x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in (k, v))
        if mask is not None and mask.ndim > 2:
            of_heads = (heads, mask.shape[-3] // heads) if mask.shape[-3] > 1 else (1, 1)
            mask = reshape(mask, (*mask.shape[:-3], *of_heads, *mask.shape[-2:]))
    if dropout_p:
        y, _ = with_weights(q, k, v, mask, is_causal, lambda x: dropout(x, dropout_p), scale)
    elif scale == 0:  # to the library that is the usual one
        y = _f.attention(q * 0.0, k, v, mask, causal=int(is_causal))
    else:
        y = _f.attention(q, k, v, mask, causal=int(is_causal), scale=0 if scale is None else scale)
    return reshape(y, shape) if y.ndim > len(shape) else y


def one_hot(tensor: Array, num_classes: int = -1) -> Tensor:
    """Along a new last dimension 1, of i64, at the position that each integer says. Of -1 classes there are as
    many as the largest wants, which is computed now."""
    x, = operands(tensor)
    if num_classes < 0:
        num_classes = int(known(x, 'the number of classes').max(initial=-1)) + 1
    return _o.one_hot(x, num_classes, 'i64')


_MODES = {'constant': 'constant', 'reflect': 'reflect', 'replicate': 'edge', 'circular': 'wrap'}


def pad(input: Array, pad: Sequence[int], mode: str = 'constant', value: Optional[float] = None) -> Tensor:
    """x with elements around it: `pad` is (before, behind) of the last dimension, then of the one before it,
    and so on; negative numbers take elements away. `mode` is "constant", "reflect", "replicate" or
    "circular"."""
    x, = operands(input)
    if len(pad) % 2 or len(pad) > 2 * x.ndim or mode not in _MODES:
        raise ValueError(f'pad has a pair for each of up to {x.ndim} dimensions, not {tuple(pad)}, and mode is '
                         f'{", ".join(map(repr, _MODES))}, not {mode!r}')
    pairs = [(0, 0)] * (x.ndim - len(pad) // 2) + list(zip(pad[-2::-2], pad[::-2]))
    if any(extent + a + b < 0 for (a, b), extent in zip(pairs, x.shape)):
        raise ValueError(f'pad {tuple(pad)} takes more away than shape {x.shape} has')
    if any(n < 0 for pair in pairs for n in pair):
        x = x[tuple(slice(max(-a, 0), extent - max(-b, 0)) for (a, b), extent in zip(pairs, x.shape))]
    return _padded(x, [(max(a, 0), max(b, 0)) for a, b in pairs], value or 0.0, _MODES[mode])


_METHODS = {'nearest': ('nearest', None), 'nearest-exact': ('nearest', None), 'linear': ('linear', 3),
            'bilinear': ('linear', 4), 'trilinear': ('linear', 5), 'bicubic': ('cubic', 4)}


def interpolate(input: Array, size: Optional[_l.Sizes] = None,
                scale_factor: Union[None, float, Sequence[float]] = None, mode: str = 'nearest',
                align_corners: Optional[bool] = None, recompute_scale_factor: Optional[bool] = None,
                antialias: bool = False) -> Tensor:
    """x [N, channels, ...] with other extents behind the channels: of `size`, or by a factor. `mode` is "nearest",
    "nearest-exact", "linear", "bilinear", "trilinear" or "bicubic"; kiln.resize() has more."""
    x, = operands(input)
    count = x.ndim - 2
    if mode not in _METHODS or (size is None) == (scale_factor is None) or count < 1 or \
            _METHODS[mode][1] not in (None, x.ndim):
        raise ValueError(f'interpolate takes size or scale_factor, and a mode for {x.ndim} dimensions, not {mode!r}')
    if recompute_scale_factor and size is None:
        factors = _numbers(scale_factor, count)
        size, scale_factor = [math.floor(n * f) for n, f in zip(x.shape[2:], factors)], None
    target: Any = {'shape': (*x.shape[:2], *_l._each(size, count, 'size'))} if size is not None else \
        {'scale': (1.0, 1.0, *_numbers(scale_factor, count))}
    coordinates = 'asymmetric' if mode == 'nearest' else 'align_corners' if align_corners else 'half_pixel'
    nearest = 'prefer_ceil' if mode == 'nearest-exact' else 'floor'
    return _f.resize(x, method=_METHODS[mode][0], coordinates=coordinates, nearest=nearest, antialias=antialias,
                     exclude_outside=antialias, cubic=-0.5 if antialias else -0.75, **target)


def _numbers(given: Any, count: int) -> List[float]:
    return [float(given)] * count if isinstance(given, (int, float)) else [float(f) for f in given]


def _blocks(of: Callable[..., Tensor], input: Array, factor: int) -> Tensor:
    x, = operands(input)
    if x.ndim < 3:
        raise Error('SHAPE_MISMATCH', f'input {shown(x)} is no image [..., C, H, W]')
    y = of(reshape(x, (-1 if x.size else math.prod(x.shape[:-3]), *x.shape[-3:])), factor, 'channel_first',
           'channels_first')
    return reshape(y, (*x.shape[:-3], *y.shape[1:]))


def pixel_shuffle(input: Array, upscale_factor: int) -> Tensor:
    """[..., C r^2, H, W] as [..., C, H r, W r]."""
    return _blocks(_o.depth_to_space, input, upscale_factor)


def pixel_unshuffle(input: Array, downscale_factor: int) -> Tensor:
    """[..., C, H r, W r] as [..., C r^2, H, W]."""
    return _blocks(_o.space_to_depth, input, downscale_factor)
