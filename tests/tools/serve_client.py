# SPDX-License-Identifier: Apache-2.0
"""Clients of `kiln serve`: serve_client.py URL WHAT [ARGUMENT]. Prints "fine", or fails."""
import base64
import http.client
import json
import math
import os
import re
import signal
import socket
import struct
import sys
import threading
import time

ADDRESS = sys.argv[1].split("//")[1].strip()
KEY = {"Authorization": "Bearer secret"}
JSON = {"Content-Type": "application/json", **KEY}
PROMPTS = ["The sun is out, they're going to the river", "In 1984 there were 25 sunny days",
           "for (int i = 0; i < n; i++)", "Où est le café? " * 12]
TIMEOUT = 300


def ask(method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(ADDRESS, timeout=TIMEOUT)
    connection.request(method, path, body, JSON if headers is None else headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


def head(method, path):
    connection = http.client.HTTPConnection(ADDRESS, timeout=TIMEOUT)
    connection.request(method, path, None, KEY)
    answer = connection.getresponse()
    connection.close()
    return answer


def post(path, **form):
    status, data = ask("POST", path, json.dumps(form))
    return status, json.loads(data)


def complete(prompt, **form):
    form = {"model": "tiny", "temperature": 0, "max_tokens": 24, **form}
    status, answer = post("/v1/completions", prompt=prompt, **form)
    assert status == 200, answer
    return answer


def text(prompt, **form):
    return complete(prompt, **form)["choices"][0]["text"]


def events(path, **form):
    status, data = ask("POST", path, json.dumps({"model": "tiny", "stream": True, **form}))
    assert status == 200, data
    parts = data.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""], parts
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part[6:]) for part in parts[:-2]]


def metric(name, labels="", model="tiny"):
    status, data = ask("GET", "/metrics")
    assert status == 200
    return float(re.search(rf"^kiln_serve_{name}\{{model=\"{model}\"{re.escape(labels)}\}} (\S+)$",
                           data.decode(), re.M).group(1))


