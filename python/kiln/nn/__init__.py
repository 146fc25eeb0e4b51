# SPDX-License-Identifier: Apache-2.0
"""Layers and networks: modules that hold their parameters, what these start with, and losses.

    model = kiln.nn.Sequential(kiln.nn.Linear(64, 128), kiln.nn.ReLU(), kiln.nn.Linear(128, 10))
    optimizer = kiln.optim.AdamW(model)

    def loss(model, x, y):
        return kiln.nn.cross_entropy(model(x), y)

    @kiln.function
    def step(x, y):
        value, gradients = kiln.value_and_grad(loss)(model, x, y)
        optimizer.step(gradients)
        return value

Names, arguments, layouts and first values are those of torch.nn, so that load_state_dict() takes the
weights of PyTorch's models. doc/nn.md says what is otherwise, and what is not there.
"""
from .. import _nn_init as init
from .. import _nn_activations, _nn_attention, _nn_layers, _nn_losses, _nn_module, _nn_norms, _nn_recurrent
from .._nn_activations import *  # noqa: F401,F403
from .._nn_attention import *  # noqa: F401,F403
from .._nn_layers import *  # noqa: F401,F403
from .._nn_losses import *  # noqa: F401,F403
from .._nn_module import *  # noqa: F401,F403
from .._nn_norms import *  # noqa: F401,F403
from .._nn_recurrent import *  # noqa: F401,F403
from . import functional, utils

__all__ = ['functional', 'init', 'utils']
__all__ += _nn_activations.__all__
__all__ += _nn_attention.__all__
__all__ += _nn_layers.__all__
__all__ += _nn_losses.__all__
__all__ += _nn_module.__all__
__all__ += _nn_norms.__all__
__all__ += _nn_recurrent.__all__
