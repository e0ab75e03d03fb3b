"""Real weights: the in-process embedder equals sentence-transformers, the in-process reader answers the same twice."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.errors import InputError
from ragkit.models import ensure, open_embedder, open_reader
from ragkit.profile import EmbedderChoice, Profile, ReaderChoice

pytestmark = pytest.mark.models

PROFILE = Profile(
    name="smallest",
    embedder=EmbedderChoice(model="all-MiniLM-L6-v2", batch_size=4, backend="sentence-transformers"),
    reader=ReaderChoice(model="smollm2-135m-instruct", max_new_tokens=24),
)
TEXTS = [
    "A close approach is computed, not searched for.",
    "Kosmos 482 re-entered in May 2025 after fifty-three years in orbit.",
    "",
    "Órbita geoestacionária — 35 786 km 🛰️",
    "cafe\u0301 مدار \x00 end",
    *(f"{'The station raised its orbit. ' * n}{n}" for n in range(1, 30, 5)),
]


@pytest.fixture(scope="module")
def embedder():
    ensure("all-minilm-l6-v2")
    with open_embedder(PROFILE) as opened:
        yield opened


@pytest.fixture(scope="module")
def bare():
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(ensure("all-minilm-l6-v2")), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def reader():
    ensure("smollm2-135m-instruct")
    with open_reader(PROFILE) as opened:
        yield opened


def test_vectors_equal_sentence_transformers_in_the_order_given(embedder, bare):
    vectors = embedder.encode_passages(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert vectors.shape == (len(TEXTS), embedder.dimension) == (len(TEXTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(vectors, bare.encode(TEXTS), atol=1e-6)
    np.testing.assert_array_equal(embedder.encode_queries(TEXTS), vectors)


def test_the_fast_backend_gives_nearly_the_same_vectors_under_another_identity(embedder):
    fast = PROFILE.model_copy(update={"embedder": PROFILE.embedder.model_copy(update={"backend": "openvino"})})
    with open_embedder(fast) as opened:
        vectors = opened.encode_passages(TEXTS)
        np.testing.assert_array_equal(opened.encode_queries(TEXTS), vectors)
        assert {**opened.identity, "dtype": "float32"} == embedder.identity != opened.identity
    cosines = np.einsum("nd,nd->n", vectors, embedder.encode_passages(TEXTS))
    assert cosines.min() > 0.999


def test_the_limit_counts_special_tokens(embedder):
    assert embedder.max_tokens == 256
    assert len(embedder.tokenizer.encode("orbit " * 254)) == 256
    embedder.encode_passages(["orbit " * 254])
    with pytest.raises(InputError, match=r"text 1 has 257 tokens, over the 256 of all-minilm-l6-v2"):
        embedder.encode_passages(["orbit", "orbit " * 255])


def test_truncating_is_counted_and_equals_sentence_transformers_own(embedder, bare):
    long = ["orbit " * 300, "Unbelievably-long antidisestablishmentarianism! " * 90, "x" * 150 + " geostationary" * 400, "short"]
    before = embedder.truncated
    np.testing.assert_allclose(embedder.encode_passages(long, truncate=True), bare.encode(long), atol=1e-6)
    assert embedder.truncated - before == 3


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=400))
def test_any_text_has_a_vector_or_is_refused_by_length(embedder, text):
    if len(embedder.tokenizer.encode(text)) > embedder.max_tokens:
        with pytest.raises(InputError, match="over the 256"):
            embedder.encode_passages([text])
    else:
        assert abs(float(np.linalg.norm(embedder.encode_passages([text])[0])) - 1) < 1e-6


def test_opening_reaches_for_no_network(monkeypatch):
    ensure("all-minilm-l6-v2")
    ensure("smollm2-135m-instruct")

    def refuse(*_: object) -> None:
        raise AssertionError("reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with open_embedder(PROFILE) as embedder, open_reader(PROFILE) as reader:
        assert embedder.encode_queries(["Which way is up?"]).shape == (1, 384)
        assert reader.count_tokens("up") == 1


def test_the_identity_says_all_that_a_vector_depends_on_and_not_how_it_was_batched(embedder):
    choice = PROFILE.embedder.model_copy(update={"model": "sentence-transformers/all-MiniLM-L6-v2", "batch_size": 7})
    other = PROFILE.model_copy(update={"embedder": choice})
    with open_embedder(other) as opened:
        assert opened.identity == embedder.identity
    assert embedder.identity["weights"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def test_greedy_answers_repeat_to_the_letter(reader):
    prompts = ["Name one planet.", [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Sky?"}]]
    first, again = reader.answer(prompts), reader.answer(prompts[::-1])[::-1]
    assert [c.text for c in first] == [c.text for c in again]
    assert [(c.finish_reason, c.prompt_tokens, c.completion_tokens) for c in first] == [
        (c.finish_reason, c.prompt_tokens, c.completion_tokens) for c in again
    ]
    assert all(c.text and c.seconds > 0 for c in first)


def test_transformers_reads_the_same_file_and_counts_the_same_tokens(reader):
    other = PROFILE.model_copy(update={"reader": PROFILE.reader.model_copy(update={"backend": "transformers"})})
    prompts = ["Name one planet.", "Is the sky blue? Answer yes or no, and say in a few words what makes it so."]
    with open_reader(other) as opened:
        assert opened.identity["weights"] == reader.identity["weights"]
        assert opened.identity != reader.identity
        first, again = opened.answer(prompts), opened.answer(prompts)
        assert [c.text for c in first] == [c.text for c in again]
        assert [c.prompt_tokens for c in first] == [c.prompt_tokens for c in reader.answer(prompts)]
        assert opened.count_tokens("Kosmos 482") == reader.count_tokens("Kosmos 482")
        assert all(c.text and c.completion_tokens <= 24 for c in first)
        with pytest.raises(InputError, match="give less context"):
            opened.answer(["orbit " * 2100])


def test_a_string_is_one_user_message_in_the_models_own_template(reader):
    as_text, as_chat = reader.answer(["Name one planet.", [{"role": "user", "content": "Name one planet."}]])
    assert as_text.text == as_chat.text
    # SmolLM2's template puts its own system message and role marks around the question.
    assert as_text.prompt_tokens > reader.count_tokens("Name one planet.") + 10


def test_the_limit_of_new_tokens_is_said(reader):
    (completion,) = reader.answer(["Write a long story about a rocket."])
    assert (completion.finish_reason, completion.completion_tokens) == ("length", 24)


def test_a_prompt_over_the_context_is_refused(reader):
    with pytest.raises(InputError, match=r"and an answer of 24 exceed smollm2-135m-instruct's 2048"):
        reader.answer(["orbit " * 2100])


def test_completions_come_as_soon_as_their_batch_is_done(reader):
    batch = ["Name one planet."] * reader.batch_size
    answers = reader.iter_answers([*batch, "orbit " * 2100])
    assert all(next(answers).text for _ in batch)
    with pytest.raises(InputError):
        next(answers)


def test_sampling_in_process_is_refused():
    ensure("smollm2-135m-instruct")
    warm = PROFILE.model_copy(update={"reader": PROFILE.reader.model_copy(update={"temperature": 0.7})})
    with pytest.raises(InputError, match=r"temperature 0\.7"):
        open_reader(warm)
