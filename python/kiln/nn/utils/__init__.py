# SPDX-License-Identifier: Apache-2.0
"""What torch.nn.utils has of sequences: kiln.nn.utils.rnn. kiln.clip_by_norm() clips gradients."""
from . import rnn

__all__ = ['rnn']
