r"""Text as LaTeX prints it: escaped, and with a replacement for what a document without further packages cannot print.

Only commands of LaTeX's kernel come out, so that a table compiles in any class, with pdfLaTeX and its default fonts.
That is why no library does it: pylatexenc 2.11, the usual one, has commands for 1,561 characters above ASCII, and a
plain article stops with an error at over 200 of them, whose commands belong to packages (measured in December 2026).
Nor are there signs of the encoding TS1, among them a dollar outside formulas: its default fonts are bitmaps where
cm-super is not installed, at which microtype, and with it acmart, stops.
"""

from __future__ import annotations

import re
import unicodedata

# A longer word may be broken at its signs and after so many characters, as a path or a digest has to be.
LONGEST_WORD, LONGEST_PIECE = 24, 12

_ASCII = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"$\mathdollar$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}",
    # babel makes a double quote a command in many languages; two single ones in a group are none.
    '"': "{''}", "`": "{`}",
}  # fmt: skip
_TEXT = {
    "\u00a0": "~", "\u202f": "~", "–": "--", "—": "---", "‐": "-", "\u2011": "-", "‒": "--", "―": "---",
    "‘": "{`}", "’": "'", "‚": "{,}", "“": "{``}", "”": "{''}", "„": "{,,}", "…": r"\ldots{}",
    "¡": "{!`}", "¿": "{?`}", "©": "(c)", "®": "(R)", "£": "GBP", "€": "EUR",
    "ß": r"\ss{}", "ẞ": "SS", "æ": r"\ae{}", "Æ": r"\AE{}", "œ": r"\oe{}",
    "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}", "ı": r"\i{}", "ȷ": r"\j{}", "\u2044": "/",
}  # fmt: skip
_MATH = {
    "§": r"\mathsection", "¶": r"\mathparagraph",
    "±": r"\pm", "∓": r"\mp", "×": r"\times", "÷": r"\div", "−": "-", "·": r"\cdot", "⋅": r"\cdot", "•": r"\bullet",
    "≥": r"\geq", "≤": r"\leq", "≠": r"\neq", "≈": r"\approx", "≡": r"\equiv", "≅": r"\cong", "∼": r"\sim",
    "≃": r"\simeq", "∝": r"\propto", "≪": r"\ll", "≫": r"\gg", "«": r"\ll", "»": r"\gg", "‹": "<", "›": ">",
    "→": r"\rightarrow", "←": r"\leftarrow", "↔": r"\leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "⇒": r"\Rightarrow", "⇐": r"\Leftarrow", "⇔": r"\Leftrightarrow", "↦": r"\mapsto", "∞": r"\infty", "√": r"\surd",
    "∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∂": r"\partial", "∇": r"\nabla", "∈": r"\in", "∉": r"\notin",
    "⊂": r"\subset", "⊆": r"\subseteq", "∪": r"\cup", "∩": r"\cap", "∧": r"\wedge", "∨": r"\vee", "¬": r"\neg",
    "∀": r"\forall", "∃": r"\exists", "∅": r"\emptyset", "°": r"^{\circ}", "†": r"\dagger", "‡": r"\ddagger",
    "⟨": r"\langle", "⟩": r"\rangle", "⌈": r"\lceil", "⌉": r"\rceil", "⌊": r"\lfloor", "⌋": r"\rfloor",
    "‖": r"\|", "⊥": r"\perp", "⊕": r"\oplus", "⊗": r"\otimes", "★": r"\star", "ℓ": r"\ell", "ϕ": r"\phi",
    "ϵ": r"\epsilon", "ϑ": r"\vartheta", "ς": r"\varsigma",
}  # fmt: skip
_GREEK = re.compile("GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)")
# Greek capitals, and the small omicron, that look like Latin letters have no command.
_LATIN_LOOKING = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
_GREEK_NAMES = {"LAMDA": "lambda"}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b",
}  # fmt: skip
_BELOW = "\u0323\u0327\u0331"
# Two characters that fonts print as one other sign, which would make an option such as --size a dash.
_LIGATURE = re.compile(r"--|''|,,|!`|\?`")


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it stands here, on one line, and can break inside words that are too long."""
    return re.sub(r"\S+|\s+", lambda word: _escaped_word(word[0]), unicodedata.normalize("NFC", text))


def _escaped_word(word: str) -> str:
    pieces: list[str] = []
    is_long, run, before = len(word) > LONGEST_WORD, 0, ""
    for character in word:
        if unicodedata.category(character) in ("Mn", "Me"):
            # A letter takes one accent; there is no command for what else may be piled on it.
            if pieces and before.isascii() and before.isalnum() and pieces[-1] == before:
                pieces[-1] = _accented(before, character)
            continue
        if _LIGATURE.fullmatch(before + character):
            pieces.append("{}")
        pieces.append(_character(character))
        run, before = run + 1, character
        if is_long and (character in "_/,;" or run >= LONGEST_PIECE):
            pieces.append(r"\allowbreak{}")
            run = 0
    return "".join(pieces)


def _character(character: str) -> str:
    if character in _ASCII:
        return _ASCII[character]
    if " " <= character <= "~":
        return character
    if character in _TEXT:
        return _TEXT[character]
    if character in _MATH:
        return f"${_MATH[character]}$"
    return _greek(character) or _decomposed(character) or _replacement(character)


def _greek(character: str) -> str:
    if character in _LATIN_LOOKING:
        return _LATIN_LOOKING[character]
    found = _GREEK.fullmatch(unicodedata.name(character, ""))
    if not found or not "\u0391" <= character <= "\u03c9":
        return ""
    name = _GREEK_NAMES.get(found[2], found[2].lower())
    return rf"$\{name if found[1] == 'SMALL' else name.capitalize()}$"


def _decomposed(character: str) -> str:
    """Return a letter with its accent, or what a character stands for (a ligature, a raised digit, a wide letter)."""
    parts = unicodedata.decomposition(character).split()
    if not parts:
        return ""
    kind = parts.pop(0) if parts[0].startswith("<") else ""
    inner = [chr(int(part, 16)) for part in parts]
    if not kind:
        base, marks = inner[0], inner[1:]
        if base.isascii() and marks:
            return _accented(base, marks[0])
        return _character(base)
    text = "".join(map(_character, inner))
    if kind in ("<super>", "<sub>") and all(one.isascii() and one.isalnum() for one in inner):
        return rf"${'^' if kind == '<super>' else '_'}{{\mathrm{{{text}}}}}$"
    return text


def _accented(base: str, mark: str) -> str:
    if mark not in _ACCENTS:
        return base
    dotless = rf"\{base}" if base in "ij" and mark not in _BELOW else base
    return rf"\{_ACCENTS[mark]}{{{dotless}}}"


def _replacement(character: str) -> str:
    """Return a symbol's name, or a letter's number; a blank for blanks and line feeds, nothing for what is not seen."""
    category = unicodedata.category(character)
    if character in "\t\n\r\v\f" or category.startswith("Z"):
        return " "
    if category == "Cf":
        return ""
    name = unicodedata.name(character, "") if category[0] in "SP" else ""
    return f"[{name.lower() or f'U+{ord(character):04X}'}]"
