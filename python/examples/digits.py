# SPDX-License-Identifier: Apache-2.0
"""Train a network to read handwritten digits, cell by cell: an editor that knows "# %%" runs them one
after the other, and `python digits.py` all of them."""
# %% The data: 1,797 digits of 8 by 8 pixels; the last 360 are of other writers.
import gzip
import pathlib
import sys
import time

import numpy as np

import kiln
from kiln import nn

DATA = pathlib.Path(__file__).resolve().parents[2] / 'examples' / 'data' / 'digits.csv.gz'
with gzip.open(DATA, 'rt') as file:
    rows = np.loadtxt(file, delimiter=',', dtype=np.uint8)
pixels, labels = rows[:, :64], rows[:, 64]
train, test = slice(0, -360), slice(-360, None)

# %% The network: 64 pixels, 128 hidden units, 10 logits. Weights are buffers: they stay on the device.
random = np.random.default_rng(2026)
kiln.random.seed(1)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
for layer in model[0], model[2]:
    nn.init.kaiming_uniform_(layer.weight, nonlinearity='relu')  # K. He and others, ICCV 2015


def loss(model, x, y):
    return nn.cross_entropy(model(x / 16), y)


# %% A training step: forward, backward and update run as one batch, recorded in the first call.
optimizer = kiln.optim.AdamW(model, learning_rate=0.01, weight_decay=0.01)


@kiln.function
def step(x, y):
    value, gradients = kiln.value_and_grad(loss)(model, x, y)
    optimizer.step(gradients)
    return value


@kiln.function
def read(x):
    return kiln.argmax(model(x / 16), axis=1)


# %% Training: 60 epochs, each digit moved by up to a pixel.
def moved(images):
    """Each image moved up or down, left or right, by up to a pixel."""
    wide = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    down, right = random.integers(0, 3, (2, len(images), 1, 1))
    across = np.arange(8)
    each = np.arange(len(images))[:, None, None]
    return wide[each, across[:, None] + down, across + right].reshape(-1, 64)


epochs, size = 60, 128
losses = []
began = time.perf_counter()
for epoch in range(epochs):
    optimizer.learning_rate = 0.01 * (1 + np.cos(np.pi * epoch / epochs)) / 2
    order = random.permutation(len(pixels[train]))
    batches = order[:len(order) // size * size].reshape(-1, size)
    values = [step(moved(pixels[batch]), labels[batch]) for batch in batches]
    losses.append(float(np.mean(values)))
    if epoch == 0 or (epoch + 1) % 10 == 0:
        print(f'epoch {epoch + 1:3}  loss {losses[-1]:.4f}')
seconds = time.perf_counter() - began

# %% What it has learned.
right = int((read(pixels[test]).numpy() == labels[test]).sum())
print(f'{right} of 360 right ({right / 3.6:.1f}%) in {seconds:.1f} s')

# %% Its loss, as a picture where matplotlib is.
try:
    from matplotlib import pyplot
except ImportError:
    print('losses:', ' '.join(f'{value:.3f}' for value in losses))
else:
    pyplot.semilogy(range(1, epochs + 1), losses)
    pyplot.xlabel('epoch')
    pyplot.ylabel('loss')
    pyplot.savefig('digits-loss.png')
    print('the loss is drawn in digits-loss.png')

# %% The network of the C example reads as many.
if right < 0.91 * 360:
    sys.exit('fewer are right than should be')