def until(condition):
    for _ in range(TIMEOUT * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


# ---- what is there ----

def pages():
    assert ask("GET", "/health", headers={}) == (200, b'{"status":"ready"}')
    assert ask("HEAD", "/health", headers={}) == ask("HEAD", "/v1/models") == (200, b"")
    status, data = ask("GET", "/v1/models")
    listed = json.loads(data)
    assert status == 200 and listed["object"] == "list"
    assert [model["id"] for model in listed["data"]][:2] == ["tiny", "other"]
    assert text(PROMPTS[0], model="other") == text(PROMPTS[0])


def streams():
    for form in ({"temperature": 0}, {"temperature": 1.5, "seed": 3, "top_p": 0.9}):
        for prompt in PROMPTS[:2]:
            parts = events("/v1/completions", prompt=prompt, max_tokens=24,
                           stream_options={"include_usage": True}, **form)
            usage = parts.pop()
            assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 24
            choices = [part["choices"][0] for part in parts]
            assert choices[-1]["finish_reason"] == "length" and len(choices) > 5
            assert "".join(choice["text"] for choice in choices) == text(prompt, **form)


def prompts():
    answer = complete(PROMPTS[:3], n=2, temperature=1, seed=11)
    assert [choice["index"] for choice in answer["choices"]] == list(range(6))
    tokens = 0
    for i, prompt in enumerate(PROMPTS[:3]):
        for k in range(2):
            alone = complete(prompt, temperature=1, seed=11 + k)
            assert answer["choices"][2 * i + k]["text"] == alone["choices"][0]["text"]
            tokens += alone["usage"]["completion_tokens"]
    assert answer["usage"]["completion_tokens"] == tokens
    tokens = [7, 8, 9]
    assert complete(tokens)["usage"]["prompt_tokens"] == 3
    assert text([tokens, [10]]) == text(tokens)
    assert text(PROMPTS[0], temperature=1) != text(PROMPTS[0], temperature=1)


def stops():
    whole = text(PROMPTS[0])
    found = [part[:3] for part in re.findall("[^\ufffd]+", whole)]  # what are whole characters
    for stop in (found[0], found[-1], max(found, key=len)):
        answer = complete(PROMPTS[0], stop=["none of it", stop])["choices"][0]
        assert answer["text"] == whole[:whole.index(stop)] and answer["finish_reason"] == "stop"
        parts = events("/v1/completions", prompt=PROMPTS[0], temperature=0, max_tokens=24, stop=stop)
        assert "".join(part["choices"][0]["text"] for part in parts) == answer["text"]


def chats():
    messages = [{"role": "user", "content": "The sun"}, {"role": "assistant", "content": "is out"},
                {"role": "user", "content": [{"type": "text", "text": "and the "},
                                             {"type": "text", "text": "rain?"}]}]
    form = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 12}
    status, answer = post("/v1/chat/completions", **form)
    assert status == 200 and answer["object"] == "chat.completion", answer
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant" and answer["usage"]["completion_tokens"] == 12
    written = ("<|im_start|>system\nYou are tiny<|im_end|>\n<|im_start|>user\nThe sun<|im_end|>\n"
               "<|im_start|>assistant\nis out<|im_end|>\n<|im_start|>user\nand the rain?<|im_end|>\n"
               "<|im_start|>assistant\n")
    assert text(written, max_tokens=12) != message["content"]  # there it is text, no control tokens
    parts = [part["choices"][0] for part in events("/v1/chat/completions", **form)]
    assert parts[0]["delta"]["role"] == "assistant" and parts[-1]["delta"] == {}
    assert "".join(part["delta"].get("content", "") for part in parts) == message["content"]
    first = message["content"][0]
    if first != "\ufffd":  # part of a character, which no stop can be
        parts = [part["choices"][0] for part in events("/v1/chat/completions", stop=first, **form)]
        assert [part["delta"] for part in parts] == [{"role": "assistant"}], parts


def check_top(own, top, count, greedy):
    """Log-probabilities of a token and of the most probable ones, whose order is theirs."""
    assert own < 0 and len(top) <= count and sum(map(math.exp, top)) < 1.0001
    assert top == sorted(top, reverse=True) and (not top or own <= top[0])
    assert not greedy or not top or own == top[0]


def logprobs():
    for stop in (None, text(PROMPTS[0])[6:8]):
        form = {"logprobs": 3, "temperature": 0, "max_tokens": 24, "stop": stop}
        whole = complete(PROMPTS[0], **form)["choices"][0]
        found = whole["logprobs"]
        sizes = {name: len(of) for name, of in found.items()}
        assert set(sizes) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, sizes
        assert len(set(sizes.values())) == 1 and (stop or sizes["tokens"] == 24), sizes
        assert found["text_offset"][0] == 0 and found["text_offset"] == sorted(found["text_offset"])
        for own, top in zip(found["token_logprobs"], found["top_logprobs"]):
            check_top(own, sorted(top.values(), reverse=True), 3, True)
        together = {name: [] for name in found}
        for part in events("/v1/completions", prompt=PROMPTS[0], **form):
            for name, of in (part["choices"][0]["logprobs"] or {}).items():
                together[name] += of
        assert together == found
        if not stop:
            assert "".join(found["tokens"]).replace("\ufffd", "") == whole["text"].replace("\ufffd", "")
    only = complete(PROMPTS[0], logprobs=0)["choices"][0]["logprobs"]
    assert only["token_logprobs"] == complete(PROMPTS[0], logprobs=5)["choices"][0]["logprobs"]["token_logprobs"]
    assert set(map(len, only["top_logprobs"])) == {0}
    for none in ({}, {"logprobs": None}, {"logprobs": False}):
        assert complete(PROMPTS[0], **none)["choices"][0]["logprobs"] is None
    for i, begin in enumerate(only["text_offset"]):
        before = "".join(only["tokens"][:i])
        assert begin == len(before) or "\ufffd" in before, (begin, before)
    form = {"model": "tiny", "messages": [{"role": "user", "content": "The sun"}], "seed": 2,
            "temperature": 1.3, "max_tokens": 12, "logprobs": True, "top_logprobs": 4}
    status, answer = post("/v1/chat/completions", **form)
    assert status == 200, answer
    content = answer["choices"][0]["logprobs"]["content"]
    for one in content:
        check_top(one["logprob"], [other["logprob"] for other in one["top_logprobs"]], 4, False)
        assert bytes(one["bytes"]).decode(errors="replace") == one["token"] or "\ufffd" in one["token"]
    assert b"".join(bytes(one["bytes"]) for one in content).decode(errors="replace").replace("\ufffd", "") == \
        answer["choices"][0]["message"]["content"].replace("\ufffd", "")
    parts = [part["choices"][0]["logprobs"] for part in events("/v1/chat/completions", **form)]
    assert sum((part["content"] for part in parts if part), []) == content
    expect(400, ask("POST", "/v1/chat/completions", json.dumps({**form, "logprobs": False})), None,
           "top_logprobs: it takes logprobs to be true")


