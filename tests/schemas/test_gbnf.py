"""Grammars in llama.cpp's notation mean what they mean there."""

from __future__ import annotations

import pytest

from leap_core.errors import LeapSchemaError
from leap_core.inference.constraints.compiling import lark_matcher
from leap_core.schemas.expressions import follows
from leap_core.schemas.gbnf import LONGEST, as_lark
from leap_core.schemas.grammar_matcher import byte_tokenizer

JSON = r"""
# JSON as many programs send it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws # escapes
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""
SUMS = r"""
root ::= (sum "=" ws term "\n")+
sum ::= term ([-+*/] term)*
term ::= word | num | "(" ws sum ")" ws
word ::= [a-z] [a-z0-9]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
"""
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "json": (JSON, ['{"a": [1, -2.5e3, "x\\u00e9 \\" y"]}', "{}"], ['{"a":}', "[1]", '{"a": "\n"}']),
    "a terminal that could take what follows": (SUMS, ["1+1=2\n", "(a+b)*c = d\n\n1=1\n"], ["1+1=2", "a=\n"]),
    "a rule called start": ('start ::= "x"\nroot ::= start start', ["xx"], ["x"]),
    "names": ('root ::= a-B aB-1\na-B ::= "1"\naB-1 ::= "2"', ["12"], ["1", "21"]),
    "escapes": (r'root ::= "\x41\u00e9\U0001F600\t\"\\" [\]\-\x5B]', ['Aé😀\t"\\]', 'Aé😀\t"\\-', 'Aé😀\t"\\['], ["A"]),
    "no times": ('root ::= "a"{0} "b"{0,0} "c"{2} "d"{1,2} "e"{2,}', ["ccdee", "ccddeee"], ["accdee", "ccde"]),
    "repeated": ('root ::= ("a"* "b"?)+ "c"', ["c", "aabac"], ["aab", ""]),
    "any": ("root ::= . . .", ["a\né"], ["ab", "abcd"]),
    "ranges": ("root ::= [a-cx-] [^a-c\\n]", ["ax", "-z", "xé"], ["dx", "aa", "a\n"]),
    "ambiguous": ('root ::= [a-z]* ("abd" | "ab" "c")', ["xxabd", "abc", "abdabc"], ["ab", "abdx"]),
    "empty": ('root ::= "a" | | "b"', ["", "a", "b"], ["ab"]),
    "lines": ('root ::= (\n"a" |\n"b"\n)\r\n\r\n# end\r\nx ::= "y"', ["a", "b"], ["y"]),
    "a left recursion": ('root ::= root "a" | "b"', ["b", "baa"], ["a"]),
    "many times": ('root ::= "a"{1,9999}', ["a" * 50], [""]),
    "the last rule of a name": ('root ::= "a"\nroot ::= "b"', ["b"], ["a"]),
    "Lark's, as it is": ('start: "a" x\nx: "::="', ["a::="], ["a"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_grammar_means_what_llama_cpp_reads(name: str) -> None:
    grammar, fitting, others = CASES[name]
    found = {}
    for text in (*fitting, *others):
        _, matcher = lark_matcher(grammar, byte_tokenizer())
        found[text] = follows(matcher, list(text.encode()))
    assert found == {**dict.fromkeys(fitting, True), **dict.fromkeys(others, False)}


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('root ::= "a"\nx ::= (', r"line 2: a \( has no \)"),
        ('root ::= "a" )', r"line 1: a \) has no \("),
        ('root ::= "a', "line 1"),
        ('x ::= "a"', "has no rule root"),
        ("root ::= other", "line 1: there is no rule 'other'"),
        ('root ::= "a"\nb = "c"', "line 2"),
        ("root ::= *", r"line 1: \* comes after nothing"),
        ('root ::= "\\q"', "line 1.* no escape"),
        ('root ::= "\\ud800"', "line 1: .* is no character"),
        ("root ::= [z-a]", "line 1: the range z-a is empty"),
        ("root ::= []", r"line 1: \[\] has no characters"),
        ('root ::= "a"{3,2}', r"line 1: \{3,2\} cannot be"),
        ('root ::= "a"{3000}', r"line 1: \{3000\} cannot be"),
        ("root ::= " + "(" * 300, "line 1: more than 200 groups"),
        ('root ::= "' + "a" * LONGEST + '"', "more than 50000 characters"),
        ('root ::= "a"\nroot', "line 2: expected a rule"),
    ],
)
def test_an_invalid_grammar_is_refused_with_its_line(grammar: str, reason: str) -> None:
    with pytest.raises(LeapSchemaError, match=reason):
        as_lark(grammar)


def test_names_with_hyphens_count_as_rules() -> None:
    rules = [f"a-{n} ::= a-{n + 1}" for n in range(1001)]
    with pytest.raises(LeapSchemaError, match="1003 rules"):
        lark_matcher("\n".join(['root ::= "x"', *rules, 'a-1001 ::= "x"']), byte_tokenizer())


def test_a_count_that_is_no_repetition_is_read_in_linear_time() -> None:
    with pytest.raises(LeapSchemaError, match="line 1: '{1,"):
        as_lark('root ::= "a"{1,' + " " * (LONGEST - 20) + "x")
