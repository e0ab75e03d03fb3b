"""Is an answer right? Rules that anyone can read, applied alike to every arm: normalised match, negation, refusal.

A match shows that the gold answer stands in the text, not that the text means it: it favours an arm that quotes its
context, and another checker would estimate another quantity. Nothing here asks a model, and nothing is scored by hand.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ragkit.answering.prompts import REFUSAL
from ragkit.errors import InputError


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of `check_answer`.

    `rule` says what decided: "gold" or "alias" (matched), "negated" (matched only behind a negation), "no match", "refusal",
    "answered" (an unanswerable question was not refused), "empty", "truncated", "failed".
    """

    correct: bool
    rule: str
    refused: bool


# How a reader's run may end otherwise than by its own choice.
_FAILED = {"content_filter", "error", "failed", "timeout", "abort", "cancelled"}


def check_answer(
    answer_text: str | None,
    gold_answer: str,
    aliases: Iterable[str] = (),
    *,
    answerable: bool = True,
    finish_reason: str | None = "stop",
    refusal: str = REFUSAL["en"],
) -> Check:
    """Score one answer. The rules, the first that applies decides:

    1. no answer, or nothing in it but punctuation: wrong ("empty"); cut at the token limit (`finish_reason` "length"): wrong
       ("truncated"), whatever it holds; an error or a filter ended it: wrong ("failed");
    2. a refusal (`is_refusal`): wrong, right where the question is unanswerable ("refusal"). A text that holds the exact
       refusal sentence and then answers anyway is a refusal;
    3. an unanswerable question that was answered: wrong ("answered");
    4. the gold answer or an alias stands in the text on token borders (`contains_answer`) and not right behind a negation
       ("not", "isn't", "no", ...): right ("gold", "alias"); only behind one: wrong ("negated"); else wrong ("no match").

    Raises
    ------
    InputError
        A text, gold answer or alias that is no string; aliases given as one string.
    """
    if isinstance(aliases, str):
        raise InputError(f"aliases is the string {aliases!r}: give a list of strings")
    accepted = [(_string(gold_answer, "gold answer"), "gold"), *((_string(alias, "alias"), "alias") for alias in aliases)]
    text = "" if answer_text is None else _string(answer_text, "answer")
    tokens = _tokens(text)
    refused = is_refusal(text, refusal)

    if finish_reason in _FAILED:
        return Check(False, "failed", refused)
    if not _words(tokens):
        return Check(False, "empty", False)
    if finish_reason == "length":
        return Check(False, "truncated", refused)
    if refused:
        return Check(not answerable, "refusal", True)
    if not answerable:
        return Check(False, "answered", False)
    rules = [(rule, _match(tokens, _words(_tokens(answer)))) for answer, rule in accepted]
    for rule, outcome in rules:
        if outcome == "match":
            return Check(True, rule, False)
    return Check(False, "negated" if any(outcome == "negated" for _, outcome in rules) else "no match", False)


def contains_answer(text: str, answer: str) -> bool:
    """True where the normalised answer stands in the normalised text on token borders.

    "5" is not in "25 km", "5.2" or "1,500"; an answer that normalises to nothing is in no text.
    """
    wanted = normalise(answer)
    return bool(wanted) and f" {wanted} " in f" {normalise(text)} "


def is_refusal(text: str, sentence: str = REFUSAL["en"]) -> bool:
    """True where `sentence`, the exact refusal, stands anywhere in the text, or the text consists of common refusals only.

    "I don't know", "The sources do not mention it", "Sorry, there is not enough information." are common refusals; "I don't
    know, but it was 1998" and "The cause is not known" are answers.
    """
    if contains_answer(text, sentence):
        return True
    plain = [normalise(part) for part in re.split(r"(?<=[.!?])\s+|\n+", _string(text, "answer"))]
    sentences = [part for part in plain if part]
    refusals = [bool(_COMMON_REFUSAL.fullmatch(part)) for part in sentences]
    return any(refusals) and all(
        refusal or bool(_COURTESY.fullmatch(part)) for refusal, part in zip(refusals, sentences, strict=True)
    )


