"""The text of files whose encoding is not said outside of them."""

from __future__ import annotations

import re

from ..errors import LeapError

DECLARED = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]{0,80}?encoding\s*=\s*[\"']([\w.:-]+)", re.I
)
DECLARATION_WITHIN = 1024
"""A page says its encoding in its first bytes."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
WIDER = {
    **dict.fromkeys(("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii"), "cp1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis", "x-sjis", "windows-31j", "ms_kanji"), "cp932"),
    **dict.fromkeys(("gb2312", "gbk", "gb18030", "x-gbk", "chinese"), "gb18030"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "ksc5601", "korean", "windows-949"), "cp949"),
    **dict.fromkeys(("big5", "big5-hkscs", "x-x-big5", "cn-big5"), "big5hkscs"),
    **dict.fromkeys(("utf-8", "utf8", "utf-16", "utf-16le", "utf-16be", "unicode"), "utf-8"),
    **{f"iso-8859-{n}": f"iso8859-{n}" for n in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)},
    **{f"windows-125{n}": f"cp125{n}" for n in range(9)},
    **dict.fromkeys(("windows-874", "tis-620", "iso-8859-11"), "cp874"),
    **{name: name for name in ("euc-jp", "iso-2022-jp", "koi8-r", "koi8-u")},
    **dict.fromkeys(("ibm866", "cp866"), "cp866"),
    "macintosh": "mac-roman",
}
"""The labels that pages use, and what browsers read under them; a page that can say UTF-16 in ASCII is not in it."""


class UnknownCharsetError(LeapError):
    """A page declares an encoding that there is not, and is not UTF-8."""


def decoded(data: bytes) -> str:
    """A text file's text: by its byte order mark, as UTF-8, else as Windows writes it."""
    for encoding in ("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", "replace")


def decoded_page(data: bytes) -> str:
    """A page's text: by its byte order mark, else by the encoding that it declares, else as any text. Raises
    UnknownCharsetError."""
    declared = DECLARED.search(data[:DECLARATION_WITHIN])
    if declared is None or data.startswith((*UTF_16, b"\xef\xbb\xbf")):
        return decoded(data)
    label = (declared[1] or declared[2]).decode("ascii", "replace").lower()
    if label in WIDER:
        try:
            return data.decode(WIDER[label])
        except UnicodeDecodeError:
            pass
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        if label not in WIDER:
            raise UnknownCharsetError(f"it declares the charset {label!r}, which leap does not know") from None
        return data.decode(WIDER[label], "replace")
