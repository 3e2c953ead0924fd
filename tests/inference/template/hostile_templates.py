"""Chat templates that are made to cost time or memory, to break out, or to end in a bug. ``hostile_templates`` gives
300, by name."""

from __future__ import annotations

import random

LOOP = "{% for a in range(99999) %}"
END = "{% endfor %}"
BIG = 10_000_000

SINGLE = (
    f"{LOOP * 2}{END * 2}",
    f"{LOOP * 6}x{END * 6}",
    f"{LOOP * 3}{'y' * 10_000}{END * 3}",
    f"{LOOP}{{% set x = 'a' * 9999 %}}{END}" * 3,
    "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
    "{% macro m(n) %}{% if n %}{% set a = m(n - 1) %}{% set b = m(n - 1) %}{% endif %}{% endmacro %}{{ m(60) }}",
    f"{{{{ lipsum(n={BIG}) }}}}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x|length }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}"
    "{{ ns.x|tojson }}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"
    "{{ ns.x == ns.x }}",
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "{% set ns = namespace(x=1) %}{% for i in range(40) %}{% set m = namespace(a=ns.x, b=ns.x) %}{% set ns.x = m %}"
    "{% endfor %}{{ ns }}",
    "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 'a' ** 9 }}",
    f"{{{{ 'a' * {BIG * 100} }}}}",
    f"{{{{ {BIG * 100} * 'a' }}}}",
    f"{{{{ [1] * {BIG * 100} }}}}",
    f"{{{{ (1, 2) * {BIG * 100} }}}}",
    f"{{{{ 'a'.encode() * {BIG * 100} }}}}",
    *(f"{{{{ 'a'.{name}({BIG * 100}) }}}}" for name in ("ljust", "rjust", "center", "zfill")),
    f"{{{{ '\t'.expandtabs({BIG * 100}) }}}}",
    f"{{{{ 'a'|center({BIG * 100}) }}}}",
    f"{{{{ 'a\nb'|indent({BIG * 100}) }}}}",
    "{{ ('a\n' * 5000)|indent('x' * 9000) }}",
    f"{{{{ messages|tojson(indent={BIG * 100}) }}}}",
    "{{ [[[[1]]]]|tojson(indent=' ' * 999999) }}",
    f"{{{{ '%{BIG * 100}d' % 1 }}}}",
    f"{{{{ '%*d' % ({BIG * 100}, 1) }}}}",
    f"{{{{ '%.{BIG * 100}f' % 1.5 }}}}",
    f"{{{{ '{{:{BIG * 100}}}'.format(1) }}}}",
    f"{{{{ '{{:{{}}}}'.format(1, {BIG * 100}) }}}}",
    f"{{{{ '%{BIG * 100}d'|format(1) }}}}",
    f"{{{{ ('{{0:>{BIG * 100}}}')|attr('format')('x') }}}}",
    "{{ ('%s' * 9999) % (('x' * 9999,) * 9999) }}",
    "{{ ('{0}' * 9999).format('x' * 9999) }}",
    "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
    "{{ ('b' * 99999).join('a' * 99999) }}",
    "{{ range(99999)|join('b' * 99999) }}",
    "{{ ('a' * 9999).translate({97: 'b' * 9999999}) }}",
    "{{ 'x'|wordwrap(1, wrapstring='y' * 99999) }}",
    "{{ ('a b ' * 99999)|wordwrap(1) }}",
    "{{ ('www.x.y ' * 99999)|urlize }}",
    "{{ ('<' * 99999)|striptags }}",
    "{{ range(99999)|list|pprint }}",
    f"{{{{ range(5)|slice({BIG * 100})|list }}}}",
    f"{{{{ range(5)|batch({BIG * 100}, 0)|list }}}}",
    "{{ 'abcdef'|truncate(1) }}",
    "{{ range(99999)|map('center', 99999)|list|length }}",
    "{{ range(99999)|map('string')|map('upper')|join|length }}" * 30,
    "{{ range(99999)|list|sort|unique|list|length }}" * 30,
    "{{ range(99999)|list }}" * 200,
    "{{ range(99999)|sum }}" * 400,
    f"{{{{ range({BIG * 100}) | list }}}}",
    "{% for a in range(99999)|list recursive %}{{ loop(range(99999)) }}{% endfor %}",
    "{% for a in [messages] * 500 recursive %}{{ loop([messages] * 500) }}{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ ''|attr('format')|attr('__globals__') }}",
    "{{ '{0.__class__.__mro__}'.format(1) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.environ }}",
    "{{ (messages|map(attribute='__class__')|list)[0].__mro__ }}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% break %}",
    "{% continue %}",
    "{{ loop }}",
    "{% for a in range(30) %}" * 30 + END * 30,
    "{% if 1 %}" * 150 + "{% endif %}" * 150,
    "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "{{ " + "1 + " * 20_000 + "1 }}",
    "{{ " + "not " * 20_000 + "1 }}",
    "{{ " + "a.b" * 5000 + " }}",
    "{{ a" + "|upper" * 20_000 + " }}",
    "{{ " + "9" * 10_000 + " }}",
    "{{ " + "9" * 200_000 + " }}",
    "{{a}}" * 50_000,
    "{# " * 50_000,
    "{{ '" + "\\" * 100_001 + " }}",
    "x" * 1_000_000,
    "{% raw %}" * 20_000,
    "{{ raise_exception('x' * 9999999) }}",
    "{{ raise_exception(messages) }}",
    "{{ strftime_now('%Y' * 9999) }}",
    "{{ 1 / 0 }}",
    "{{ undefined.x.y }}",
    "{{ messages[9].content }}",
    "{{ none|length }}",
    "{{ dict(a=1)|dictsort(by='x') }}",
    "{% set x %}{% set x %}{% set x %}",
    "{% call(x) messages %}{% endcall %}",
    "{% filter upper %}" * 100 + "x" + "{% endfilter %}" * 100,
    "{% filter center(999999999) %}x{% endfilter %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% call m() %}{{ m() }}{% endcall %}{% endcall %}",
    "\x00{{ 1 }}\ud800",
)

