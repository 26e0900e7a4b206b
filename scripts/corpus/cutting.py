"""Cut a stream of text into chunks that can be tokenized apart, with exactly the tokens of the whole.

The only places cut are those between a character that is not white space and a white-space character after it.
Why that is exact for GPT-2's pre-tokenizer, whose matches are (with an optional space before) runs of letters, of
digits or of other non-space characters, contractions, and runs of white space:
  - no match continues across such a place, for in no match does white space follow anything but white space;
  - the left part's last match was ended by the white space and is now ended by the end of the text;
  - the right part begins where a match begins, and the pattern never looks back;
  - the look-ahead `(?!\\S)` is asked only after white space, so never at the end of the left part.
A cut *after* white space would not be exact: "foo\\n\\nbar" has "\\n", "\\n", but "\\n\\n" where the text ends there.
"""

import re
from collections.abc import Iterable, Iterator

# White space to the pre-tokenizer is Unicode's White_Space. Python's own \s and str.isspace() add U+001C to U+001F,
# and older Unicode tables U+180E. On a character whose nature is in doubt nothing is cut, neither before nor after it,
# which keeps the cut right under every one of these definitions.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
DOUBTFUL = "\x1c-\x1f\u180e"
_BEFORE_CUT = re.compile(f"[^{WHITE_SPACE}{DOUBTFUL}](?=[{WHITE_SPACE}])")


def cut_text(pieces: Iterable[str], chunk_chars: int) -> Iterator[str]:
    """Yield the text of `pieces`, cut anew into chunks that may be tokenized apart; joined they are the same text.

    A chunk ends at the first place allowed after at least `chunk_chars` characters. Where words are of ordinary
    length a chunk is a few characters longer than that, and memory holds one chunk and one piece. A text without any
    place to cut (megabytes without white space, or of nothing else) stays one chunk and is held whole: this is the one
    case in which memory grows with the text.

    No chunk is empty. `chunk_chars` is at least 1. Time is linear in the text, whatever its pieces.
    """
    assert chunk_chars >= 1, f"chunk_chars is {chunk_chars}"
    held: list[str] = []
    held_chars = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            wanted = start + max(chunk_chars - held_chars, 0)
            end = _next_cut(held[-1][-1] if held else "", piece, start, wanted)
            if end is None:
                held.append(piece[start:])
                held_chars += len(held[-1])
                break
            held.append(piece[start:end])
            yield "".join(held)
            held, held_chars, start = [], 0, end
    if held:
        yield "".join(held)


def _next_cut(previous: str, piece: str, start: int, wanted: int) -> int | None:
    """Return the first index >= `wanted` in `piece` before which one may cut, or None.

    `previous` is the last character held from earlier pieces ("" where nothing is held): with it, `start` itself is
    a candidate.
    """
    if wanted == start and previous and _BEFORE_CUT.match(previous + piece[start]):
        return start
    match = _BEFORE_CUT.search(piece, max(wanted - 1, start))
    return match.end() if match else None
