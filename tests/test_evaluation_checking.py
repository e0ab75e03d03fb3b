"""Answer checking: the stated rules, each with what it must accept and what it must not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragkit.answering.prompts import REFUSAL
from ragkit.errors import InputError
from ragkit.evaluation import check_answer, contains_answer, exact_match, is_refusal, normalise, token_f1

settings.register_profile("ragkit", deadline=None)  # a busy machine is no failure
settings.load_profile("ragkit")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It was 5 km away.", "5"),
        ("It was 5km away", "5 kilometres"),
        ("a distance of five kilometers", "5 km"),
        ("at 7.5 km/s", "7.5 kilometres per second"),
        ("1,500 kg", "1500 kilograms"),
        ("1\u202f500 kg", "1500 kg"),
        ("about 1.5 million people", "1,500,000"),
        ("twenty-five satellites", "25 satellites"),
        ("The X-37B landed", "X 37B"),
        ("Launched on a Long\u2011March\u20136A rocket", "Long March 6A"),
        ("Kármán line", "Karman line"),
        ("KA\u0301RMA\u0301N LINE", "kármán line"),
        ("the U.S. Space Force", "US Space Force"),
        ("Juno’s camera", "Juno"),
        ("on April 9th, 2024", "9 April 2024"),
        ("on 2024-11-19", "November 19, 2024"),
        ("on Nov. 19, 2024", "19 November 2024"),
        ("the 9th of April 2024", "April 9, 2024"),
        ("at −270 °C", "-270 degrees Celsius"),
        ("minus 5 degrees", "-5"),
        ("05.20 m", "5.2 metres"),
        ("5,2 m", "5.2 m"),
        ("**Apollo 11**, in _July_", "Apollo 11"),
        ("a fuel\u00adleak\u200b", "fuelleak"),
        ("12 %", "12 percent"),
        ("Ｊｕｎｏ", "juno"),
        ("Apollo program", "the Apollo program"),
    ],
)
def test_the_same_thing_written_otherwise_is_found(text: str, answer: str) -> None:
    assert contains_answer(text, answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("25 km", "5"),
        ("5.2 km", "5"),
        ("5.2 km", "2"),
        ("1,500 km", "5"),
        ("1,500 km", "1"),
        ("1,500 km", "500"),
        ("the X-37B", "37"),
        ("the 1960s", "1960"),
        ("version v1.2", "2"),
        ("5 million", "5"),
        ("at -5 degrees", "5"),
        ("10⁶ m", "106"),
        ("moonlight", "moon"),
        ("anything", ""),
        ("", ""),
        ("anything", "..."),
        ("anything", "the"),
        ("Apollo 11 [2]", "2"),
        ("Apollo 11 [2, 3]", "3"),
        ("5 km", "5 miles"),
    ],
)
def test_a_part_of_a_token_or_nothing_is_not_found(text: str, answer: str) -> None:
    assert not contains_answer(text, answer)


@given(st.text(max_size=80))
def test_normalising_any_text_gives_clean_tokens(text: str) -> None:
    once = normalise(text)
    assert once == " ".join(once.split())
    assert not set(once.split()) & {".", ",", ";", ":", "!", "?", "-", "%"}


def test_articles_go_but_a_letter_that_is_a_name_stays() -> None:
    assert normalise("The probe met a moon at an angle; A probe, THE probe") == "probe met moon at angle probe probe"
    assert check_answer("It was a Type A mishap.", "Type A mishap").correct
    assert check_answer("It was a Type-A mishap.", "Type A mishap").correct
    assert not check_answer("It was a Type B mishap.", "Type A mishap", ["Type A"]).correct
    assert normalise("at 5 a.m.") == "at 5 am"


@given(st.text(max_size=40), st.text(max_size=40))
def test_matching_is_by_whole_tokens(text: str, answer: str) -> None:
    found = contains_answer(text, answer)
    tokens, wanted = normalise(text).split(), normalise(answer).split()
    by_hand = bool(wanted) and any(tokens[start : start + len(wanted)] == wanted for start in range(len(tokens)))
    assert found == by_hand
    assert contains_answer(text, text) == bool(tokens)


@pytest.mark.parametrize("text", ["Juno reached Jupiter in 2016 [1].", "It was Juno, I think."])
def test_gold_and_alias_count_and_say_which(text: str) -> None:
    assert check_answer(text, "Juno").rule == "gold"
    outcome = check_answer(text, "New Horizons", ["Galileo", "the Juno"])
    assert (outcome.correct, outcome.rule, outcome.refused) == (True, "alias", False)
    assert check_answer(text, "Cassini", ["Galileo"]).rule == "no match"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("It was not a fuel leak but a valve.", "negated"),
        ("It wasn't a fuel leak.", "negated"),
        ("It isn’t because of the fuel leak", "negated"),
        ("There was no fuel leak.", "negated"),
        ("It was not the valve, a fuel leak did it", "gold"),
        ("Not a fuel leak at first, then a fuel leak", "gold"),
        ("No. A fuel leak", "gold"),
        ("No, fuel leak", "gold"),
        ("It was not only a fuel leak", "gold"),
        ("It is not known whether a fuel leak was seen", "gold"),
    ],
)
def test_a_negation_right_before_the_match_takes_it_away(text: str, rule: str) -> None:
    outcome = check_answer(text, "fuel leak")
    assert (outcome.rule, outcome.correct) == (rule, rule == "gold")


def test_numbers_after_no_are_not_negated_by_an_abbreviation() -> None:
    assert check_answer("See pad No. 5", "5").correct
    assert not check_answer("It was not 5 km", "5 km").correct


@pytest.mark.parametrize(
    "text",
    [
        REFUSAL["en"],
        REFUSAL["en"].replace("'", "’").upper(),
        f"{REFUSAL['en']} The article says that Juno did it.",
        f"Well. {REFUSAL['en']}",
        "I don't know.",
        "I do not know the answer to that question.",
        "Sorry, I cannot answer that.",
        "I'm sorry. I don't know. Please provide more context.",
        "Not mentioned in the context.",
        "The provided sources do not mention the launch date.",
        "The launch date is not specified.",
        "The mass isn't stated in the given text [1].",
        "There is no information about Juno in the sources.",
        "There is not enough information to answer.",
        "I don't have any information on that.",
        "Based on the provided context, the answer is not given.",
        "It cannot be determined from the sources.",
        "I am unable to answer this question.",
        "None of the sources mention Juno.",
        "No information available",
    ],
)
def test_refusals_are_a_class_of_their_own(text: str) -> None:
    assert is_refusal(text)
    outcome = check_answer(text, "Juno")
    assert (outcome.correct, outcome.rule, outcome.refused) == (False, "refusal", True)


@pytest.mark.parametrize(
    "text",
    [
        "Juno",
        "",
        "No.",
        "I don't know, but it was Juno.",
        "It was Juno. I don't know more.",
        "The cause is not known.",
        "The debris was not found.",
        "The satellite does not carry a camera.",
        "It did not provide thrust.",
        "No data were lost.",
        "Sorry.",
        "The mission was not included in the budget of 2019.",
    ],
)
def test_answers_are_not_refusals(text: str) -> None:
    assert not is_refusal(text)


def test_the_refusal_sentence_is_a_parameter() -> None:
    assert is_refusal(f"{REFUSAL['pt']}", REFUSAL["pt"])
    assert not is_refusal("Não tenho informação suficiente", REFUSAL["pt"])
    assert check_answer("Nope, pal. Juno", "Juno", refusal="Nope, pal.").refused


def test_unanswerable_questions_are_right_when_refused() -> None:
    assert check_answer(REFUSAL["en"], "", answerable=False).correct
    answered = check_answer("Juno", "", answerable=False)
    assert (answered.correct, answered.rule, answered.refused) == (False, "answered", False)
    cut = check_answer(REFUSAL["en"], "", answerable=False, finish_reason="length")
    assert (cut.correct, cut.rule, cut.refused) == (False, "truncated", True)


@pytest.mark.parametrize(
    ("text", "finish_reason", "rule"),
    [
        ("Juno", "length", "truncated"),
        ("Juno", "content_filter", "failed"),
        ("Juno", "error", "failed"),
        (None, "error", "failed"),
        (None, "stop", "empty"),
        ("", "stop", "empty"),
        ("", "length", "empty"),
        (" \n [1] ... ", "stop", "empty"),
        ("Juno", None, "gold"),
        ("Juno", "stop", "gold"),
    ],
)
def test_failed_truncated_and_empty_answers_are_wrong(text, finish_reason, rule) -> None:
    outcome = check_answer(text, "Juno", finish_reason=finish_reason)
    assert (outcome.rule, outcome.correct) == (rule, rule == "gold")


def test_an_empty_gold_answer_matches_nothing() -> None:
    assert check_answer("Juno", "").rule == "no match"
    assert check_answer("Juno", "...", ["", "the"]).rule == "no match"


@given(st.text(max_size=60), st.text(max_size=20), st.sampled_from(["stop", "length", "error"]))
def test_correct_implies_contained_and_not_refused(text: str, gold: str, finish_reason: str) -> None:
    outcome = check_answer(text, gold, finish_reason=finish_reason)
    if outcome.correct:
        assert contains_answer(text, gold)
        assert not outcome.refused
        assert finish_reason == "stop"


@pytest.mark.parametrize("arguments", [(1, "a"), ("a", None), ("a", ["b"]), ("a", "b", "cd"), ("a", "b", [1])])
def test_what_is_no_string_is_refused(arguments) -> None:
    with pytest.raises(InputError, match="give a"):
        check_answer(*arguments)


# SQuAD's measures


def test_exact_match_follows_squad() -> None:
    assert exact_match("The Eagle!", "eagle") == 1.0
    assert exact_match("Eagle landed", "eagle") == 0.0
    assert exact_match("", "the") == 1.0


def test_token_f1_follows_squad() -> None:
    # prediction {saturn, v, rocket}, gold {saturn, v}: P = 2/3, R = 1.
    assert token_f1("a Saturn V rocket", "the Saturn V") == pytest.approx(0.8, abs=1e-15)
    assert token_f1("very very big", "very big big") == pytest.approx(2 / 3, abs=1e-15)
    assert token_f1("x", "y") == 0.0
    assert token_f1("", "") == 1.0
    assert token_f1("", "y") == 0.0


@given(st.text(max_size=40), st.text(max_size=40))
def test_f1_is_symmetric_bounded_and_one_on_exact_match(one: str, other: str) -> None:
    assert token_f1(one, other) == token_f1(other, one)
    assert 0.0 <= token_f1(one, other) <= 1.0
    assert exact_match(one, other) <= token_f1(one, other)