PIECES = (
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set ns.x = ns.x + ns.x %}",
    "{% set ns.x = ns.x.replace('a', 'aaaa') %}",
    "{% set ns.x = ns.x|replace('a', 'aaa') %}",
    "{% set ns.x = (ns.x|list)|join(ns.x[:9]) %}",
    "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}",
    "{% set ns.x = '%s%s' % (ns.x, ns.x) %}",
    "{% set ns.x = '{}{}'.format(ns.x, ns.x) %}",
    "{% set ns.x = ns.x.center(999) ~ ns.x %}",
    "{% set ns.y = [ns.y, ns.y] %}",
    "{% set ns.y = {'a': ns.y, 'b': ns.x} %}",
    "{% set ns.y = ns.y + ns.y %}",
    "{% set ns.x = ns.y|tojson ~ ns.x %}",
    "{% set ns.x = ns.y|string ~ ns.x %}",
    "{{ ns.x|length }}",
    "{{ ns.x|upper|lower|title|trim }}",
    "{{ ns.y|length }}",
    "{{ ns.x|wordcount }}",
    "{% set ns.n = ns.n * ns.n %}",
    "{{ ns.x in ns.x }}",
    "{{ m(ns.x) }}",
)


def random_template(chance: random.Random) -> str:
    """Doubling and looping, in some order."""
    body = "".join(chance.choices(PIECES, k=chance.randint(2, 8)))
    loops = chance.randint(1, 3)
    count = chance.choice([40, 1000, 99999])
    macro = "{% macro m(x) %}{{ x }}{% if x|length < 99 %}{{ x ~ x }}{% endif %}{% endmacro %}"
    start = "{% set ns = namespace(x='ab', y=[1], n=7) %}"
    return macro + start + f"{{% for i in range({count}) %}}" * loops + body + END * loops + "{{ ns.x }}{{ ns.y }}"


def hostile_templates(count: int = 300) -> list[tuple[str, str]]:
    """Names and texts."""
    chance = random.Random(2026)
    templates = [(f"{number}: {text[:60]!r}", text) for number, text in enumerate(SINGLE)]
    while len(templates) < count:
        templates.append((f"random {len(templates)}", random_template(chance)))
    return templates