def long_bodies():
    """Read by another thread, some of them while others are."""
    wanted = [text(prompt) for prompt in PROMPTS]
    got = [None] * 8

    def client(i):
        form = {"model": "tiny", "temperature": 0, "max_tokens": 24, "prompt": PROMPTS[i % 4],
                "user": "x" * 15000}
        if i < 4:
            got[i] = post("/v1/completions", **form)[1]["choices"][0]["text"]
        else:
            parts = events("/v1/completions", **form)
            got[i] = "".join(part["choices"][0]["text"] for part in parts)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == wanted * 2
    expect(400, ask("POST", "/v1/completions", " " * 15000), None, "the body is no JSON")
    for _ in range(4):
        begin(user="x" * 15000).close()  # gone before it is read, or while it is
    assert text(PROMPTS[0]) == wanted[0]


# ---- vectors, of an encoder whose token i is [i 1 0 -1] ----

LINES = ["The sun", "unable", "", "the sun is out!", "the the the sun", "un!able a sun"]


def embed(input, **form):
    status = 429  # as long as others' texts wait
    while status == 429:
        status, answer = post("/v1/embeddings", model="vectors", input=input, **form)
    assert status == 200, answer
    assert answer["object"] == "list" and answer["model"] == "vectors"
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    assert {one["object"] for one in answer["data"]} == {"embedding"}
    return answer


def vectors_of(input, **form):
    return [one["embedding"] for one in embed(input, **form)["data"]]


def bits(vector):
    return struct.pack(f"<{len(vector)}f", *vector)


def mean_of(tokens):
    vector = [sum(tokens) / len(tokens), 1, 0, -1]
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))


def vectors():
    alone = [vectors_of(line)[0] for line in LINES]
    for vector, tokens in zip(alone, ([2, 4, 5, 3], [2, 8, 9, 3], [2, 3], [2, 4, 5, 6, 7, 10, 3])):
        assert near(vector, mean_of(tokens)), vector
    assert vectors_of(LINES) == alone and vectors_of(LINES * 100) == alone * 100
    assert embed(LINES[:3])["usage"] == {"prompt_tokens": 10, "total_tokens": 10}
    assert vectors_of([2, 4, 5, 3]) == alone[:1] and vectors_of([[2, 8, 9, 3], [2, 3]]) == alone[1:3]
    assert near(vectors_of([11])[0], mean_of([11]))
    coded = [base64.b64decode(one, validate=True) for one in vectors_of(LINES, encoding_format="base64")]
    assert coded == list(map(bits, alone))
    for count in (1, 2, 3, 4):
        for vector, whole in zip(vectors_of(LINES, dimensions=count), alone):
            length = math.sqrt(sum(x * x for x in whole[:count]))
            assert near(vector, [x / length for x in whole[:count]]), vector
            coded = vectors_of(LINES[0], dimensions=count, encoding_format="base64")[0]
            assert len(base64.b64decode(coded, validate=True)) == 4 * count
    assert vectors_of(LINES, dimensions=4) == alone
    status, answer = post("/v1/embeddings", input=LINES[0])  # the only encoder that there is
    assert status == 200 and answer["data"][0]["embedding"] == alone[0]
    with open(sys.argv[3]) as file:  # what `kiln embed` makes of these lines
        assert [bits([float(x) for x in line.split()]) for line in file] == list(map(bits, alone))


