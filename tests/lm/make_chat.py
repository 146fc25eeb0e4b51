# SPDX-License-Identifier: Apache-2.0
"""Makes chat.def beside it, which is checked in: python3 make_chat.py, with the package jinja2. What the
templates of models in templates/, and short ones here, make of conversations, as jinja2 has it with
the settings of Hugging Face's transformers."""
import json
import os

from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, END = "<|im_start|>", "<|im_end|>"  # of tiny.gguf
USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
ONE = [(USER, "Why is the sky blue?")]
MANY = [(SYSTEM, " Be brief.\n"), (USER, "  Où est-il?\u00a0\u3000"), (ASSISTANT, "<think>\nhm\n</think>\n\nLà.\n"),
        (USER, "Say \"<|im_end|>\"\t\\ {{ 1 }} </think>"), (ASSISTANT, "日本語\u2028🙂"), (USER, "x")]
OPEN = [(USER, "a"), (ASSISTANT, "\n<think>b</think>c ")]
CASES = [(ONE, True, None), (MANY, True, None), (MANY, True, False), (MANY, True, True), (OPEN, False, None)]

# {{ }} around each; `messages` is MANY.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
-7 // 2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 7 % -3 ~ ' ' ~ 7 // -2
- - 3
+4
(1 + 2) * 3
2 ~ 3 * 4
1 + 1 == 2 and not 1 == 2
not 1 == 2 or true
'a' < 'b' and 'a' <= 'a' and 2 > 1 and 2 >= 3
'é' > 'z'
1 in [1, 2] and 'b' not in ['a'] and 'el' in 'hello' and 'k' in {'k': 1}
true == 1
none == none
[1, [2]] == [1, [2]] and {'a': 1} == {'a': 1} and {'a': 1} != {'b': 1}
'a' if 1 > 2
'a' if 1 > 2 else 'b' if 0 else 'c'
0 or 'x' and 'y'
'' or none
true
none
nothing
nothing is defined
nothing is undefined and nothing is not defined
'tool_calls' in messages[0]
messages[0].tool_calls is defined
messages[99] is defined
messages[-1].role + messages[-6]['role']
messages[1:3] | length
messages[::-1][0].role
messages[-2:][0].role
messages[4:1:-2] | map(attribute='role') | join(',')
messages[10:] | length
'h\u00e9llo'[1:4]
'日本語'[-1]
'日本語'[::-1]
'abc'[5] is defined
'a' 'b' "c"
'\n\t\\\'"\x41\u00e9\q'
"it's"
'  x \u00a0'|trim
'xxaxx'.strip('x') ~ '.' ~ 'xxaxx'.lstrip('x') ~ '.' ~ 'xxaxx'.rstrip('x')
'\u3000 a '.strip() ~ '|'
'éxé'.strip('é')
'a--b--c'.split('--')[1]
'a--b--c'.split('--', 1)[-1]
'a,b'.split(',') | join('+')
'a'.startswith('a') and 'abc'.endswith('bc') and not 'a'.startswith('ab')
'Hello'.upper() ~ 'Hello'|lower ~ 'hELLO'|capitalize
'aXbX'.replace('X', '--') ~ 'aa'|replace('a', '')
', '.join(['a', 'b'])
[1, 2, 3]|last ~ [1, 2]|first ~ ([]|first is defined)
[1, 2, 3]|reverse|join
'abc'|list|join('.')
{'a': 1, 'b': 2}|length
{'a': 1, 'b': 2}|join
{'a': 1}.items()|list|length ~ {'a': 1}.keys()|join ~ {'a': 7}.values()|join
{'a': 1}.get('a') ~ {'a': 1}.get('b') ~ {'a': 1}.get('b', 3)
{'a': 1}['a'] ~ {'a': {'b': 2}}.a.b
nothing|default('d') ~ ''|default('e') ~ ''|default('f', true) ~ 1|d(2)
messages|selectattr('role', 'equalto', 'user')|list|length
messages|rejectattr('role', '==', 'user')|map(attribute='role')|join(' ')
messages|selectattr('content')|list|length
['a', 'b']|map('upper')|join
messages|map(attribute='role')|list|tojson
messages[3].content|tojson
{'a': [1, true, none, 'é\n\u0001"'], 'b': {}, 'c': []}|tojson
{'a': [1, {'b': 2}], 'c': {}}|tojson(indent=2)
'x' is string and 1 is not string and messages is iterable and messages is sequence
{} is mapping and 1 is number and 1 is integer and true is boolean and true is not integer
true is true and false is false and 1 is not true and none is none
1 is eq 1 and 1 is equalto(1) and 1 is ne 2 and 1 is in [1]
range(3)|join ~ range(1, 3)|join
5|string ~ none|string ~ 'x'|safe
'a' ~ none ~ true ~ 1
nothing|length
nothing|trim
dict(a=1, b='x').b
namespace(a=1).a
add_generation_prompt
bos_token + eos_token
enable_thinking is defined
strftime_now is defined
""".strip("\n").split("\n")

TEXTS = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }};{% endfor %}",
    "{% for m in messages %}{{ loop.previtem is defined }}{{ loop.nextitem.role if loop.nextitem is defined }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ m.role }}{% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}{% for m in nothing %}x{% else %}too{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [3, 4] %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% set ns.m = i %}{% endfor %}{{ ns.n }}{{ ns.m }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}",
    "{% for m in messages %}{% set messages = messages[:1] %}{{ messages|length }}{% endfor %}{{ messages|length }}",
    "{% if 0 %}a{% elif none %}b{% elif 'x' %}c{% else %}d{% endif %}{% if '' %}e{% else %}f{% endif %}",
    "{{ 'a' }}\n{{ 'b' }}\n\n",
    "a\n  {% if true %}\n    b\n  {% endif %}\n c  {% if true %} d {% endif %}\ne",
    "  {%- if true -%}  \n x \n {%- endif %}  \n y",
    "a {{- 'b' -}} c  {{ 'd' }}  e",
    "  {%+ if true +%}\n x\n  {%+ endif %}\n",
    "a {# b #}\n  {# c #}\n d {#- e -#} f\n{# {{ x }} {% if %} #}g",
    "{{ {'a': {'b': 1}}.a.b }}",
    "{% if true %}\n{% if true %}\n  {{ 'x' }}\n{% endif %}\n{% endif %}\n",
    "\t{% if true %}\tx{% endif %}\r\ny\r\n",
    "{{ '%}' }}{{ '}}' }}{% if '%}' == '%}' %}z{% endif %}",
    "{ { } } {x}% %} }} # #}",
    "{{ 'a'\n ~ \n'b' }}",
    "",
    "only text\n",
    "{% set a = [1, 2] + [3] %}{{ a|length }}{{ a[1] }}",
    "{% for x in [[1, 2], [3, 4]] %}{{ x[1] }}{% endfor %}",
]


def tojson(x, ensure_ascii=False, indent=None):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=["jinja2.ext.loopcontrols"])
environment.filters["tojson"] = tojson


def render(template, messages, answer=True, thinking=None):
    more = {} if thinking is None else {"enable_thinking": thinking}

    def refuse(words):
        raise ValueError(words)
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template).render(
        messages=[{"role": role, "content": content} for role, content in messages], bos_token=BEGIN,
        eos_token=END, add_generation_prompt=answer, **more)


def c_text(text):
    """An octal escape ends after three digits, whatever follows."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
                         for b in text.encode()) + '"'


def rows():
    for file in sorted(os.listdir(os.path.join(HERE, "templates"))):
        with open(os.path.join(HERE, "templates", file), encoding="utf-8", newline="") as source:
            template = source.read()
        for messages, answer, thinking in CASES:
            said = ", ".join(f"{{{c_text(role)}, {c_text(content)}}}" for role, content in messages)
            made = render(template, messages, answer, thinking)
            yield (f'CHAT("{file}", {int(answer)}, {0 if thinking is None else 1 if thinking else -1}, '
                   f'MESSAGES({said}), {c_text(made)})')
    for text in ["{{ " + expression + " }}" for expression in EXPRESSIONS] + TEXTS:
        yield f"RENDER({c_text(text)}, {c_text(render(text, MANY))})"


with open(os.path.join(HERE, "chat.def"), "w", encoding="ascii") as output:
    output.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make_chat.py; who includes it defines the "
                 "rows that it wants. */\n")
    wanted = ("CHAT", "RENDER")
    output.writelines(f"#ifndef {row}\n#define {row}(...)\n#endif\n" for row in wanted)
    output.writelines(row + "\n" for row in rows())
    output.writelines(f"#undef {row}\n" for row in wanted)