def normalise(text: str) -> str:
    """Text as space-separated tokens that are compared, the same for answers and gold answers.

    Compatibility forms, case, diacritics, typographic apostrophes, invisible characters, punctuation, hyphens and dashes
    (equal to spaces), the articles a, an, the (not the A of "Type A"), possessive 's and citations such as [2] make no
    difference. Numbers: thousands separators (comma, no-break or thin space) and needless zeros go, a decimal comma is a
    point, number words up to ninety-nine are digits, "1.5 million" is 1500000, "minus 5" and "-5" are one token that is not 5.
    Units: the table `_UNITS` (kilometres, kilometers, km ...). Dates: "April 9, 2024", "9th of April 2024" and "2024-04-09"
    are "9 april 2024".

    Raises
    ------
    InputError
        `text` is no string.
    """
    return " ".join(_words(_tokens(_string(text, "text"))))


def exact_match(prediction: str, gold: str) -> float:
    """1.0 where both are equal after SQuAD's normalisation, else 0.0 (Rajpurkar et al. 2016)."""
    return float(_squad_words(prediction) == _squad_words(gold))


def token_f1(prediction: str, gold: str) -> float:
    r"""SQuAD's token F1: :math:`2PR/(P + R)` over the bag of words in common (Rajpurkar et al. 2016).

    Where either side is empty after normalisation it is 1.0 if both are, else 0.0 (SQuAD 2.0).
    """
    predicted, wanted = _squad_words(prediction), _squad_words(gold)
    if not predicted or not wanted:
        return float(predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted))