def vectors_together():
    alone = [vectors_of(line)[0] for line in LINES]
    got = [None] * 12

    def client(i):
        picked = [(i * k + k) % len(LINES) for k in range(1 + 37 * i)]
        got[i] = vectors_of([LINES[k] for k in picked]) == [alone[k] for k in picked]
    threads = [threading.Thread(target=client, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [True] * 12


def vectors_wrong():
    def wrong(status, code, sentence, **form):
        got = ask("POST", "/v1/embeddings", json.dumps({"model": "vectors", **form}))
        expect(status, got, code, sentence)
    wrong(400, None, "input: it is missing")
    wrong(400, None, "input: it is an empty list", input=[])
    wrong(400, None, "input: a text has no tokens", input=[[1], []])
    wrong(400, None, "input: it is no text, list of tokens, or list of such", input=[{}])
    wrong(400, None, "what is no token of the model (0 to 11)", input=[1, 12])
    wrong(400, None, "what is no token of the model (0 to 11)", input=[[-1]])
    wrong(400, None, "what is no token of the model (0 to 11)", input=[1, "the"])
    wrong(400, None, "there are more than 2048", input=[[1]] * 2049)
    wrong(400, "context_length_exceeded", "text 1 has more than the 256 tokens", input=["a", "a " * 255])
    wrong(400, "context_length_exceeded", "text 0 has more than the 256 tokens", input=[1] * 257)
    assert len(vectors_of([[1] * 256] * 2)) == len(vectors_of("a " * 254)) + 1
    wrong(400, None, "dimensions: it is no whole number from 1 to 4", input="a", dimensions=5)
    wrong(400, None, "dimensions: it is no whole number from 1 to 4", input="a", dimensions=0)
    wrong(400, None, 'it is neither "float" nor "base64"', input="a", encoding_format="int8")
    wrong(404, "model_not_found", 'no model "none"', input="a", model="none")
    wrong(400, None, "is a language model, which answers at /v1/completions", input="a", model="tiny")
    expect(400, ask("POST", "/v1/completions", '{"model": "vectors", "prompt": "a"}'), None,
           "is an encoder, which answers at /v1/embeddings")
    expect(405, ask("GET", "/v1/embeddings"), "method_not_allowed")


def vectors_busy():
    """Requests of many texts meet, sooner or later; those that are refused may come again."""
    found = []

    def client():
        while not found:
            status, answer = post("/v1/embeddings", model="vectors", input=[[4]] * 2048)
            if status == 429:
                found.append(answer["error"])
            else:
                assert status == 200, answer
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0]["code"] == "rate_limit_exceeded" and "texts wait already" in found[0]["message"]
    assert metric("refused_total", model="vectors") >= 1
    for _ in range(8):  # nobody waits for these
        begin("/v1/embeddings", model="vectors", prompt=None, input=[[5]] * 2000).close()
    until(lambda: metric("running", model="vectors") + metric("queued", model="vectors") == 0)
    until(lambda: ask("POST", "/v1/embeddings", '{"model": "vectors", "input": "a"}')[0] == 200)


def vectors_openai():
    try:
        import openai as package
    except ImportError:
        print("no package openai")
        return
    client = package.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="secret", max_retries=0)
    alone = [vectors_of(line)[0] for line in LINES]
    for form in ({}, {"encoding_format": "float"}, {"dimensions": 2, "user": "somebody"}):
        answer = client.embeddings.create(model="vectors", input=LINES, **form)
        wanted = vectors_of(LINES, dimensions=2) if "dimensions" in form else alone
        assert [bits(one.embedding) for one in answer.data] == list(map(bits, wanted))
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20
    answer = client.embeddings.create(model="vectors", input=[2, 4, 5, 3])
    assert bits(answer.data[0].embedding) == bits(alone[0])
    try:
        client.embeddings.create(model="vectors", input=[])
        raise AssertionError("it was answered")
    except package.BadRequestError as problem:
        assert problem.body["param"] == "input"


