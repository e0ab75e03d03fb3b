"""What chunk_article promises, for a WordPiece and a byte-level tokenizer, on worked examples and on any text."""

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from ragkit.corpus import chunk_article, chunking, count_tokens, markdown_headings, measured_overlap, untruncated
from ragkit.errors import InputError
from ragkit.records import Article

SENTENCES = [
    "The station burned for three minutes and raised its orbit by one kilometre.",
    "Debris from the breakup 🚀 passed within 600 metres; the crew sheltered.",
    "Überraschung: e\u0301 and 日本語 and שלום in one line.",
]


def wordpiece() -> Tokenizer:
    """A small BERT: lower case, accents stripped, [CLS] and [SEP] around; "orbital" is orbit ##al."""
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "orbit",
        "##al",
        "debris",
        "station",
        *string.ascii_lowercase + string.digits + ".,#>:",
    ]
    pieces += [f"##{letter}" for letter in string.ascii_lowercase + string.digits] + [f"w{n}" for n in range(10, 100)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=None, special_tokens=ends)
    return tokenizer


def byte_level() -> Tokenizer:
    """A byte-level BPE trained here: an emoji is up to four tokens, a word carries the space before it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


WORDPIECE, BYTE_LEVEL = wordpiece(), byte_level()
TOKENIZERS = {"wordpiece": WORDPIECE, "byte-level": BYTE_LEVEL}


def article(text: str, title: str = "") -> Article:
    return Article("a", title, text, "https://x.org", "2025-05-01", "NASA")


def spans(chunks):
    return [(chunk.start, chunk.end) for chunk in chunks]


def assert_sound(text, chunks):
    """Slices of the text in order, none inside another, nothing but white space left out."""
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip() != ""
        assert chunk.chunk_id == f"a::{chunk.start}"
    for a, b in pairwise(chunks):
        assert a.start < b.start
        assert a.end < b.end
    reached = 0
    for start, end in spans(chunks):
        assert not text[reached:start].strip()
        reached = end
    assert not text[reached:].strip()


# Worked examples -----------------------------------------------------------------------------------------------------


def test_a_sliding_window_worked_by_hand():
    # 20 words of one token each; size 8 leaves 6 beside [CLS] and [SEP], overlap 2: windows start 4 words apart
    text = " ".join(f"w{n}" for n in range(10, 30))
    chunks = chunk_article(article(text), WORDPIECE, size=8, overlap=2)
    assert [chunk.text.split()[0] for chunk in chunks] == ["w10", "w14", "w18", "w22", "w26"]
    assert [len(chunk.text.split()) for chunk in chunks] == [6, 6, 6, 6, 4]
    assert measured_overlap(chunks, WORDPIECE) == (2, 2, 2, 2)
    assert [count_tokens(WORDPIECE, chunk.text) for chunk in chunks] == [8, 8, 8, 8, 6]


@pytest.mark.parametrize("words", range(1, 30))
def test_there_is_no_last_chunk_inside_the_one_before(words):
    text = " ".join(f"w{n}" for n in range(10, 10 + words))
    chunks = chunk_article(article(text), WORDPIECE, size=8, overlap=2)
    assert len(chunks) == max(1, -(-(words - 2) // 4))
    assert_sound(text, chunks)


def test_the_stamps_are_carried_and_the_text_is_the_readers_not_the_tokenizers():
    text = "A Title\n\nÉtat  of the  ORBITAL Debris"
    (chunk,) = chunk_article(article(text, "A Title"), WORDPIECE)
    assert chunk.text == text
    assert (chunk.article_id, chunk.title, chunk.url, chunk.published_at, chunk.source) == (
        "a",
        "A Title",
        "https://x.org",
        "2025-05-01",
        "NASA",
    )


def test_a_slice_that_grows_when_encoded_again_is_shortened():
    # in its place "orbital" is orbit ##al; a window that starts at "al" sees a ##l instead
    text = "orbital " * 12
    assert len(WORDPIECE.encode("orbital", add_special_tokens=False).ids) == 2
    for size in range(5, 12):
        chunks = chunk_article(article(text), WORDPIECE, size=size, overlap=1)
        assert_sound(text, chunks)
        assert max(count_tokens(WORDPIECE, chunk.text) for chunk in chunks) <= size


def test_a_byte_level_tokenizer_does_not_cut_inside_a_character():
    text = "🛰" * 9
    each = len(BYTE_LEVEL.encode("🛰").ids)
    assert each > 1
    chunks = chunk_article(article(text), BYTE_LEVEL, size=2 * each + 1, overlap=0)
    assert [chunk.text for chunk in chunks] == ["🛰🛰"] * 4 + ["🛰"]


@pytest.mark.parametrize("strategy", ["headings", "recursive"])
def test_a_combining_mark_stays_with_its_letter(strategy):
    text = "e\u0301" * 50
    chunks = chunk_article(article(text), None, strategy, size=7, overlap=3, unit="characters")
    assert_sound(text, chunks)
    assert all(chunk.text.startswith("e") and chunk.text.endswith("\u0301") for chunk in chunks)


MARKDOWN = """Lead words.