def _squad_words(text: str) -> list[str]:
    kept = "".join(char for char in _string(text, "text").lower() if char not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def _string(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} is {value!r}: give a string")
    return value


# Matching


_NEGATORS = frozenset(
    str.split(
        "not never no nor neither without cannot isnt wasnt arent werent doesnt dont didnt cant couldnt hasnt hadnt havent "
        "wont wouldnt shouldnt"
    )
)
# Words that may stand between a negation and what it negates.
_BETWEEN = frozenset(str.split("be been being because due caused to of in on at by from with for as really actually exactly"))


def _match(tokens: Sequence[str], wanted: Sequence[str]) -> str:
    """Say "match", "negated" (every occurrence stands behind a negation) or "none"."""
    places = [place for place, token in enumerate(tokens) if token not in _BREAKS]
    words = [tokens[place] for place in places]
    found = [start for start in range(len(words) - len(wanted) + 1) if wanted and words[start : start + len(wanted)] == wanted]
    if not found:
        return "none"
    return "negated" if all(_negated(tokens, places[start]) for start in found) else "match"


def _negated(tokens: Sequence[str], place: int) -> bool:
    for token in reversed(tokens[:place]):
        if token in _NEGATORS:
            return True
        if token not in _BETWEEN:  # another word, or punctuation: "No. 5", "No, 5 km"
            return False
    return False


# Tokens


def _forms(table: str) -> dict[str, tuple[str, ...]]:
    """`canonical tokens = form form ...`, one unit a line -> form: canonical tokens."""
    lines = (line.split("=") for line in table.strip().splitlines())
    return {form: tuple(canonical.split()) for canonical, forms in lines for form in forms.split()}


_UNITS = _forms("""
km = km kms kilometre kilometres kilometer kilometers
m = metre metres meter meters
cm = centimetre centimetres centimeter centimeters
mm = millimetre millimetres millimeter millimeters
mi = mi mile miles
ft = ft foot feet
inch = inch inches
kg = kg kgs kilogram kilograms kilogramme kilogrammes
g = gram grams gramme grammes
t = tonne tonnes
lb = lb lbs pound pounds
s = sec secs second seconds
ms = millisecond milliseconds
min = min mins minute minutes
h = hr hrs hour hours
day = day days
week = week weeks
month = month months
year = yr yrs year years
hz = hertz
khz = kilohertz
mhz = megahertz
ghz = gigahertz
v = volt volts
w = watt watts
kw = kilowatt kilowatts
degree = ° deg degree degrees
c = celsius centigrade
f = fahrenheit
k = kelvin kelvins
percent = % percent
au = au
light year = ly
km per h = kph kmh
mi per h = mph
""")
_UNIT_WORDS = frozenset(token for canonical in _UNITS.values() for token in canonical)

_ONES = str.split("zero one two three four five six seven eight nine")
_TEENS = str.split("ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
_TENS = {word: 10 * tens for tens, word in enumerate(str.split("twenty thirty forty fifty sixty seventy eighty ninety"), start=2)}
_NUMBER_WORDS = {word: value for value, word in enumerate(_ONES + _TEENS)} | _TENS
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}

_MONTH_NAMES = str.split("january february march april may june july august september october november december")
_MONTHS = {name: name for name in _MONTH_NAMES} | {name[:3]: name for name in _MONTH_NAMES} | {"sept": "september"}

# A capital A behind a word is a name ("Type A mishap"), not an article; nor are the letters of "a.m." and "n/a".
_ARTICLES = re.compile(r"(?<![\w.'/])(?:[Tt]he|THE|[Aa]n|AN|a|(?<!\w[ -])A)(?![\w'/]|\.\w)")
_BREAKS = frozenset(".,;:!?")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_GLUED = "|".join(
    ["km", "cm", "mm", "kg", "hz", "khz", "mhz", "ghz", "kw", "mph", "kmh", "kph", "hr", "hrs", "min", "ft", "lb", "lbs", "m"]
)
_NUMBER = r"\d+(?:[.,]\d+)*"
_TOKEN = re.compile(
    rf"(?P<number>(?:(?<![^\s(])[-−](?=\d))?(?>{_NUMBER}))(?P<unit>{_GLUED})?(?!\w)"  # -270, 1,500, 5.2, 25km
    rf"|(?P<mixed>(?>{_NUMBER})\w+)"  # 37b, 9th, 1960s: one token, never a number
    r"|(?P<initials>(?:[^\W\d]\.){2,}(?:[^\W\d]\b)?)"  # U.S.
    r"|(?P<word>[^\W\d]\w*(?:'\w+)*(?:\.\d+)*)"  # isn't, v1.2
    r"|(?P<power>\^-?\d+)"
    r"|(?P<mark>[^\w\s])"
)


def _tokens(text: str) -> list[str]:
    """Normalised tokens in order, with the punctuation that ends a phrase kept as tokens of its own (`_BREAKS`)."""
    return _dates(_units(_numbers(_lexed(_folded(text)))))


def _words(tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if token not in _BREAKS]


def _folded(text: str) -> str:
    """Characters made comparable: one form, one case, no diacritics, nothing invisible, no articles, citations or mark-up."""
    text = re.sub(r"\[\d+(?:\s*[,;]\s*\d+)*\]|[_*`]", " ", text)
    text = re.sub(r"[\u2018\u2019\u02bc\u00b4]", "'", text)
    text = re.sub(r"[⁻⁰¹²³⁴-⁹]+", lambda power: f"^{power.group().translate(_SUPERSCRIPTS)}", text)
    text = re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", "", text)
    text = _ARTICLES.sub(" ", unicodedata.normalize("NFKC", text))
    text = unicodedata.normalize("NFKD", text.casefold())
    text = "".join(char for char in text if unicodedata.category(char) not in {"Mn", "Cf"})
    return re.sub(r"\b(\d{4})-(\d{2})-(\d{2})\b", _spelled_date, text)


def _spelled_date(date: re.Match[str]) -> str:
    year, month, day = date.groups()
    return f"{day} {_MONTH_NAMES[int(month) - 1]} {year}" if 1 <= int(month) <= 12 else date.group()


def _lexed(text: str) -> list[str]:
    tokens: list[str] = []
    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found.group()
        if kind in {"number", "unit"}:
            tokens.append(_canonical(found["number"]))
            tokens.extend(filter(None, [found["unit"]]))
        elif kind == "initials":
            tokens.append(token.replace(".", ""))
        elif kind == "word":
            tokens.append(re.sub(r"'s$", "", token).replace("'", ""))
        elif token == "&":
            tokens.append("and")
        elif kind in {"mixed", "power"} or token in _BREAKS or token in {"°", "%", "/"}:
            tokens.append(token)
    return tokens


def _canonical(number: str) -> str:
    """Digits as one decimal string: 1,500 -> 1500, 5,2 -> 5.2, 05.20 -> 5.2; what is no decimal (1.2.3) stays."""
    sign, digits = ("-", number[1:]) if number[0] in "-−" else ("", number)
    if re.fullmatch(r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", digits):
        digits = digits.replace(",", "")
    elif digits.count(",") == 1 and "." not in digits:
        digits = digits.replace(",", ".")
    if not re.fullmatch(r"\d+(?:\.\d+)?", digits):
        return sign + digits
    whole, _, fraction = digits.partition(".")
    whole, fraction = whole.lstrip("0") or "0", fraction.rstrip("0")
    return sign + (f"{whole}.{fraction}" if fraction else whole)


def _is_number(token: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(?:\.\d+)?", token))


def _numbers(tokens: Sequence[str]) -> list[str]:
    """Number words become digits, tens take their ones, "1.5 million" is multiplied out, "minus 5" becomes "-5"."""
    out: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        place += 1
        if token in _TENS and after in _ONES[1:]:
            token = str(_TENS[token] + _NUMBER_WORDS[after])
            place += 1
        elif token in _NUMBER_WORDS:
            token = str(_NUMBER_WORDS[token])
        while _is_number(token) and len(token) <= 20 and place < len(tokens) and tokens[place] in _SCALES:
            token = _canonical(format(Decimal(token) * _SCALES[tokens[place]], "f"))
            place += 1
        if out and out[-1] == "minus" and _is_number(token) and not token.startswith("-"):
            out[-1] = f"-{token}"
        else:
            out.append(token)
    return out


def _units(tokens: Sequence[str]) -> list[str]:
    """Spelled units become their short forms; a slash between two units reads "per", any other slash goes."""
    out: list[str] = []
    for place, token in enumerate(tokens):
        if token != "/":
            out.extend(_UNITS.get(token, (token,)))
        elif out and out[-1] in _UNIT_WORDS and place + 1 < len(tokens):
            after = _UNITS.get(tokens[place + 1], (tokens[place + 1],))[0]
            out.extend(["per"] if after in _UNIT_WORDS else [])
    return out


def _dates(tokens: Sequence[str]) -> list[str]:
    """Day before month, month in full, year behind with no comma between."""
    out: list[str] = []
    place = 0
    while place < len(tokens):
        token = tokens[place]
        after = tokens[place + 1] if place + 1 < len(tokens) else ""
        place += 1
        month = _MONTHS.get(token)
        if month is None:
            out.append(token)
            continue
        if after == "." and month != token:  # Nov. 19
            place += 1
            after = tokens[place] if place < len(tokens) else ""
        if _day(after):
            out += [_day(after), month]
            place += 1
        else:
            if len(out) > 1 and out[-1] == "of" and _day(out[-2]):
                out.pop()
            if out and _day(out[-1]):
                out[-1] = _day(out[-1])
            out.append(month)
        if place + 1 < len(tokens) and tokens[place] == "," and re.fullmatch(r"\d{4}", tokens[place + 1]):
            place += 1
    return out


def _day(token: str) -> str:
    """The day of a month that a token names ("9", "9th"), or an empty string."""
    found = re.fullmatch(r"0?([1-9]|[12]\d|3[01])(?:st|nd|rd|th)?", token)
    return found.group(1) if found else ""


# Common refusals, on normalised sentences (no articles, no punctuation, no apostrophes)

_NOUN = (
    r"(?:contexts?|texts?|passages?|articles?|sources?|documents?|excerpts?|information|data|chunks?|snippets?|content|material)"
)
_REST = r"(?: (?!but\b|however\b|though\b|although\b)\S+){0,15}"
_LACK = r"(?:information|data|contexts?|knowledge|details?|mention|evidence)"
_TOLD = r"(?:mentioned|stated|specified|given|provided|included|available)"
_TOLD_THERE = rf"(?:{_TOLD[3:-1]}|found|known|disclosed|discussed|described|clear|covered|addressed)"
_DO_NOT = r"(?:do not|does not|dont|doesnt|did not|didnt)"
_COURTESY = re.compile(r"(?:i am |im )?(?:very )?(?:sorry|apologi[sz]e)|(?:my )?apologies|please \S.*")
_COMMON_REFUSAL = re.compile(
    rf"(?:(?:i am |im )?sorry (?:but )?|unfortunately )?(?:(?:based on|according to|from|in) (?:\S+ ){{0,3}}?{_NOUN} )?(?:"
    + "|".join(
        [
            rf"i (?:\S+ )?(?:do not|dont) know{_REST}",
            rf"(?:i am |im )?(?:unable|not able) to (?:answer|determine|find|say|tell|provide){_REST}",
            rf"i (?:cannot|can not|cant|could not|couldnt) (?:answer|determine|find|say|tell|provide|verify){_REST}",
            rf"(?:i (?:do not|dont) have|there (?:is not|isnt|are not|arent)|not) (?:\S+ ){{0,2}}{_LACK}{_REST}",
            rf"(?:there (?:is|are|was|were) |i have )?(?:no|insufficient) (?:\S+ ){{0,2}}?{_LACK}"
            rf"(?: (?:(?:is|are|was|were) )?(?:available|provided|given|found|about|on|regarding|of|to|in){_REST})?",
            rf"(?:(?:\S+ ){{0,10}}?(?:is|are|was|were) )?not (?:\S+ly )?{_TOLD}",
            rf"(?:\S+ ){{0,10}}?(?:isnt|arent|wasnt|werent) (?:\S+ly )?{_TOLD}",
            rf"(?:(?:\S+ ){{0,10}}?(?:is|are|was|were) )?(?:not|nowhere) (?:\S+ly )?{_TOLD_THERE} (?:\S+ ){{0,4}}{_NOUN}",
            rf"(?:\S+ ){{0,10}}?(?:isnt|arent|wasnt|werent) (?:\S+ly )?{_TOLD_THERE} (?:\S+ ){{0,4}}{_NOUN}",
            rf"(?:(?:provided|given|supplied|numbered|these|this|that) )*{_NOUN} (?:provided |given |supplied )?{_DO_NOT} "
            r"(?:\S+ly )?(?:mention|provide|contain|specify|state|say|include|give|answer|discuss|describe|indicate|cover)"
            rf"{_REST}",
            rf"(?:it |they )?{_DO_NOT} (?:\S+ly )?(?:mention|specify|state|say){_REST}",
            rf"none of (?:\S+ ){{0,2}}{_NOUN} \S+{_REST}",
            rf"(?:\S+ ){{0,10}}?(?:cannot|can not|cant|could not) be (?:determined|answered|found|established|inferred) "
            rf"(?:\S+ ){{0,4}}{_NOUN}",
            r"(?:this |that )?question (?:cannot|can not|cant|could not) be answered",
        ]
    )
    + ")"
)