# ---- many, wrong, gone ----

def together():
    forms = [{"prompt": PROMPTS[i % 4], "seed": i, "temperature": 1.2 if i % 3 == 1 else 0,
              "max_tokens": 10 + 3 * i} for i in range(16)]
    alone = [text(**form) for form in forms]
    for _ in range(2):
        got = [None] * 16

        def client(i):
            got[i] = text(**forms[i])
        threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert got == alone, [(a, b) for a, b in zip(got, alone) if a != b]


def expect(wanted, answer, code=None, part=""):
    status, error = answer[0], json.loads(answer[1])["error"]
    assert status == wanted and error["code"] == code and part in error["message"], answer
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("server_error" if wanted >= 500 else
                             "rate_limit_error" if wanted == 429 else "invalid_request_error")


def wrong():
    path = "/v1/completions"
    for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "secret"},
                    {"Authorization": "Bearer Secret"}):
        expect(401, ask("GET", "/v1/models", headers=headers), "invalid_api_key")
        expect(401, ask("POST", path, "{}", headers), "invalid_api_key")
    expect(404, ask("GET", "/v1/nothing"), "unknown_url", "there is no GET /v1/nothing")
    expect(405, ask("GET", path), "method_not_allowed", "takes POST alone")
    for method, at, allowed in (("GET", path, "POST"), ("POST", "/v1/models", "GET, HEAD"), ("GET", "/v1/models", None)):
        assert head(method, at).getheader("Allow") == allowed, (method, at)
    expect(415, ask("POST", path, "{}", KEY), None, "Content-Type")
    for body in ("", "{", "nul", "[1]", '{"prompt": "\ud800"}', b"\xff", "[" * 5000, '{"a": 1e999}'):
        body = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        expect(400, ask("POST", path, body), None, "the body is no JSON")
    rows = [({}, "prompt: it is missing"), ({"prompt": 7}, "prompt: it is no text"),
            ({"prompt": []}, "empty list"), ({"prompt": [[]]}, "no tokens to go on from"),
            ({"prompt": [1, "x"]}, "token 1 is -1"), ({"prompt": [400]}, "token 0 is 400"),
            ({"prompt": "x", "max_tokens": 0}, "max_tokens: it is no whole number"),
            ({"prompt": "x", "temperature": -1}, "temperature: it is no number"),
            ({"prompt": "x", "top_p": "1"}, "top_p: it is no number"),
            ({"prompt": "x", "n": 65}, "n: it is no whole number"),
            ({"prompt": ["x"] * 10, "n": 10}, "more than 64 answers"),
            ({"prompt": ["x"] * 65}, "more than 64"), ({"prompt": "x", "stop": [""]}, "stop: "),
            ({"prompt": "x", "stop": ["a"] * 17}, "more than 16"),
            ({"prompt": "x", "stop": "a" * 1001}, "more than 1000 bytes"),
            ({"prompt": "x", "stream": 1}, "neither true nor false"),
            ({"prompt": "x", "logprobs": 21}, "logprobs: it is no whole number from 0 to 20"),
            ({"prompt": "x", "echo": True}, "echo: "), ({"prompt": "x", "model": 3}, "model: "),
            ({"prompt": "x", "response_format": {"type": "json_object"}}, "response_format: "),
            ({"prompt": "x", "tools": [{}]}, "tools: this server does not have it")]
    for form, part in rows:
        expect(400, ask("POST", path, json.dumps({"model": "tiny", **form})), None, part)
    for messages in (None, [], "x", [{}], [{"role": "user"}], [{"role": "user", "content": 1}],
                     [{"role": "user", "content": [{"type": "image_url"}]}]):
        expect(400, ask("POST", "/v1/chat/completions",
                        json.dumps({"model": "tiny", "messages": messages})), None, "messages: ")
    expect(404, ask("POST", path, '{"model": "gpt-4", "prompt": "x"}'), "model_not_found")
    expect(400, ask("POST", path, json.dumps({"model": "tiny", "prompt": [5] * 600})),
           "context_length_exceeded", "600 tokens leave no room")
    expect(413, ask("POST", path, " " * 20001), "body_too_large")
    expect(413, ask("POST", path, iter([b" " * 15000] * 4)), "body_too_large")  # in chunks
    form = {"model": "tiny", "prompt": "x", "temperature": 0, "presence_penalty": 0, "tools": [],
            "logit_bias": {}, "logprobs": None, "user": "me", "response_format": {"type": "text"}}
    assert post(path, **form)[0] == 200  # what changes nothing


