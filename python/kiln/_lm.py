# SPDX-License-Identifier: Apache-2.0
"""Language models in files, through libkiln-lm."""
from __future__ import annotations

import codecs
import ctypes
import functools
import os
from types import SimpleNamespace
from typing import Any, Iterator, Optional, Sequence, Union

import numpy as np

from ._context import Context, default_context
from ._library import Library, Owned, by_size, check, lib, load_beside, struct
from ._table import ENUMS, LM_FUNCTIONS
from ._types import Type, as_dtype

_READING = ENUMS['kiln_lm_reading']


@functools.lru_cache(maxsize=None)
def lm_library() -> Library:
    """libkiln-lm, loaded when the first model is."""
    return load_beside('lm', 'which runs language models', LM_FUNCTIONS)


@functools.lru_cache(maxsize=None)
def _of_bytes(name: str, result: Any, *parameters: Any) -> Any:
    """A function whose texts are as long as a number says: bytes of 0 are no end."""
    function = lm_library()._cdll[name]
    function.restype, function.argtypes = result, parameters
    return function


def _text(value: Optional[bytes]) -> str:
    return (value or b'').decode(errors='replace')


def _conversation(messages: Union[str, Sequence[Any]], answer: bool, thinking: Optional[bool],
                  chat_template: Optional[str]) -> tuple[Any, Any]:
    """Messages and options as C takes them."""
    given: list[Any] = [('user', messages)] if isinstance(messages, str) else [
        (one['role'], one['content']) if isinstance(one, dict) else one for one in messages]
    array = (struct('kiln_lm_message') * len(given))()
    for place, (role, content) in zip(array, given):
        if '\0' in role + content:
            raise ValueError('a message has a character of 0')
        place.role = role.encode()
        place.content = content.encode(errors='surrogateescape')
    options = struct('kiln_lm_chat_options')()
    lm_library().kiln_lm_chat_options_init(*by_size(options))
    options.chat_template = None if chat_template is None else chat_template.encode()
    options.without_answer = not answer
    options.thinking = 0 if thinking is None else 1 if thinking else -1
    return array, options


