"""What of a reply is quoted: code in fences and backticks, words in quotation marks, cited and indented lines.

Every character of the text is followed, in pieces of any size. A call that a model shows in one of these is text.
"""

from __future__ import annotations

import re

CLOSERS = {
    "“": "”",
    "„": "“”",
    "‘": "’",
    "‚": "‘’",
    "«": "»",
    "»": "«",
    "‹": "›",
    "›": "‹",
    "「": "」",
    "『": "』",
    "《": "》",
    '"': '"',
    "'": "'",
}
MARKS = "".join(CLOSERS) + "”’」』》"
LASTING = frozenset("“„«‹「『《")
"""Marks that are hardly anything but the beginning of a quotation, which may reach over several lines."""
PART = re.compile(rf"`+|~+|\n|[^\S\n]+|[{MARKS}]|[^\s`~{MARKS}]+")
BEFORE_OPENING = " \t\n([{:=-–—*_>|/;"
ELISION = re.compile(r"(?:\d\d?s?|em|til|cause|tis|twas|n|bout)[^\w]*", re.IGNORECASE)
"""What an apostrophe begins that opens nothing."""
PREFIX = re.compile(r"(?: ?>)* ?(?:(?:[-*+]|\d{1,9}[.)]) )* ?")
"""Of a line: marks of citations and lists; a code block may begin after them."""
FENCE, INDENT = 3, 4
LONGEST_PREFIX = 16