def busy():
    refused = metric("refused_total")
    expect(429, ask("POST", "/v1/completions", json.dumps(
        {"model": "tiny", "prompt": "x", "n": 64, "max_tokens": 500})), "rate_limit_exceeded")
    assert metric("refused_total") == refused + 1
    until(lambda: metric("running") + metric("queued") == 0)


def begin(path="/v1/completions", left=0, **form):
    """A connection that has asked, but for `left` bytes, and reads nothing."""
    body = json.dumps({"model": "tiny", "temperature": 0, "prompt": PROMPTS[0], **form})
    sent = body[:len(body) - left]
    connection = socket.create_connection(ADDRESS.split(":"), TIMEOUT)
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       f"Authorization: Bearer secret\r\nContent-Length: {len(body)}\r\n\r\n{sent}".encode())
    return connection


def being_answered():
    """How many requests are, but for the one that asks for this."""
    return int(re.search(rb"^kiln_serve_open (\d+)$", ask("GET", "/metrics")[1], re.M).group(1)) - 1


def breaks_off(stream):
    """Whether texts end with their connections; on a busy machine they may end before."""
    before, asked = metric("ended_total", ',how="cancelled"'), metric("requests_total")
    connections = [begin(stream=stream, max_tokens=580, n=16), begin(stream=stream, max_tokens=580, n=4)]
    until(lambda: metric("running") == 4 or metric("requests_total") == asked + 20)
    for connection in connections:
        connection.close()
    until(lambda: metric("running") + metric("queued") == 0)
    return metric("ended_total", ',how="cancelled"') >= before + 4


def broken():
    for stream in (False, True):
        assert any(breaks_off(stream) for _ in range(20))
    half = begin(max_tokens=5)  # a part of a request, and one that is broken off
    half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Le")
    half.close()
    for junk in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\n" + b"a: b\r\n" * 9000):
        connection = socket.create_connection(ADDRESS.split(":"), TIMEOUT)
        try:
            connection.sendall(junk)
        except OSError:
            pass
        connection.close()
    assert text(PROMPTS[1]) == text(PROMPTS[1])


def slow():
    connections = [begin(stream=True, max_tokens=300) for _ in range(8)]
    wanted = text(PROMPTS[2])
    assert text(PROMPTS[2]) == wanted
    until(lambda: metric("running") + metric("queued") == 0)  # texts are made, whoever reads them
    for connection in connections:
        data = b""
        while b"[DONE]" not in data:
            part = connection.recv(1 << 16)
            assert part
            data += part
        assert data.count(b'"finish_reason":"') == 1
        connection.close()


