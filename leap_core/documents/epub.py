"""E-books: a chapter for each part of the spine, in its order."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Sequence
from typing import BinaryIO
from urllib.parse import unquote
from xml.etree import ElementTree

from .blocks import MARKER, PICTURE, Block, UnreadableDocumentError
from .html import decoded_page, write_page
from .output import DocumentOutput
from .text import MARKS

LARGEST_CHAPTER = 32 * 1024**2
FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
"""Ways to obfuscate fonts, which protect no text."""


def read(file: BinaryIO, out: DocumentOutput) -> None:
    """The chapters, with their titles of the table of contents."""
    with zipfile.ZipFile(file) as archive:
        container = ElementTree.fromstring(archive.read("META-INF/container.xml"))
        root = next(str(each.get("full-path")) for each in container.iter() if each.tag.endswith("rootfile"))
        package = ElementTree.fromstring(archive.read(root))
        items = {str(each.get("id")): each for each in package.iter() if each.tag.endswith("}item")}
        listed = [id for each in package.iter() if (id := each.get("idref")) is not None]
        spine = [items[id] for id in listed if id in items]
        titles = _titles(archive, root, items)
        locked = _locked(archive)
        paths = [_path(root, item.get("href") or "") for item in spine]
        if paths and all(path in locked for path in paths):
            raise UnreadableDocumentError("{name} is protected (DRM): its text is encrypted")
        out.expected = len(spine)
        if absent := [id for id in listed if id not in items]:
            out.note(f"chapters that the book lists and does not hold: {', '.join(absent)}")
        for item, path in zip(spine, paths, strict=True):
            kind = item.get("media-type") or ""
            title = titles.get(path, "")
            if path in locked:
                _absent(out, title, f"{posixpath.basename(path)} is protected (DRM)")
            elif path not in archive.NameToInfo:
                _absent(out, title, f"{posixpath.basename(path)} is missing from the book")
            elif kind.startswith("image/"):
                out.section(title)
                out.add(Block(PICTURE, posixpath.basename(path)))
            else:
                _chapter(archive, path, title, out)


def _chapter(archive: zipfile.ZipFile, path: str, title: str, out: DocumentOutput) -> None:
    with archive.open(path) as file:
        data = file.read(LARGEST_CHAPTER + 1)
    if len(data) > LARGEST_CHAPTER or (b"\0" in data[:1024] and not data.startswith(tuple(MARKS))):
        why = "is larger than 32 MiB" if len(data) > LARGEST_CHAPTER else "is not text"
        return _absent(out, title, f"{posixpath.basename(path)} {why}")
    chapter = _Chapter(out, title)
    write_page(decoded_page(data, out), chapter, is_xml=True)
    if not chapter.has_begun and (b"<img" in data or b"<image" in data):
        chapter.add(Block(PICTURE, title or posixpath.basename(path)))


class _Chapter:
    """Begins a section at the first block, whose text is its title where the table of contents has none."""

    def __init__(self, out: DocumentOutput, title: str) -> None:
        self._out, self._title, self.has_begun = out, title, False

    def _begin(self, text: str) -> None:
        if not self.has_begun:
            self._out.section(self._title or text.partition("\n")[0][:200])
            self.has_begun = True

    def add(self, block: Block) -> None:
        self._begin(block.text)
        self._out.add(block)

    def row(self, cells: Sequence[str], number: int, line: int) -> None:
        self._begin("")
        self._out.row(cells, number)

    def end_table(self) -> None:
        self._out.end_table()


def _absent(out: DocumentOutput, title: str, why: str) -> None:
    out.section(title)
    out.add(Block(MARKER, why))
    out.note(f"{out.place}: {why}")


def _path(base: str, href: str) -> str:
    joined = posixpath.join(posixpath.dirname(base), unquote(href.partition("#")[0]))
    return posixpath.normpath(joined)


def _locked(archive: zipfile.ZipFile) -> set[str]:
    """The paths of what is encrypted, other than fonts."""
    if "META-INF/encryption.xml" not in archive.NameToInfo:
        return set()
    found = set()
    for each in ElementTree.fromstring(archive.read("META-INF/encryption.xml")).iter():
        if each.tag.endswith("}EncryptedData"):
            parts = {part.tag.rpartition("}")[2]: part for part in each.iter()}
            method, place = parts.get("EncryptionMethod"), parts.get("CipherReference")
            if place is not None and (method is None or method.get("Algorithm") not in FONTS):
                found.add(unquote(place.get("URI") or ""))
    return found


def _titles(archive: zipfile.ZipFile, root: str, items: dict[str, ElementTree.Element]) -> dict[str, str]:
    """The titles of the table of contents (EPUB 3's, else the older one) by the paths of chapters."""
    found: dict[str, str] = {}
    for item in items.values():
        is_nav = "nav" in (item.get("properties") or "").split()
        if not is_nav and item.get("media-type") != "application/x-dtbncx+xml":
            continue
        path = _path(root, item.get("href") or "")
        try:
            contents = ElementTree.fromstring(archive.read(path))
        except (KeyError, ElementTree.ParseError):
            continue
        for each in contents.iter():
            href, title = each.get("href"), each
            if each.tag.endswith("}navPoint"):
                inner = {part.tag.rpartition("}")[2]: part for part in reversed(list(each.iter()))}
                href, title = inner["content"].get("src") if "content" in inner else None, inner.get("text", each)
            if href:
                found.setdefault(_path(path, href), " ".join("".join(title.itertext()).split()))
    return found
