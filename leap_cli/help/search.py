"""``leap help WORDS``: sections of the pages, options and commands that fit, by SQLite's full-text search.

The index is made in memory from the pages that ship; the reference has every command and option. A question that names
no term is looked for in the texts of errors, too.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path

from leap_core.system.dataclass import dataclass

from .terms import TERMS, Term
from .topics import INDEX, REFERENCE, pages, topics

MOST = 5
"""Results that are shown."""
ERROR = "error"
"""The page of the text of an error."""
_HEADING = re.compile(r"#{1,4} +(.*)")
_OPTION = re.compile(r"- `(-[^`]*)`: (.*)")
_COMMAND = re.compile(r"^(?:\$ )?(leap [a-z][^#\n]*)|`(leap [a-z][^`\n]* [^`\n]*)`", re.MULTILINE)
_PIECES = r'(?:\s*f?"(?:[^"\\\n]|\\.)*")+'
_ERROR = re.compile(rf"raise [\w.]+\(({_PIECES})(?:,\s*hint=({_PIECES}))?")
_WORD = re.compile(r"\w+")
_SMALL = {
    "a",
    "an",
    "and",
    "do",
    "for",
    "from",
    "how",
    "i",
    "in",
    "is",
    "it",
    "leap",
    "of",
    "on",
    "or",
    "the",
    "to",
    "with",
}


@dataclass(frozen=True)
class Found:
    """``page``: what ``leap help`` prints, such as ``chat``; for a command ``generate``. ``section``: the heading or
    option that fits. ``command``: what to type."""

    page: str
    section: str
    command: str


def search(words: Sequence[str]) -> list[Found]:
    """The best sections for the words: pages of a term that they name first, then what has the words in its text."""
    query = _plain(" ".join(words))
    named = _terms_in(query)
    with closing(_index()) as index:
        if not named and len(query.split()) > 2:
            index.executemany("INSERT INTO section VALUES (?, ?, ?)", _errors())
        found = [each for term in named for page in _pages_of(term) if (each := _best(index, page, query, term))][:MOST]
        seen = {each.page for each in found}
        for each in _matches(index, query):
            if len(found) == MOST:
                break
            if each.page not in seen or each.page == ERROR:
                seen.add(each.page)
                found.append(each)
    return found


def nearest(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """Terms, pages and ``names`` that are spelled nearly so."""
    known = {each.strip() for term in TERMS for each in term.words.split(",")} | {*topics(), *names}
    return get_close_matches(_plain(" ".join(words)), sorted(known), n=3, cutoff=0.6)


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower().replace("_", " ")))


def _terms_in(query: str) -> list[Term]:
    """The terms that the query names; those that are the whole of it first, then the longest."""
    scores: dict[Term, int] = {}
    for term in TERMS:
        for name in map(_plain, term.words.split(",")):
            if name in (query, query.removesuffix("s")):
                scores[term] = 1000
            elif re.search(rf"\b{re.escape(name)}s?\b", query):
                scores[term] = max(scores.get(term, 0), len(name))
    return sorted(scores, key=lambda term: -scores[term])


def _pages_of(term: Term) -> list[str]:
    return [page for page in term.pages.split() if page in topics()][:1]


def _index() -> sqlite3.Connection:
    index = sqlite3.connect(":memory:")
    index.execute("CREATE VIRTUAL TABLE section USING fts5(page UNINDEXED, heading, body, tokenize='porter unicode61')")
    rows = (row for name, text in pages().items() if name != INDEX for row in _sections(name, text))
    index.executemany("INSERT INTO section VALUES (?, ?, ?)", rows)
    return index


def _errors() -> Iterator[tuple[str, str, str]]:
    """The texts of errors in the source, with their hints."""
    import jobs
    import leap_cli
    import leap_core

    for package in (leap_core, leap_cli, jobs):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for message, hint in _ERROR.findall(path.read_text("utf-8")):
                text = "".join(re.findall(r'f?"((?:[^"\\]|\\.)*)"', message))
                yield ERROR, re.sub(r"\{[^{}]*\}", "…", text), "".join(re.findall(r'f?"((?:[^"\\]|\\.)*)"', hint))


def _sections(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    """The sections of a page; each option of the reference is one of its own."""
    heading, body = name, []
    for line in text.splitlines():
        title, option = _HEADING.fullmatch(line), _OPTION.fullmatch(line)
        if title is not None:
            if body:
                yield name, heading, "\n".join(body)
            heading, body = title[1], []
        elif option is not None and name.startswith(f"{REFERENCE}/"):
            yield name, f"{heading}: {option[1]}", option[2]
        else:
            body.append(line)
    yield name, heading, "\n".join(body)


def _best(index: sqlite3.Connection, page: str, query: str, term: Term) -> Found:
    """The section of the page that fits best, with the term's command."""
    sql = "SELECT heading FROM section WHERE section MATCH ? AND page = ? ORDER BY bm25(section, 0, 6, 1) LIMIT 1"
    row = index.execute(sql, (_expression(query, "OR"), page)).fetchone()
    return Found(page, row[0] if row else topics()[page], term.command)


def _matches(index: sqlite3.Connection, query: str) -> Iterator[Found]:
    """What has all words of the query, then what has some of them."""
    sql = "SELECT page, heading, body FROM section WHERE section MATCH ? ORDER BY bm25(section, 0, 6, 1) LIMIT 30"
    for operator in ("AND", "OR"):
        for page, heading, body in index.execute(sql, (_expression(query, operator),)):
            yield Found(_topic(page), heading, body if page == ERROR else _command(heading, body))


def _command(heading: str, body: str) -> str:
    """The command that an option belongs to, else the first one of the section."""
    path, _, option = heading.partition(": -")
    if option:
        return f"{path} -{option}" if path.startswith("leap ") else ""
    found = _COMMAND.search(body)
    return (found[1] or found[2]).strip() if found else ""


def _expression(query: str, operator: str) -> str:
    words = [word for word in query.split() if word not in _SMALL] or query.split()
    return f" {operator} ".join(f'"{word}"' for word in words) or '""'


def _topic(page: str) -> str:
    """What ``leap help`` takes for a page: a command for a page of the reference."""
    name = page.removeprefix(f"{REFERENCE}/")
    return page if name == page else REFERENCE if name in ("README", "settings", "exit-codes") else name