def openai():
    try:
        import openai as package
    except ImportError:
        print("no package openai")
        return
    client = package.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="secret", max_retries=0)
    assert [model.id for model in client.models.list()][:2] == ["tiny", "other"]
    answer = client.completions.create(model="tiny", prompt=PROMPTS[0], max_tokens=24, temperature=0)
    assert answer.choices[0].text == text(PROMPTS[0])
    answer = client.completions.create(model="tiny", prompt=PROMPTS[0], max_tokens=5, logprobs=2)
    assert len(answer.choices[0].logprobs.token_logprobs) == len(answer.choices[0].logprobs.tokens) == 5
    messages = [{"role": "user", "content": "The sun"}]
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, logprobs=True,
                                            top_logprobs=2)
    assert [len(one.top_logprobs) for one in answer.choices[0].logprobs.content] == [2] * 5
    form = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**form)
    parts = client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **form)
    parts = list(parts)
    assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == \
        whole.choices[0].message.content
    assert parts[-1].usage == whole.usage
    for error, form in ((package.NotFoundError, {"model": "none", "prompt": "x"}),
                        (package.BadRequestError, {"model": "tiny", "prompt": []})):
        try:
            client.completions.create(**form)
            raise AssertionError("it was answered")
        except error as problem:
            assert problem.body["message"]
    try:
        package.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="x", max_retries=0).models.list()
        raise AssertionError("it was answered")
    except package.AuthenticationError:
        pass


def metrics():
    status, data = ask("GET", "/metrics")
    assert status == 200
    line = re.compile(r'[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [0-9.e+-]+')
    described, seen = {}, set()
    for row in data.decode().splitlines():
        if row.startswith("# TYPE "):
            described[row.split()[2]] = row.split()[3]
        elif not row.startswith("#"):
            assert line.fullmatch(row), row
            name = row.split("{")[0].split(" ")[0]
            assert re.sub("_(sum|count)$", "", name) in described or name in described, row
            assert row.rsplit(" ", 1)[0] not in seen, row
            seen.add(row.rsplit(" ", 1)[0])
    assert metric("tokens_total") > 1000 and metric("failed_steps_total") == 0
    for model in sys.argv[3:]:  # some were left by those who had asked
        until(lambda: metric("requests_total", model=model) == sum(
            metric("ended_total", f',how="{how}"', model) for how in
            ("completed", "failed", "cancelled", "timed_out")))
        assert metric("prompt_tokens_total", model=model) > 100 and metric("steps_total", model=model) > 10


def drain():
    form = {"prompt": PROMPTS[0], "max_tokens": 580, "n": 4}
    wanted, got = complete(**form)["choices"], []
    clients = [threading.Thread(target=lambda: got.append(complete(**form)["choices"])) for _ in range(5)]
    wrong = []
    others = [threading.Thread(target=ask_vectors, args=(wrong,)) for _ in sys.argv[4:]]
    for other in others:
        other.start()
    # With it the server is still there when this process has its turn on a busy machine.
    waits = begin(left=1)
    asked = metric("requests_total")
    for client in clients:
        client.start()
    until(lambda: metric("requests_total") == asked + 4 * len(clients) and being_answered() >= 1)
    os.kill(int(sys.argv[3]), signal.SIGTERM)
    until(lambda: ask("GET", "/health", headers={}) == (503, b'{"status":"draining"}'))
    expect(503, ask("POST", "/v1/completions", '{"model": "tiny", "prompt": "x"}'), "draining")
    for client in clients:
        client.join()
    waits.close()
    for other in others:
        other.join()
    assert got == [wanted] * len(clients) and wrong == []


def ask_vectors(wrong):
    """Until the server drains, or has ended."""
    wanted = vectors_of(LINES)
    while True:
        try:
            status, answer = post("/v1/embeddings", model="vectors", input=LINES)
        except (OSError, http.client.HTTPException):
            return
        if status == 503:
            return
        if status == 429:
            continue
        if status != 200 or [one["embedding"] for one in answer["data"]] != wanted:
            wrong.append(answer)
            return