# Causes

## Power

The battery failed.

```sh
# a comment
```

## Thermal ##

The heater was off.

# Remedy

New rules."""


def test_headings_outside_code_fences():
    found = [(heading.level, heading.title) for heading in markdown_headings(MARKDOWN)]
    assert found == [(1, "Causes"), (2, "Power"), (2, "Thermal"), (1, "Remedy")]
    tricky = "#hashtag\n####### seven\n    # indented code\n~~~\n# x\n```\n# y\n~~~~\n"
    tricky += "   # C#\n#\n``` not ` a fence\n# z ##\n```\n# open to the end"
    assert [(h.level, h.title) for h in markdown_headings(tricky)] == [(1, "C#"), (1, ""), (1, "z")]


def test_sections_come_first_and_carry_their_path():
    chunks = chunk_article(article(MARKDOWN), WORDPIECE, "headings", size=200, overlap=5)
    assert [chunk.heading for chunk in chunks] == [None, "Causes > Power", "Causes > Thermal", "Remedy"]
    assert [chunk.text.split("\n")[0] for chunk in chunks] == ["Lead words.", "# Causes", "## Thermal ##", "# Remedy"]
    assert measured_overlap(chunks, WORDPIECE) == (0, 0, 0)
    assert_sound(MARKDOWN, chunks)


def test_a_title_alone_is_no_section():
    text = "A Title\n\n" + MARKDOWN.removeprefix("Lead words.\n\n")
    chunks = chunk_article(article(text, "A Title"), WORDPIECE, "headings", size=200, overlap=5)
    assert chunks[0].text.startswith("A Title\n\n# Causes\n\n## Power")
    assert chunks[0].heading == "Causes > Power"


@pytest.mark.parametrize("strategy", ["tokens", "recursive"])
def test_the_heading_in_force_is_stamped_by_every_strategy(strategy):
    chunks = chunk_article(article(MARKDOWN), WORDPIECE, strategy, size=24, overlap=4)
    assert chunks[0].heading is None
    assert chunks[-1].heading in {"Causes > Thermal", "Remedy"}
    for chunk in chunks:
        before = [heading.title for heading in markdown_headings(MARKDOWN) if heading.start <= chunk.start]
        assert (chunk.heading or "").split(" > ")[-1] in ({before[-1], "Power"} if before else {""})


def test_recursive_ends_at_paragraphs_then_sentences_then_words():
    paragraph = "One two three. Four five six."
    text = f"{paragraph}\n\n{paragraph}\n\n{paragraph}"
    cut = {
        size: [c.text for c in chunk_article(article(text), None, "recursive", size, 0, "characters")] for size in (40, 20, 12)
    }
    assert cut[40] == [paragraph] * 3
    assert cut[20] == ["One two three.", "Four five six."] * 3
    assert cut[12][:3] == ["One two", "three. Four", "five six."]


def test_recursive_overlap_is_whole_words_within_the_overlap():
    text = " ".join(f"word{n:03d}" for n in range(100))  # words of 7 characters
    chunks = chunk_article(article(text), None, "recursive", 40, 16, "characters")
    assert_sound(text, chunks)
    assert set(measured_overlap(chunks)) == {15}  # two words and the space between them
    assert all(chunk.text.startswith("word") for chunk in chunks)


def test_a_short_title_before_a_long_paragraph_is_no_chunk_of_its_own():
    text = "Title\n\n" + "many words in one long paragraph without an end " * 5
    chunks = chunk_article(article(text, "Title"), None, "recursive", 100, 10, "characters")
    assert len(chunks[0].text) > 50


def test_overlap_is_counted_between_neighbours_of_one_article_only():
    text = " ".join(f"w{n}" for n in range(10, 18))
    one = chunk_article(article(text), WORDPIECE, size=8, overlap=2)
    other = chunk_article(Article("b", "", text), WORDPIECE, size=8, overlap=2)
    assert measured_overlap([*one, *other], WORDPIECE) == (2, 2)
    assert measured_overlap([*one, *other]) == (7, 7)
    assert measured_overlap([]) == ()


def test_text_that_the_tokenizer_drops_is_kept():
    text = "\u0301\u0302 \u0303"  # accents alone: the normaliser strips them all
    assert WORDPIECE.encode(text, add_special_tokens=False).ids == []
    assert_sound(text, chunk_article(article(text), WORDPIECE, size=8, overlap=2))


@pytest.mark.parametrize("text", ["", " \n\t "])
def test_white_space_alone_gives_no_chunk(text):
    assert chunk_article(article(text), WORDPIECE) == []


def test_a_start_moved_past_a_joiner_does_not_land_on_a_space():
    text = "𐀀𐀀\u200c𐀀 01"
    assert_sound(text, chunk_article(article(text), BYTE_LEVEL, size=17, overlap=6))


# Any text ------------------------------------------------------------------------------------------------------------

fragments = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        [
            "orbital ",
            "debris. ",
            "\n\n",
            "\n# A\n",
            "\n## B\n",
            "```\n",
            "🛰👩‍🚀",
            "e\u0301\u0302",
            "日本語。",
            "שלום ",
            "½",
            "ﬁ",
            " " * 9,
            "...",
        ]
    ),
)
texts = st.lists(fragments, max_size=40).map("".join)


@settings(max_examples=150, deadline=None)
@given(
    texts, st.sampled_from(["tokens", "headings", "recursive"]), st.sampled_from(list(TOKENIZERS)), st.integers(12, 40), st.data()
)
def test_any_text_in_tokens(text, strategy, name, size, data):
    tokenizer = TOKENIZERS[name]
    overlap = data.draw(st.integers(0, size - tokenizer.num_special_tokens_to_add(False) - 1))
    try:
        chunks = chunk_article(article(text), tokenizer, strategy, size, overlap)
    except InputError:  # a character with more tokens than the size (some ligatures and signs unfold on normalisation)
        assert max(count_tokens(tokenizer, character) for character in text) > size
        return
    assert_sound(text, chunks)
    assert all(count_tokens(tokenizer, chunk.text) <= size for chunk in chunks)


@settings(max_examples=150, deadline=None)
@given(texts, st.sampled_from(["headings", "recursive"]), st.integers(1, 60), st.data())
def test_any_text_in_characters(text, strategy, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    chunks = chunk_article(article(text), None, strategy, size, overlap, "characters")
    assert_sound(text, chunks)
    assert all(len(chunk.text) <= size for chunk in chunks)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("strategy", ["tokens", "recursive"])
def test_the_overlap_is_there(name, strategy):
    text = " ".join(SENTENCES * 20)
    chunks = chunk_article(article(text), TOKENIZERS[name], strategy, size=100, overlap=30)
    got = measured_overlap(chunks, TOKENIZERS[name])
    assert len(got) > 10
    assert min(got) >= 15
    assert max(got) <= 32


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer):
        self.tokenizer, self.characters = tokenizer, 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def encode(self, text, **settings):
        self.characters += len(text)
        return self.tokenizer.encode(text, **settings)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("strategy", ["tokens", "headings", "recursive"])
@pytest.mark.parametrize("text", [" ".join(SENTENCES), "orbital", "x", "🛰", "# a\n"])
def test_each_character_is_encoded_a_few_times_however_long_the_text(monkeypatch, name, strategy, text):
    for times in (10, 300):
        counting = Counting(TOKENIZERS[name])
        monkeypatch.setattr(chunking, "untruncated", lambda tokenizer, counting=counting: counting)
        chunk_article(article(text * times), TOKENIZERS[name], strategy, size=64, overlap=8)
        assert counting.characters <= 6 * len(text) * times


# Settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "semantic"}, "unknown strategy 'semantic': choose from tokens, headings, recursive"),
        ({"unit": "words"}, "unknown unit 'words'"),
        ({"unit": "characters"}, "counts tokens"),
        ({"size": 0}, "size 0"),
        ({"size": 2.5}, "size 2.5"),
        ({"size": True}, "size True"),
        ({"overlap": -1}, "overlap -1"),
        ({"size": 32, "overlap": 32}, "overlap 32 must be below size 32"),
        ({"size": 10, "overlap": 8}, "size 10 leaves no room beside 2 special tokens and an overlap of 8"),
        ({"size": 2, "overlap": 0}, "size 2 leaves no room"),
    ],
)
def test_wrong_settings_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        chunk_article(article("debris"), WORDPIECE, **settings)
    assert words in str(caught.value)


def test_a_tokenizer_is_needed_and_must_be_one():
    with pytest.raises(InputError, match="needs a tokenizer"):
        chunk_article(article("debris"), None)
    with pytest.raises(InputError, match="tokenizer is a str"):
        chunk_article(article("debris"), "bert")


def test_a_character_over_the_size_is_named():
    with pytest.raises(InputError, match="'🛰' takes"):
        chunk_article(article("🛰"), BYTE_LEVEL, size=1, overlap=0)


def test_a_tokenizer_that_truncates_and_pads_is_copied_not_obeyed_and_not_changed():
    text = " ".join(f"w{n}" for n in range(10, 60))
    short = wordpiece()
    short.enable_truncation(12)
    short.enable_padding(length=12)
    assert chunk_article(article(text), short, size=20, overlap=4) == chunk_article(article(text), WORDPIECE, size=20, overlap=4)
    assert count_tokens(short, text) == 52
    assert short.truncation["max_length"] == 12
    assert short.padding["length"] == 12
    assert untruncated(WORDPIECE) is WORDPIECE
