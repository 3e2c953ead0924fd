"""Numbers of spreadsheet cells as their formats show them; dates as ISO 8601 writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache

GENERAL = "General"
BUILT_IN = {
    **dict(zip(range(1, 5), ("0", "0.00", "#,##0", "#,##0.00"), strict=True)),
    **dict(zip(range(9, 14), ("0%", "0.00%", "0.00E+00", "# ?/?", "# ??/??"), strict=True)),
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "y"),
    **dict.fromkeys((18, 20, 32, 34), "h:mm"),
    **dict.fromkeys((19, 21, 33, 35), "h:mm:ss"),
    **dict.fromkeys((37, 38), "#,##0;(#,##0)"),
    **dict.fromkeys((39, 40), "#,##0.00;(#,##0.00)"),
    **dict.fromkeys((41, 42), "#,##0;-#,##0"),
    **dict.fromkeys((43, 44), "#,##0.00;-#,##0.00"),
    22: "y h:mm",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss",
    48: "##0.0E+0",
    49: "@",
}
"""The formats that files name by a number."""
SECTIONS = re.compile(r'(?:"[^"]*"|\\.|[^;])+')
DURATION = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
NOT_SHOWN = re.compile(r'"[^"]*"|\\.|[_*].|\[[^\]]*\]|General|[Ee][+-]')
TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<literal>.)|[_*].|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[[^\]]*\]|(?P<general>General)|'
    r"(?P<number>[#0?][#0?,]*(?:\.[#0?]*)?,*(?:[Ee][+-][#0?]+)?|\.[#0?]+)|(?P<other>.)"
)
SPLIT_SECOND = re.compile(r"s\.(0+)")
CONDITION = re.compile(r"\[([<>=]{1,2})(-?[\d.]+)\]")
OPERATORS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "=": "eq", "<>": "ne"}
EXACT = Context(prec=15)
"""What a cell holds of a number."""
MOST_DIGITS = 40


@lru_cache(maxsize=1 << 16)
def shown(text: str, code: str, epoch: datetime) -> str:
    """A cell's number, written as in the file, in a format. ``epoch``: the day before day 1."""
    try:
        number = Decimal(text)
    except ArithmeticError:
        return text
    if not number.is_finite() or abs(number.adjusted()) > 300:
        return text
    if DURATION.search(code):
        return _duration(number, code)
    bare = NOT_SHOWN.sub("", code.partition(";")[0]).lower()
    if any(letter in bare for letter in "ymdhs"):
        return _moment(number, bare, epoch)
    if code in (GENERAL, "@", ""):
        return general(text)
    sections = SECTIONS.findall(code)
    if conditions := CONDITION.findall(code):
        tests = (getattr(number, f"__{OPERATORS.get(sign, 'eq')}__")(Decimal(limit)) for sign, limit in conditions)
        fits = (n for n, is_fit in enumerate(tests) if is_fit)
        code = sections[next(fits, min(len(conditions), len(sections) - 1))]
    elif number < 0 and len(sections) > 1:
        number, code = -number, sections[1]
    else:
        code = sections[2 if number == 0 and len(sections) > 2 else 0]
    return _filled(number, code).strip() or general(text)


def labeled(text: str, code: str) -> str:
    """A cell's text in the last section of a format, which holds the text's place: ``"No. "@``."""
    parts = [
        match["quoted"] or match["literal"] or match["other"] or ""
        for match in TOKEN.finditer(SECTIONS.findall(code)[-1])
    ]
    return "".join(text if part == "@" else part for part in parts) if "@" in parts else text


def general(text: str) -> str:
    """A number without a format: 15 digits, which hide the noise of binary fractions."""
    if len(text) <= 16 and text.replace(".", "", 1).isdigit() and ("." not in text or text[-1] not in "0."):
        return text
    try:
        number = Decimal(text)
        number = (number if number == number.to_integral_value() else EXACT.plus(number)).normalize()
    except ArithmeticError:
        return text
    if not number:
        return "0"
    return format(number, "f") if -6 < number.adjusted() < 20 else _scientific(number, 14)


