"""Whether a text can be encoded at all: the one check that the embedder and the reader share.

Python strings may hold lone surrogates (half a character, from a damaged file or a shell); no tokenizer can read them.
It only looks: nothing is repaired in silence.
"""


def is_unicode(text: str) -> bool:
    """True where the text can be written as UTF-8, that is, holds no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
