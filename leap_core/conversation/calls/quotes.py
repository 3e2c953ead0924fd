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
    '"': '"',
    "'": "'",
}
MARKS = "".join(CLOSERS) + "”’」』"
PART = re.compile(rf"`+|~+|\n|[^\S\n]+|[{MARKS}]|[^\s`~{MARKS}]+")
BEFORE_OPENING = " \t\n([{:=-–—"
FENCE, INDENT = 3, 4


class Quotes:
    """Follows the text of a reply that is no call.

    A code block counts only after other text: a reply that begins with one may be a call in it. A quotation mark is
    open to the end of its line, or of its paragraph where it holds a marker; a straight single one, which may be an
    apostrophe, only before its next character.
    """

    def __init__(self) -> None:
        self._run, self._run_length = "", 0
        self._fence, self._fence_length, self._is_example = "", 0, False
        self._inline = 0
        self._closer = ""
        self._holds_marker = self._in_call = self._is_after_marker = False
        self._has_text = False
        self._last = "\n"
        self._indent, self._is_blank, self._after_blank, self._line_is_quoted = 0, True, True, False

    @property
    def are_open(self) -> bool:
        """Whether what comes next is quoted."""
        self._end_run()
        if self._fence:
            return self._is_example
        is_code = self._line_is_quoted or (self._is_blank and self._is_indented)
        return is_code or self._inline > 0 or self._closer != ""

    def shows(self, marker: str, start: str, end: str) -> bool:
        """Whether a marker that comes next is text: it is quoted, or between a start marker that is and its end."""
        is_open = self.are_open
        if marker == start:
            self._in_call = is_open and end != ""
        is_shown = is_open or self._in_call
        if marker == end:
            self._in_call = False
        self._begin_line(marker[0])
        self._last, self._has_text = marker[-1], True
        self._is_after_marker = marker[-1] not in "='\""
        self._holds_marker = self._holds_marker or (is_shown and self._closer != "")
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
            if char == "\n":
                self._end_line()
            elif not char.isspace():
                self._begin_line(char)
                self._mark(char)
                self._has_text = self._has_text or not self._fence
            else:
                self._indent += len(part.expandtabs(INDENT)) if self._is_blank else 0
                self._closer = self._closer.strip("'")
            self._last, self._is_after_marker = part[-1], False

    @property
    def _is_indented(self) -> bool:
        return self._indent >= INDENT and self._after_blank and self._has_text and not self._fence

    def _begin_line(self, char: str) -> None:
        if self._is_blank:
            self._line_is_quoted = (char == ">" and not self._fence) or self._is_indented
            self._is_blank = False

    def _end_line(self) -> None:
        if self._is_blank:  # a blank line ends what a backtick or a quotation mark has begun
            self._inline, self._holds_marker = 0, False
        if not self._holds_marker:
            self._closer = ""
        self._after_blank = self._is_blank or (self._line_is_quoted and self._after_blank)
        self._indent, self._is_blank, self._line_is_quoted = 0, True, False

    def _mark(self, char: str) -> None:
        """A quotation mark begins or ends something; those within a call that is shown do not."""
        if self._in_call and not self._is_after_marker:
            return
        if self._closer and char in self._closer:
            self._closer, self._holds_marker, self._in_call = "", False, False
        elif self._closer == "'":
            self._closer = ""
        elif not (self._closer or self._fence or self._inline) and (char not in "\"'" or self._last in BEFORE_OPENING):
            self._closer = CLOSERS.get(char, "")

    def _end_run(self) -> None:
        """Backticks, or tildes, are as many as they are."""
        char, length = self._run, self._run_length
        if not char:
            return
        self._run, self._run_length = "", 0
        was_blank = self._is_blank
        self._begin_line(char)
        self._in_call = self._in_call and not self._is_after_marker
        self._last, self._is_after_marker = char, False
        if self._fence:
            if char == self._fence and length >= self._fence_length:
                self._fence = ""
        elif length >= FENCE and (char == "`" or was_blank):
            self._fence, self._fence_length, self._is_example = char, length, self._has_text
            self._inline, self._closer = 0, ""
        elif char == "`" and length == self._inline:
            self._inline = 0
        elif char == "`" and not self._inline:
            self._inline = length