class LanguageModel:
    """A language model in a GGUF file, or in a folder as transformers saves it or in
    onnxruntime-genai's form, its weights on the device:

        model = kiln.LanguageModel('model.gguf')
        for piece in model.generate('The capital of France is'):
            print(piece, end='', flush=True)

    `weights` "f16", "bf16" or "f32" stores matrices so, "q8_0" or "q4_0" those that the file has as
    floats; else they stay as the file has them. `window` is how many keys a layer sees where the file
    should say so and does not: 4096 of Mistral 7B v0.1. `info` has what the file says: architecture,
    name, chat_template, vocabulary, context, layers, width, begin, end, encoder. A sentence encoder in a
    GGUF file makes vectors, with embed(). A conversation goes on so:

        messages = [{'role': 'user', 'content': 'Why is the sky blue?'}]
        for piece in model.chat(messages):
            print(piece, end='', flush=True)

    Any thread may use it; a session one at a time.
    """

    def __init__(self, path: Any, *, weights: Optional[Type] = None, window: int = 0,
                 context: Optional[Context] = None) -> None:
        self._lib = lm_library()
        self._context = context or default_context()
        options = struct('kiln_lm_options')()
        self._lib.kiln_lm_options_init(*by_size(options))
        options.weights = as_dtype(weights).value if weights else 0
        options.window = window
        self._owned = Owned(self._lib.kiln_lm_release)
        check(self._lib.kiln_lm_load(self._context._held(), os.fsencode(path),
                                     ctypes.byref(options), self._owned.out))
        info = struct('kiln_lm_info')()
        check(self._lib.kiln_lm_get_info(self._owned, *by_size(info)))
        self.info = SimpleNamespace(
            architecture=_text(info.architecture), name=_text(info.name),
            chat_template=_text(info.chat_template), vocabulary=info.vocabulary,
            context=info.context, layers=info.layers, width=info.width,
            begin=info.begin, end=info.end, encoder=bool(info.encoder))

    def tokenize(self, text: Any, *, begin: bool = True, control: bool = False) -> list[int]:
        """The tokens of a text (str, or bytes). With `begin` the one that a text begins with comes
        first, if the file wants it; with `control` control tokens that are written out are these."""
        given = text.encode(errors='surrogateescape') if isinstance(text, str) else bytes(text)
        reading = (_READING['KILN_LM_BEGIN'] if begin else 0) | (
            _READING['KILN_LM_CONTROL'] if control else 0)
        tokens, count = Owned(lib.kiln_free), ctypes.c_size_t()
        tokenize = _of_bytes('kiln_lm_tokenize', ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p,
                             ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        check(tokenize(self._owned, given, len(given), reading, tokens.out, ctypes.byref(count)))
        array = ctypes.cast(tokens.pointer, ctypes.POINTER(ctypes.c_int32))
        return array[:count.value]

    def embed(self, texts: Union[str, Sequence[str]]) -> np.ndarray:
        """The vector of a text, or of each of several, of length 1: what a sentence encoder makes of
        it. "[SEP]" in a text is that token. One that is longer than the encoder takes loses its end."""
        given = [texts] if isinstance(texts, str) else list(texts)
        if any('\0' in text for text in given):
            raise ValueError('a text has a character of 0')
        vectors = np.empty((len(given), self.info.width), np.float32)
        array = (ctypes.c_char_p * len(given))(*[text.encode(errors='surrogateescape') for text in given])
        check(self._lib.kiln_lm_embed(self._owned, array, len(given), vectors.ctypes.data, vectors.size))
        return vectors[0] if isinstance(texts, str) else vectors

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token: part of a text, at times part of a character."""
        count = ctypes.c_size_t()
        token_text = _of_bytes('kiln_lm_token_text', ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32,
                               ctypes.c_void_p)
        return ctypes.string_at(token_text(self._owned, token, ctypes.byref(count)), count.value)

    def session(self, *, context: int = 0, cache: Optional[Type] = None, temperature: float = 0.0,
                top_k: int = 0, top_p: float = 0.0, min_p: float = 0.0, seed: int = 0) -> Session:
        """A text in the making; the options are those of kiln_lm_session_options."""
        return Session(self, context=context, cache=cache, temperature=temperature, top_k=top_k,
                       top_p=top_p, min_p=min_p, seed=seed)

    def generate(self, text: Any, *, max_tokens: int = 128, control: bool = False,
                 **options: Any) -> Iterator[str]:
        """How a text goes on, piece by piece, until the model ends it or so many tokens are made.
        `options` are those of session()."""
        session = self.session(**options)
        session.feed(self.tokenize(text, control=control))
        yield from self._go_on(session, max_tokens)

    def chat(self, messages: Union[str, Sequence[Any]], *, max_tokens: int = 1024,
             session: Optional[Session] = None, thinking: Optional[bool] = None,
             chat_template: Optional[str] = None, **options: Any) -> Iterator[str]:
        """The answer to a conversation, piece by piece: a text, or messages as {'role': ...,
        'content': ...} or (role, content). `options` are those of session(). A `session` that had the
        beginning of it is given what is new alone."""
        tokens = self.chat_tokens(messages, thinking=thinking, chat_template=chat_template)
        if session is None:
            session = self.session(**options)
        elif options:
            raise TypeError('a session has its options already')
        session.rewrite(tokens)
        yield from self._go_on(session, max_tokens)

    def chat_tokens(self, messages: Union[str, Sequence[Any]], *, answer: bool = True,
                    thinking: Optional[bool] = None, chat_template: Optional[str] = None) -> list[int]:
        """The tokens of a conversation as the file's chat template writes it, up to where the answer
        begins. What looks like a control token in a message is text."""
        tokens, count = Owned(lib.kiln_free), ctypes.c_size_t()
        array, options = _conversation(messages, answer, thinking, chat_template)
        check(self._lib.kiln_lm_chat_tokens(self._owned, array, len(array), ctypes.byref(options),
                                            tokens.out, ctypes.byref(count)))
        return ctypes.cast(tokens.pointer, ctypes.POINTER(ctypes.c_int32))[:count.value]

    def chat_text(self, messages: Union[str, Sequence[Any]], *, answer: bool = True,
                  thinking: Optional[bool] = None, chat_template: Optional[str] = None) -> str:
        """The text of which chat_tokens() makes tokens."""
        text = Owned(lib.kiln_free)
        array, options = _conversation(messages, answer, thinking, chat_template)
        check(self._lib.kiln_lm_chat_text(self._owned, array, len(array), ctypes.byref(options),
                                          text.out))
        return ctypes.string_at(text.pointer).decode(errors='surrogateescape')

    def _go_on(self, session: Session, max_tokens: int) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder('utf-8')(errors='replace')
        for _ in range(max_tokens):
            if session.length == session.context:
                break
            token = session.next()
            if self.is_end(token):
                break
            piece = decoder.decode(self.token_bytes(token))
            if piece:
                yield piece
        rest = decoder.decode(b'', final=True)
        if rest:
            yield rest

    def is_end(self, token: int) -> bool:
        """Whether an answer ends with this token."""
        return bool(self._lib.kiln_lm_is_end(self._owned, token))

    def __repr__(self) -> str:
        info = self.info
        return f'<kiln.LanguageModel {info.name!r} ({info.architecture}, {info.layers} layers of {info.width})>'


def _tokens(tokens: Sequence[int]) -> np.ndarray:
    given = np.asarray(tokens)
    if given.size and given.dtype.kind not in 'iu':
        raise TypeError(f'tokens are {given.dtype}, and should be integers')
    array = np.ascontiguousarray(given, np.int32)
    if not np.array_equal(array, given):
        raise ValueError('a token is no number of 32 bits')
    return array


class Session:
    """A text in the making: feed it tokens, ask for the next one again and again. Keys and values of
    what was fed stay on the device."""

    def __init__(self, model: LanguageModel, **given: Any) -> None:
        self._lib, self._words = model._lib, model.info.vocabulary
        options = struct('kiln_lm_session_options')()
        self._lib.kiln_lm_session_options_init(*by_size(options))
        for name, value in given.items():
            setattr(options, name, (as_dtype(value).value if value else 0) if name == 'cache' else value)
        self._owned = Owned(self._lib.kiln_lm_session_release)
        check(self._lib.kiln_lm_session_create(model._owned, ctypes.byref(options), self._owned.out))

    def feed(self, tokens: Sequence[int]) -> None:
        """Add tokens to the text, and run the model on them."""
        array = _tokens(tokens)
        check(self._lib.kiln_lm_feed(self._owned, array.ctypes.data, array.size))

    def rewrite(self, tokens: Sequence[int]) -> None:
        """Make these tokens the text; what it begins with already stays."""
        array = _tokens(tokens)
        check(self._lib.kiln_lm_session_rewrite(self._owned, array.ctypes.data, array.size))

    def next(self) -> int:
        """Choose the next token and add it to the text."""
        token = ctypes.c_int32()
        check(self._lib.kiln_lm_next(self._owned, ctypes.byref(token)))
        return token.value

    def logits(self) -> np.ndarray:
        """The logits of what may follow, one for each token of the vocabulary."""
        logits = np.empty(self._words, np.float32)
        check(self._lib.kiln_lm_logits(self._owned, logits.ctypes.data, logits.size))
        return logits

    def truncate(self, length: int) -> None:
        """Take back all but the first `length` tokens."""
        check(self._lib.kiln_lm_session_truncate(self._owned, length))

    @property
    def length(self) -> int:
        """Tokens of the text."""
        return int(self._lib.kiln_lm_session_length(self._owned))

    @property
    def context(self) -> int:
        """Most tokens of the text."""
        return int(self._lib.kiln_lm_session_context(self._owned))
