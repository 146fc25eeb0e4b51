# SPDX-License-Identifier: Apache-2.0
"""Language models in files: the tiny ones of tests/lm."""
import os
import re
import shutil
import tempfile
import unittest

import numpy as np

import kiln

FOLDER = os.path.join(os.environ.get('KILN_SOURCE', '.'), 'tests', 'lm')
TEXT = "The sun is out, they're going to the river"


def known(row):
    """The numbers of a row of known.def."""
    with open(os.path.join(FOLDER, 'known.def'), encoding='ascii') as file:
        return [float(x) for x in
                re.search(rf'^{row}\((?:\d+, )?\w+\((.*)\)\)$', file.read(), re.M).group(1).split(', ')]


class LanguageModels(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(os.path.join(FOLDER, 'tiny.gguf')):
            raise unittest.SkipTest('the sources are not here')
        try:
            self.model = kiln.LanguageModel(os.path.join(FOLDER, 'tiny.gguf'))
        except ImportError as error:
            raise unittest.SkipTest(str(error)) from None

    def test_tokens(self):
        """a text's tokens, and their bytes again"""
        tokens = self.model.tokenize(TEXT)
        self.assertEqual(tokens, [int(x) for x in known('PROMPT')[:-1]])
        self.assertEqual(b''.join(map(self.model.token_bytes, tokens)), TEXT.encode())
        self.assertEqual(self.model.tokenize('<|im_end|>', control=True), [2])
        self.assertEqual(self.model.tokenize(''), [])
        given = b'\xff\0 x'
        self.assertEqual(b''.join(map(self.model.token_bytes, self.model.tokenize(given))), given)

    def test_vectors(self):
        """an encoder's vectors, of length 1, of one text or of several"""
        model = kiln.LanguageModel(os.path.join(FOLDER, 'bert.gguf'))
        self.assertTrue(model.info.encoder and not self.model.info.encoder)
        vectors = model.embed(['the sun', 'the rain', ''])
        self.assertEqual(vectors.shape, (3, 32))
        self.assertTrue(abs((vectors ** 2).sum(1) - 1).max() < 1e-6)
        self.assertEqual(model.embed('the sun').tobytes(), vectors[0].tobytes())
        self.assertEqual(model.embed([]).shape, (0, 32))
        with self.assertRaisesRegex(ValueError, 'a character of 0'):
            model.embed('a\0b')
        with self.assertRaisesRegex(kiln.Error, 'llama is no encoder'):
            self.model.embed('the sun')
        with self.assertRaisesRegex(kiln.Error, 'its texts do not go on'):
            model.session()

    def test_folder(self):
        """a folder of transformers' has its own tokenizer and template"""
        with tempfile.TemporaryDirectory() as folder:
            for name in ('config.json', 'model.safetensors'):
                shutil.copy(os.path.join(FOLDER, 'folders', f'llama.{name}'), os.path.join(folder, name))
            shutil.copy(os.path.join(FOLDER, '..', 'tokens', 'wide.json'),
                        os.path.join(folder, 'tokenizer.json'))
            with open(os.path.join(folder, 'chat_template.jinja'), 'w', encoding='ascii') as file:
                file.write('{{ messages[0].content }}!')
            model = kiln.LanguageModel(folder)
        self.assertEqual((model.info.architecture, model.info.vocabulary, model.info.begin),
                         ('llama', 336, 0))
        self.assertEqual(model.chat_text('the sun', answer=False), 'the sun!')
        session = model.session()
        session.feed(model.tokenize(TEXT, begin=True))
        self.assertTrue(0 <= session.next() < 336)
        with self.assertRaisesRegex(kiln.Error, 'the folder has no config.json'):
            kiln.LanguageModel(os.path.join(FOLDER, 'folders'))

    def test_session(self):
        """logits and an answer beside numpy's in float64"""
        session = self.model.session()
        session.feed(self.model.tokenize(TEXT))
        self.assertLess(np.abs(session.logits() - known('LOGITS')).max(), 2e-4)
        answer = [int(x) for x in known('ANSWER')[:8]]
        self.assertEqual([session.next() for _ in range(8)], answer)
        self.assertEqual((session.length, session.context), (19, 96))
        session.truncate(11)
        self.assertEqual(session.next(), answer[0])
        text = ''.join(self.model.generate(TEXT, max_tokens=8))
        self.assertEqual(text, b''.join(map(self.model.token_bytes, answer)).decode(errors='replace'))

    def test_chat(self):
        """a conversation as its template writes it, and how it goes on"""
        messages = [{'role': 'system', 'content': 'a'}, ('user', '<|im_end|>\u00e9')]
        text = '<|im_start|>system\na<|im_end|>\n<|im_start|>user\n<|im_end|>\u00e9<|im_end|>\n'
        self.assertEqual(self.model.chat_text(messages, answer=False), text)
        tokens = self.model.chat_tokens(messages)
        self.assertEqual(tokens.count(2), 2)
        self.assertEqual(self.model.chat_text('x', chat_template='{{ messages[0].role }}'), 'user')
        self.assertEqual(self.model.chat_text([], chat_template='{{ enable_thinking }}', thinking=False),
                         'False')
        session = self.model.session()
        answer = ''.join(self.model.chat(messages, session=session, max_tokens=4))
        self.assertEqual(session.length, len(tokens) + 4)
        self.assertEqual(''.join(self.model.chat(messages, max_tokens=4)), answer)
        self.assertEqual(''.join(self.model.chat(messages, session=session, max_tokens=4)), answer)
        with self.assertRaisesRegex(kiln.Error, 'the role of message 0 is "a b"'):
            self.model.chat_tokens([('a b', 'x')])
        with self.assertRaisesRegex(kiln.Error, 'kiln knows no filter "nothing"'):
            self.model.chat_tokens('x', chat_template='{{ 1 | nothing }}')
        with self.assertRaisesRegex(ValueError, 'a character of 0'):
            self.model.chat_tokens('x\0')
        with self.assertRaisesRegex(TypeError, 'has its options already'):
            next(self.model.chat('x', session=session, seed=1))

    def test_words(self):
        """what the file says, and errors"""
        self.assertEqual((self.model.info.architecture, self.model.info.vocabulary), ('llama', 400))
        self.assertIn('tiny', repr(self.model))
        self.assertTrue(self.model.is_end(2))
        with self.assertRaisesRegex(kiln.Error, 'No such file'):
            kiln.LanguageModel('/nowhere.gguf')
        with self.assertRaisesRegex(kiln.Error, 'temperature is -1'):
            self.model.session(temperature=-1)
        with self.assertRaisesRegex(kiln.Error, 'nothing was fed'):
            self.model.session().next()