class Quotes:
    """Follows the text of a reply that is no call.

    A code block counts only after other text, or with text before the call in it: a reply that begins with one may be a
    call in it. As in CommonMark, it ends only at a line with nothing but as many of its own characters. A quotation
    mark is open to the end of its line, or of its paragraph where it holds a marker or can be nothing else. Between
    letters, and after white space, an apostrophe ends no quotation.
    """

    def __init__(self) -> None:
        self._run, self._run_length = "", 0
        self._fence, self._fence_length, self._is_example = "", 0, False
        self._fence_indent, self._is_cited, self._is_of_call = 0, False, False
        self._is_first_line = self._may_end = False
        self._inline = 0
        self._opener, self._closer, self._depth, self._word = "", "", 0, ""
        self._holds_marker = self._in_call = self._is_after_marker = self._is_apostrophe = False
        self._has_text = False
        self._last, self._prefix = "\n", ""
        self._indent, self._is_blank, self._after_blank, self._line_is_quoted = 0, True, True, False

    @property
    def are_open(self) -> bool:
        """Whether what comes next is quoted."""
        self._end_run()
        self._end_apostrophe("")
        if self._fence:
            return (self._is_example or self._inline > 0) and not (self._is_cited and self._is_blank)
        is_code = self._line_is_quoted or (self._is_blank and self._is_indented)
        return is_code or self._inline > 0 or self._closer != ""

    def shows(self, marker: str, start: str, end: str) -> bool:
        """Whether a marker that comes next is text: it is quoted, or between a start marker that is and its end."""
        is_open = self.are_open
        if marker == start:
            self._in_call, self._is_of_call = is_open and end != "", False
        is_shown = is_open or self._in_call
        if marker == end:
            self._in_call = False
            self._fence = "" if self._is_of_call else self._fence
        self._begin_line(marker[0])
        self._last, self._has_text = marker[-1], True
        self._is_after_marker = marker[-1] not in "='\""
        self._holds_marker = self._holds_marker or (is_shown and self._closer != "")
        self._word = " "
        self._add_to_prefix(marker[0])
        return is_shown

    def add(self, text: str) -> None:
        """Text that comes next."""
        for part in PART.findall(text):
            char = part[0]
            if char in "`~":
                if self._run != char:
                    self._end_run()
                self._run, self._run_length = char, self._run_length + len(part)
                continue
            self._end_run()
            self._end_apostrophe(char)
            if char == "\n":
                self._end_line()
            elif not char.isspace():
                self._begin_line(char)
                if char == ">" and self._is_at_start and not self._fence:
                    self._line_is_quoted = True
                self._add_to_prefix(part)
                self._mark(char)
                self._word = (self._word + part)[:LONGEST_PREFIX] if self._closer == "'" and char != "'" else ""
                self._is_example = self._is_example or (self._fence != "" and not self._is_first_line)
                self._has_text = self._has_text or not self._fence or self._is_example
            else:
                self._indent += len(part.expandtabs(INDENT)) if self._is_blank else 0
                self._add_to_prefix("" if self._prefix.endswith(" ") else " ")
                if self._closer == "'" and (not self._word or ELISION.fullmatch(self._word)):
                    self._closer = ""
                self._word = " "
            self._last, self._is_after_marker = part[-1], False

    @property
    def _is_indented(self) -> bool:
        return self._indent >= INDENT and self._after_blank and self._has_text and not self._fence

    @property
    def _is_at_start(self) -> bool:
        """Whether nothing but marks of citations and lists is before in the line."""
        return len(self._prefix) <= LONGEST_PREFIX and PREFIX.fullmatch(self._prefix) is not None

    def _add_to_prefix(self, text: str) -> None:
        self._prefix = (self._prefix + text)[: LONGEST_PREFIX + 1]

    def _begin_line(self, char: str) -> None:
        self._may_end = False
        if self._is_blank:
            if self._fence and self._is_cited and char != ">":
                self._fence = ""
            self._line_is_quoted = (char == ">" and not self._fence) or self._is_indented
            self._is_blank = False

    def _end_line(self) -> None:
        if self._may_end:
            self._fence = ""
        if self._is_blank:  # a blank line ends what a backtick or a quotation mark has begun
            self._inline, self._holds_marker, self._opener = 0, False, ""
        if not (self._holds_marker or self._opener in LASTING):
            self._closer = ""
        self._after_blank = self._is_blank or (self._line_is_quoted and self._after_blank)
        self._indent, self._is_blank, self._line_is_quoted = 0, True, False
        if self._fence and self._is_first_line:
            self._inline, self._closer = 0, ""
        self._is_first_line = self._may_end = False
        self._prefix = ""

    def _mark(self, char: str) -> None:
        """A quotation mark begins or ends something; those within a call that is shown do not."""
        if self._fence or (self._in_call and not self._is_after_marker):
            return
        if self._closer and char in self._closer:
            self._is_apostrophe = char in "'’"
            if not self._is_apostrophe:
                self._close()
            elif self._last.isspace():
                self._is_apostrophe = False
        elif self._closer:
            self._depth += char == self._opener
        elif not self._inline and (char not in "\"'" or self._last in BEFORE_OPENING):
            self._closer, self._opener, self._depth = CLOSERS.get(char, ""), char, 0

    def _end_apostrophe(self, following: str) -> None:
        """What may be an apostrophe is one before a letter."""
        if self._is_apostrophe and not following.isalnum():
            self._close()
        self._is_apostrophe = False

    def _close(self) -> None:
        self._depth -= 1
        if self._depth < 0:
            self._closer, self._holds_marker, self._in_call = "", False, False

    def _end_run(self) -> None:
        """Backticks, or tildes, are as many as they are."""
        char, length = self._run, self._run_length
        if not char:
            return
        self._end_apostrophe(char)
        self._run, self._run_length = "", 0
        prefix, is_at_start = self._prefix, self._is_at_start
        self._begin_line(char)
        self._in_call = self._in_call and not self._is_after_marker
        self._last, self._is_after_marker = char, False
        self._add_to_prefix(char)
        if self._fence:
            self._end_fence(char, length, is_at_start and not prefix.strip("> " if self._is_cited else " "))
        elif length >= FENCE and (char == "`" or is_at_start):
            self._begin_fence(char, length, prefix if is_at_start else "")
        elif char == "`" and length == self._inline:
            self._inline = 0
        elif char == "`" and not self._inline:
            self._inline = length

    def _begin_fence(self, char: str, length: int, prefix: str) -> None:
        """A code block, or in the same line code between as many backticks. ``prefix``: what is before it in its line
        where that is no text."""
        self._fence, self._fence_length, self._is_example = char, length, self._has_text
        self._is_cited, self._is_of_call, self._is_first_line = ">" in prefix, self._in_call, True
        self._fence_indent = self._indent + len(prefix.strip())

    def _end_fence(self, char: str, length: int, is_alone: bool) -> None:
        if char != self._fence:
            return
        if not self._is_first_line:
            is_near = self._is_cited or self._indent < self._fence_indent + INDENT
            self._may_end = is_alone and is_near and length >= self._fence_length
        elif char == "`" and (length == self._inline or length >= self._fence_length):
            self._inline, self._fence = 0 if length == self._inline else self._inline, ""