def hear(connection):
    """Nothing from a server that has ended."""
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def late():
    messages = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}] * 2800
    connection = begin("/v1/chat/completions", messages=messages)
    until(lambda: being_answered() >= 1)  # it is being read now, or its text has begun
    others = [begin("/v1/embeddings", model="vectors", prompt=None, input=[[4]] * 2048) for _ in sys.argv[4:]]
    os.kill(int(sys.argv[3]), signal.SIGTERM)
    killed = time.monotonic()
    answer = hear(connection)
    # A server that has no processor for it does not answer within the two seconds that it has then.
    assert answer.startswith(b"HTTP/1.1 503 ") or not answer and time.monotonic() - killed >= 2
    for other in others:  # each is answered somehow, if it was read
        assert hear(other)[:13] in (b"HTTP/1.1 200 ", b"HTTP/1.1 429 ", b"HTTP/1.1 503 ", b"")


def hub():
    """A folder of transformers', whose texts begin with a token."""
    usage = complete("The sun is out, they're going to 1984", model="hub", max_tokens=5)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (24, 5), usage


def genai():
    """A model in an ONNX file gives each of many the text that `kiln generate` has made alone."""
    with open(sys.argv[3], "rb") as file:
        known = file.read()[:-1].decode(errors="replace")
    prompt, got = "the sun is out there", [None] * 8
    prompts = [prompt, prompt + " in the rain", "they were", prompt]
    alone = [text(one, model="genai", max_tokens=27) for one in prompts]
    assert alone[0] == known, (alone[0], known)

    def client(i):
        got[i] = text(prompts[i % 4], model="genai", max_tokens=27)
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == 2 * alone, (got, alone)
    status, said = post("/v1/chat/completions", model="genai", max_tokens=27, temperature=0,
                        messages=[{"role": "user", "content": prompt}])
    assert status == 200 and said["choices"][0]["message"]["content"] == known, said


def vectors_gguf():
    """An encoder in a GGUF file gives what `kiln embed` makes of these lines, whatever is beside them."""
    with open(sys.argv[3], encoding="utf-8") as file:
        known = [bits([float(x) for x in line.split()]) for line in file]
    for lines in (LINES, LINES[:1], LINES[:4:-1]):
        status, answer = post("/v1/embeddings", model="bert", input=lines)
        assert status == 200, answer
        got = [bits(one["embedding"]) for one in answer["data"]]
        assert got == [known[LINES.index(line)] for line in lines]
    status, answer = post("/v1/embeddings", model="bert", input="sun " * 39)
    assert status == 400 and "more than the 40 tokens" in answer["error"]["message"], answer
    status, answer = post("/v1/completions", model="bert", prompt="sun")
    assert status == 400 and "is an encoder" in answer["error"]["message"], answer


def faults_begin():
    """What each prompt goes on with, for others to compare."""
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        json.dump([text(prompt, max_tokens=60) for prompt in PROMPTS], file)


def faults():
    """8 clients at once get that; at least so many runs have failed meanwhile."""
    with open(sys.argv[3], encoding="utf-8") as file:
        known = json.load(file)
    got = [None] * 8

    def client(i):
        got[i] = [text(PROMPTS[k % 4], max_tokens=60) for k in range(i, i + 4)]
    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [[known[k % 4] for k in range(i, i + 4)] for i in range(8)], (got, known)
    status, said = ask("GET", "/metrics")
    failed = re.search(r"failed_steps_total\{.*\} (\d+)", said.decode())
    assert status == 200 and int(failed[1]) >= int(sys.argv[4]), said


def faults_killed():
    """The server goes in the midst of an answer, which ends."""
    connection, answer = begin("/v1/completions", stream=True, max_tokens=150), b""
    while b"data:" not in answer:
        part = connection.recv(1000)
        assert part, answer
        answer += part
    os.kill(int(sys.argv[4]), signal.SIGKILL)
    try:
        while connection.recv(1000):
            pass
    except ConnectionError:
        pass


globals()[sys.argv[2]]()
print("fine")