def _duration(number: Decimal, code: str) -> str:
    seconds = int((number * 86400).to_integral_value(ROUND_HALF_UP))
    sign, seconds = "-" * (seconds < 0), abs(seconds)
    first = DURATION.search(code)
    unit = "h" if first is None else first[1][0].lower()
    if unit == "s":
        return f"{sign}{seconds}"
    if unit == "m":
        return f"{sign}{seconds // 60}:{seconds % 60:02}"
    rest = f":{seconds % 60:02}" if "s" in code.lower() else ""
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}{rest}"


def _moment(number: Decimal, bare: str, epoch: datetime) -> str:
    """A date, a time of day, or both."""
    days = number + 1 if 0 < number < 60 and epoch.year == 1899 else number  # there, 1900 is a leap year
    fraction = SPLIT_SECOND.search(bare)
    digits = min(len(fraction[1]), 3) if fraction is not None else 0
    try:
        moment = epoch + timedelta(seconds=float((days * 86400).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)))
    except OverflowError:
        return general(str(number))
    if number < 0:
        return general(str(number))
    time = moment.strftime("%H:%M:%S" if "s" in bare else "%H:%M")
    time += f".{moment:%f}"[: digits + 1] if digits else ""
    if "y" not in bare and "d" not in bare and ("h" in bare or "s" in bare):
        return time
    return f"{moment:%Y-%m-%d} {time}" if "h" in bare else f"{moment:%Y-%m-%d}"


def _filled(number: Decimal, code: str) -> str:
    """A number in a section of a format."""
    places = [match["number"] for match in TOKEN.finditer(code) if match["number"]]
    if "%" in TOKEN.sub(lambda match: match["other"] or "", code):
        number *= 100
    if "/" in code and "?" in code:
        return _fraction(number, code)
    if len(places) > 1 and not any("." in each for each in places):  # 000-00-0000
        sizes = [len(each.replace(",", "")) for each in places]
        digits = f"{abs(number):.0f}".zfill(sum(sizes))
        parts = [digits[: len(digits) - sum(sizes[1:])]]
        for size in sizes[1:]:
            done = sum(map(len, parts))
            parts.append(digits[done : done + size])
    else:
        parts = [_digits(abs(number), each) for each in places[:1]] + [""] * len(places[1:])
    left = iter(parts)
    found = []
    for match in TOKEN.finditer(code):
        if match["number"]:
            found.append(next(left))
        elif match["general"]:
            found.append(general(str(abs(number))))
        else:
            found.append(match["quoted"] or match["literal"] or match["currency"] or match["other"] or "")
    return "-" * (number < 0 and any(each in "123456789" for each in "".join(parts))) + "".join(found)


def _digits(number: Decimal, place: str) -> str:
    mantissa, _, exponent = place.upper().partition("E")
    number /= 1000 ** (len(mantissa) - len(mantissa.rstrip(",")))
    whole, _, decimals = mantissa.rstrip(",").partition(".")
    most, least = len(decimals), len(decimals.rstrip("#?"))
    if exponent:
        return _scientific(number, least)
    text = f"{number.quantize(Decimal(1).scaleb(-min(most, MOST_DIGITS)), ROUND_HALF_UP, Context(prec=400)):f}"
    before, _, after = text.partition(".")
    before = before.lstrip("0").zfill(whole.count("0"))
    if "," in whole:
        before = f"{int(before or 0):,}" if not before.startswith("0") else before
    after = after[:least] + after[least:].rstrip("0")
    return before + ("." + after if after or "." in mantissa and least else "")


def _scientific(number: Decimal, decimals: int) -> str:
    mantissa, _, exponent = f"{number:.{min(decimals, MOST_DIGITS)}E}".partition("E")
    mantissa = mantissa.rstrip("0").rstrip(".") if decimals == 14 else mantissa
    return f"{mantissa}E{exponent[0]}{exponent[1:].zfill(2)}"


def _fraction(number: Decimal, code: str) -> str:
    most = 10 ** min(len(code.partition("/")[2].strip()) or 1, 3) - 1
    value = Fraction(abs(number)).limit_denominator(most)
    whole, rest = divmod(value, 1)
    text = f"{whole or ''} {rest}".strip() if rest else f"{whole}"
    return "-" * (number < 0) + text
