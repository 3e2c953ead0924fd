"""``leap help WORDS``: sections of the pages, options and commands that fit, by SQLite's full-text search.

The index is made in memory from the guides and the reference, which has every command and option. A question that names
no term is looked for in the texts of errors, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from leap_core.system.dataclass import dataclass
from leap_core.system.full_text_search import Section, TextIndex

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


@dataclass(frozen=True)
class FoundEntry:
    """``page``: what ``leap help`` prints, such as ``chat``; for a command ``generate``. ``section``: the heading or
    option that fits. ``command``: what to type."""

    page: str
    section: str
    command: str


def search(words: Sequence[str], reference: Mapping[str, str]) -> list[FoundEntry]:
    """The best sections for the words: pages of a term that they name first, then what has the words in its text.

    ``reference``: the Markdown of the reference's pages by their names.
    """
    query = plain(" ".join(words))
    named = terms_in(query)
    errors = _errors() if not named and len(query.split()) > 2 else ()
    with closing(TextIndex(chain(all_sections(reference), errors))) as index:
        return entries(index, query, named)


def entries(index: TextIndex, query: str, named: Iterable[Term]) -> list[FoundEntry]:
    """What the index has for the words of the query, which names these terms."""
    found = []
    for term, page in [(term, page) for term in named if (page := _page_of(term))][:MOST]:
        found.append(FoundEntry(page, index.best_of_page(page, query) or topics()[page], term.command))
    seen = {each.page for each in found}
    for page, heading, body in index.matches(query):
        page = _topic(page)
        if len(found) == MOST:
            break
        if page not in seen or page == ERROR:
            seen.add(page)
            found.append(FoundEntry(page, heading, body if page == ERROR else _command(heading, body)))
    return found


def nearest(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """Terms, pages and ``names`` that are spelled nearly so."""
    known = {each.strip() for term in TERMS for each in term.words.split(",")} | {*topics(), *names}
    return get_close_matches(plain(" ".join(words)), sorted(known), n=3, cutoff=0.6)


def plain(text: str) -> str:
    """The words in lower case, with a space between."""
    return " ".join(_WORD.findall(text.lower().replace("_", " ")))


def terms_in(query: str) -> list[Term]:
    """The terms that the query names; those that are the whole of it first, then the longest."""
    scores: dict[Term, int] = {}
    for term in TERMS:
        for name in map(plain, term.words.split(",")):
            if name in (query, query.removesuffix("s")):
                scores[term] = 1000
            elif re.search(rf"\b{re.escape(name)}s?\b", query):
                scores[term] = max(scores.get(term, 0), len(name))
    return sorted(scores, key=lambda term: -scores[term])


def _page_of(term: Term) -> str | None:
    return next((page for page in term.pages.split() if page in topics()), None)


def all_sections(reference: Mapping[str, str]) -> Iterator[Section]:
    """The sections of all guides and of the reference, without the errors."""
    for name, text in chain(pages().items(), ((f"{REFERENCE}/{name}", text) for name, text in reference.items())):
        if name != INDEX:
            yield from _sections(name, text)


def _errors() -> Iterator[Section]:
    """The texts of errors in the source, with their hints."""
    import jobs
    import leap_cli
    import leap_core

    for package in (leap_core, leap_cli, jobs):
        for path in Path(package.__path__[0]).rglob("*.py"):
            for message, hint in _ERROR.findall(path.read_text("utf-8")):
                text = "".join(re.findall(r'f?"((?:[^"\\]|\\.)*)"', message))
                yield ERROR, re.sub(r"\{[^{}]*\}", "…", text), "".join(re.findall(r'f?"((?:[^"\\]|\\.)*)"', hint))


def _sections(name: str, text: str) -> Iterator[Section]:
    """The sections of a page; each option of the reference is one of its own."""
    heading = name
    body: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if fenced:
            body.append(line)
            continue
        if name.startswith(f"{REFERENCE}/") and line.startswith("### "):
            continue  # a group of options: they are entries of their own, below the command's name
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


def _command(heading: str, body: str) -> str:
    """The command that an option belongs to, else the first one of the section."""
    path, _, option = heading.partition(": -")
    if option:
        return f"{path} -{option}" if path.startswith("leap ") else ""
    found = _COMMAND.search(body)
    return (found[1] or found[2]).strip() if found else ""


def _topic(page: str) -> str:
    """What ``leap help`` takes for a page: a command for a page of the reference."""
    name = page.removeprefix(f"{REFERENCE}/")
    return REFERENCE if name == INDEX else name
